"""A model folder opened for translation, by the fastest engine that can run it."""

from pathlib import Path

from regard.bundle.folder import Description, read_description, read_tokenizers
from regard.engine.search import Engine
from regard.engine.translator import LineTranslator
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

ENGINES = ("auto", "ctranslate2", "torch")
_LONGEST = 256
"""Tokens a part of a line may have, where the folder does not say what its model was trained on."""


def open_translator(folder: Path, *, engine: str = "auto", int8: bool = False) -> LineTranslator:
    """The translator in a folder; torch is imported only if its engine is needed.

    The engine "auto" is CTranslate2 for what it can run, and PyTorch for everything else.
    """
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}; it can be {', '.join(ENGINES)}.")
    description = read_description(folder)
    tokenizer, own = read_tokenizers(folder, description)
    target = own or tokenizer
    if description.task != "translation" or tokenizer is None or target is None:
        raise InputError(
            f"{folder} holds a model for {description.task}; only one for translation translates."
        )
    chosen = engine
    if engine == "auto":
        chosen = "ctranslate2" if runs_fast(description) else "torch"
    made = _fast(folder, tokenizer, target, int8=int8) if chosen == "ctranslate2" else None
    longest = int(description.extras.get("longest_source", _LONGEST))
    return LineTranslator(made or _plain(folder, target), tokenizer, target, longest=longest)


def runs_fast(description: Description) -> bool:
    """Whether CTranslate2 can run the model."""
    settings = description.model
    return (
        description.family == "transformer"
        and settings.get("attention", "exact") == "exact"
        and settings.get("positions", "sinusoidal") in ("sinusoidal", "learned")
    )


def _fast(folder: Path, tokenizer: Tokenizer, target: Tokenizer, *, int8: bool) -> Engine:
    from regard.engine.fast import FastEngine

    return FastEngine(folder, tokenizer, target, int8=int8)


def _plain(folder: Path, target: Tokenizer) -> Engine:
    from regard.bundle.bundle import Bundle
    from regard.engine.plain import PlainEngine

    return PlainEngine([Bundle.load(folder).model.eval()], target)
