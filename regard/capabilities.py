"""The engines that can run a model, decided from its description alone; no torch, no weights.

| engine           | runs                                                                       |
|------------------|----------------------------------------------------------------------------|
| torch            | every model                                                                |
| torch, int8      | Transformers that `regard.generation.fast_decoder` implements              |
| ctranslate2      | Transformers and decoder-only models with exact attention, in either dtype |

Tests compare every rule with what the engines really do.
"""

from collections.abc import Callable, Mapping
from typing import Any

from regard.errors import InputError

ENGINES = ("auto", "ctranslate2", "torch")

Settings = Mapping[str, Any]
_Rule = tuple[Callable[[str, Settings], bool], str]
"""A condition on family and settings, and the reason why it rules an engine out."""


def _has_wide_values(settings: Settings) -> bool:
    d_k = settings.get("d_k") or settings["d_model"] // settings["n_heads"]
    return settings.get("d_v") not in (None, d_k)


_EXACT: tuple[_Rule, ...] = (
    (lambda _, s: s.get("attention", "exact") != "exact", "it supports exact attention only"),
    (lambda _, s: _has_wide_values(s), "it requires values as wide as keys (d_v = d_k)"),
)
_CTRANSLATE2: tuple[_Rule, ...] = (
    (lambda f, _: f not in ("transformer", "decoder"), "it runs transformer and decoder models"),
    *_EXACT,
    (lambda _, s: s.get("rotary_scaling") is not None, "it does not scale rotary positions"),
    (
        lambda f, s: f == "transformer" and s.get("positions") == "alibi",
        "its encoders have no ALiBi positions",
    ),
)
_TORCH_INT8: tuple[_Rule, ...] = (
    (lambda f, _: f != "transformer", "it runs transformer models"),
    *_EXACT,
    (
        lambda _, s: s.get("positions", "sinusoidal") in ("rotary", "alibi"),
        "it supports sinusoidal, learned or no positions",
    ),
    (
        lambda _, s: s.get("n_kv_heads") not in (None, s["n_heads"]),
        "it requires keys and values for every head",
    ),
)


def unsupported_reason(
    engine: str, family: str, settings: Settings, *, int8: bool = False
) -> str | None:
    """Return why an engine cannot run a model, or None if it can.

    Args:
        engine: "ctranslate2" or "torch".
        settings: the fields of the model's configuration.
        int8: run with 8-bit weights.
    """
    rules = _CTRANSLATE2 if engine == "ctranslate2" else _TORCH_INT8 if int8 else ()
    return next((reason for applies, reason in rules if applies(family, settings)), None)


def choose_engine(
    family: str,
    settings: Settings,
    engine: str = "auto",
    *,
    int8: bool = False,
    torch_feature: str = "",
) -> str:
    """Return the engine to use: the requested one, or for "auto" the fastest that can run.

    Args:
        torch_feature: what is needed that only torch supports, if anything.
    """
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}; it must be {', '.join(ENGINES)}.")
    reason = unsupported_reason("ctranslate2", family, settings, int8=int8)
    if engine == "ctranslate2" and reason:
        raise InputError(f"CTranslate2 cannot run this model because {reason}: use engine torch.")
    if engine == "ctranslate2" and torch_feature:
        raise InputError(f"CTranslate2 does not support {torch_feature}: use engine torch.")
    if engine != "torch" and not reason and not torch_feature:
        return "ctranslate2"
    reason = unsupported_reason("torch", family, settings, int8=int8)
    if reason:
        raise InputError(
            f"int8 with the torch engine cannot run this {family} model because {reason}: use "
            "float32."
        )
    return "torch"
