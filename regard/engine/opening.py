"""A model folder opened for translation, by the fastest engine that can run it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.bundle.folder import Description, read_description, read_tokenizers
from regard.engine.search import Engine
from regard.engine.shortlist import Shortlist, read_shortlist
from regard.engine.translator import SLOW_WINDOW, LineTranslator
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

ENGINES = ("auto", "ctranslate2", "torch")
_LONGEST = 256
"""Tokens a part of a line may have, where the folder does not say what its model was trained on."""
_ROOM = 2048
"""Positions of a model that can compute any: more than it was trained on, no engine has more."""


def open_translator(
    folder: Path,
    *,
    engine: str = "auto",
    int8: bool = False,
    only_torch: str = "",
    shortlist: bool = False,
    others: Sequence[Path] = (),
) -> LineTranslator:
    """The translator in a folder; torch is imported only if its engine is needed.

    Args:
        only_torch: what shall be asked of it that no other engine can do.
        shortlist: whether it shall write only what the folder's shortlist allows.
        others: folders of models that write together with this one; all have the same tokenizers.
    """
    description = read_description(folder)
    tokenizer, own = read_tokenizers(folder, description)
    target = own or tokenizer
    if description.task != "translation" or tokenizer is None or target is None:
        raise InputError(
            f"{folder} holds a model for {description.task}; only one for translation translates."
        )
    options = {**lengths_of(description.extras), "room": room_of(description.model)}
    narrow = read_shortlist(folder, tokenizer, target) if shortlist else None
    only_torch = only_torch or ("ensembles" if others else "")
    if choose_engine(description, engine, int8=int8, only_torch=only_torch) == "torch":
        _check_together([folder, *others])
        plain = _plain([folder, *others], target, narrow, int8=int8)
        return LineTranslator(plain, tokenizer, target, window=SLOW_WINDOW, **options)
    from regard.engine.fast import FastEngine

    n_vocab = int(description.model["n_vocab"])
    fast = FastEngine(folder, tokenizer, target, n_vocab=n_vocab, int8=int8, shortlist=narrow)
    return LineTranslator(fast, tokenizer, target, **options)


def choose_engine(
    description: Description, engine: str, *, int8: bool = False, only_torch: str = ""
) -> str:
    """The engine asked for; "auto" is CTranslate2 for what it can run, else PyTorch."""
    check_engine(engine)
    fast = runs_fast(description)
    if engine == "ctranslate2" and not fast:
        raise InputError(
            f"CTranslate2 cannot run this model ({description.family}): use the engine torch."
        )
    if engine == "ctranslate2" and only_torch:
        raise InputError(f"CTranslate2 has no {only_torch}: use the engine torch.")
    chosen = engine if engine != "auto" else "ctranslate2" if fast and not only_torch else "torch"
    if int8 and chosen == "torch" and not runs_in_int8(description):
        raise InputError(
            "int8 is for Transformers with exact attention whose heads have keys of their own and "
            f"no rotary positions, and this model ({description.family}) is none: translate "
            "without int8."
        )
    return chosen


def check_engine(engine: str) -> None:
    """Refuse what is no engine's name."""
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}; it can be {', '.join(ENGINES)}.")


def lengths_of(extras: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder knows of the lines that its model was trained on.

    How many tokens long ones had, how much shorter and longer translations were, and how many
    sentences there were in a line.
    """
    ratios = extras.get("target_ratios")
    return {
        "longest": int(extras.get("longest_source", _LONGEST)),
        "ratios": None if ratios is None else (float(ratios[0]), float(ratios[1])),
        "sentences": max(int(extras.get("sentences", 1)), 1),
    }


def room_of(settings: Mapping[str, Any]) -> int:
    """How many positions a model has, if it has learned each of them."""
    return int(settings["max_positions"]) if settings.get("positions") == "learned" else _ROOM


def runs_fast(description: Description) -> bool:
    """Whether CTranslate2 can run the model; `regard.interop.ctranslate2` says why not."""
    settings = description.model
    d_k = settings.get("d_k") or settings.get("d_model", 0) // (settings.get("n_heads") or 1)
    return (
        description.family == "transformer"
        and settings.get("attention", "exact") == "exact"
        and settings.get("positions", "sinusoidal") in ("sinusoidal", "learned", "rotary")
        and settings.get("rotary_scaling") is None
        and settings.get("d_v") in (None, d_k)
    )


def runs_in_int8(description: Description) -> bool:
    """Whether the engine torch has int8 products for the model, too."""
    settings = description.model
    grouped = settings.get("n_kv_heads") not in (None, settings.get("n_heads"))
    return runs_fast(description) and settings.get("positions") != "rotary" and not grouped


def _check_together(folders: Sequence[Path]) -> None:
    """Refuse models that would not understand each other."""
    known = []
    for folder in folders:
        description = read_description(folder)
        tokenizers = read_tokenizers(folder, description)
        known.append([one.fingerprint for one in tokenizers if one is not None])
        if description.task != "translation" or known[-1] != known[0]:
            raise InputError(
                f"{folder} cannot write together with {folders[0]}: both must translate, and have "
                "the same tokenizers."
            )


def _plain(
    folders: Sequence[Path], target: Tokenizer, shortlist: Shortlist | None, *, int8: bool
) -> Engine:
    from regard.bundle.bundle import Bundle
    from regard.engine.plain import PlainEngine

    models = [Bundle.load(folder).model.eval() for folder in folders]
    return PlainEngine(models, target, shortlist=shortlist, int8=int8, fixed=True)
