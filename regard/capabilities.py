"""The engines that can run a model, decided from its description alone; no torch, no weights.

| engine           | runs                                                                       |
|------------------|----------------------------------------------------------------------------|
| torch            | every model, also in bfloat16                                              |
| torch, int8      | Transformers that `regard.generation.fast_decoder` implements              |
| ctranslate2      | Transformers and decoder-only models with exact attention, in either dtype |
| numpy            | decoder-only models that `regard.generation.numpy_decoder` implements      |
| openvino, onnx   | encoders and vision models with exact attention, as graphs; openvino also  |
|                  | in bfloat16, onnx also in int8                                             |

Tests compare every rule with what the engines really do.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from regard.errors import InputError, check_choice

ENGINES = ("auto", "ctranslate2", "torch")
WRITERS = ("auto", "numpy", "ctranslate2", "torch")
"""The engines that continue texts; "auto" takes the first that can, or the fastest if measured."""
READERS = ("auto", "openvino", "onnx", "torch")
"""The engines that embed, classify and fill; "auto" takes the one that was measured as fastest."""
PRECISIONS = ("float32", "bfloat16", "int8", "auto")
""""auto" means int8 if an engine has it for the model, and float32 otherwise."""
_READS = {
    "openvino": ("float32", "bfloat16"),
    "onnx": ("float32", "int8"),
    "torch": ("float32", "bfloat16"),
}
"""The precisions of the engines that embed, classify and fill."""

Settings = Mapping[str, Any]
_Rule = tuple[Callable[[str, Settings], bool], str]
"""A condition on family and settings, and the reason why it rules an engine out."""


def _has_wide_values(settings: Settings) -> bool:
    d_v, n_heads = settings.get("d_v"), settings.get("n_heads")
    if d_v is None:
        return False
    d_k = settings.get("d_k") or (settings.get("d_model", 0) // n_heads if n_heads else None)
    return d_v != d_k


_EXACT: tuple[_Rule, ...] = (
    (lambda _, s: "architecture" in s, "it does not run models of other systems as they are"),
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


_NUMPY: tuple[_Rule, ...] = (
    (lambda f, _: f != "decoder", "it runs decoder models"),
    *_EXACT,
    (
        lambda _, s: s.get("activation") in ("gelu", "geglu"),
        "it has no exact GELU",
    ),
)
_GRAPH: tuple[_Rule, ...] = (
    (lambda f, _: f not in ("encoder", "vision"), "it runs encoders and vision models"),
    *_EXACT[:2],
)
_RULES = {"ctranslate2": _CTRANSLATE2, "numpy": _NUMPY, "openvino": _GRAPH, "onnx": _GRAPH}
_NAMES = {
    "ctranslate2": "CTranslate2",
    "numpy": "the numpy engine",
    "openvino": "OpenVINO",
    "onnx": "ONNX Runtime",
    "torch": "torch",
}


def unsupported_reason(
    engine: str, family: str, settings: Settings, *, int8: bool = False
) -> str | None:
    """Return why an engine cannot run a model with these settings, or None."""
    rules = _RULES.get(engine, _TORCH_INT8 if int8 else ())
    return next((reason for applies, reason in rules if applies(family, settings)), None)


def choose_engine(
    family: str,
    settings: Settings,
    engine: str = "auto",
    precision: str = "float32",
    *,
    torch_feature: str = "",
) -> tuple[str, str]:
    """Return the engine and the precision to translate with.

    The engine is the requested one, or for "auto" the fastest that can run. `torch_feature` names
    what is needed that only torch supports, if anything.
    """
    check_choice("engine", engine, ENGINES)
    check_choice("precision", precision, PRECISIONS)
    needs = {"torch_feature": torch_feature}
    if precision == "auto":
        try:
            return choose_engine(family, settings, engine, "int8", **needs)
        except InputError:  # no engine has it for this model
            return choose_engine(family, settings, engine, **needs)
    reason = unsupported_reason("ctranslate2", family, settings)
    if engine == "ctranslate2":
        _check_ctranslate2(reason, torch_feature, precision)
    if engine != "torch" and not (reason or torch_feature or precision == "bfloat16"):
        return "ctranslate2", precision
    reason = unsupported_reason("torch", family, settings, int8=precision == "int8")
    if reason:
        raise InputError(f"int8 with the torch engine cannot run this model because {reason}.")
    return "torch", precision


def _check_ctranslate2(reason: str | None, torch_feature: str, precision: str) -> None:
    if reason:
        raise InputError(f"CTranslate2 cannot run this model because {reason}: use engine torch.")
    if torch_feature:
        raise InputError(f"CTranslate2 does not support {torch_feature}: use engine torch.")
    if precision == "bfloat16":
        raise InputError(
            "CTranslate2 computes in float32 or int8, not in bfloat16: use engine torch."
        )


def _reasons(
    engines: Iterable[str], family: str, settings: Settings, excluded: Mapping[str, str] | None
) -> dict[str, str | None]:
    """Return why each engine cannot run a model, or None for those that can."""
    return {
        name: (excluded or {}).get(name) or unsupported_reason(name, family, settings)
        for name in engines
    }


def usable_writers(
    family: str,
    settings: Settings,
    engine: str = "auto",
    precision: str = "float32",
    *,
    excluded: Mapping[str, str] | None = None,
) -> tuple[list[str], str]:
    """Return the engines that can continue texts with a model, and the precision.

    Args:
        excluded: engines that cannot be used this time, with the reason.
    """
    check_choice("engine", engine, WRITERS)
    check_choice("precision", precision, PRECISIONS)
    reasons = _reasons(WRITERS[1:], family, settings, excluded)
    if precision == "bfloat16":
        if engine not in ("auto", "torch"):
            name = _NAMES[engine]
            raise InputError(
                f"bfloat16 needs the torch engine, and {name} was asked for: leave one of them out."
            )
        return ["torch"], "bfloat16"
    if precision != "float32":
        able = engine in ("auto", "ctranslate2") and not reasons["ctranslate2"]
        if able:
            return ["ctranslate2"], "int8"
        if precision == "int8":
            reason = reasons["ctranslate2"] or f"{_NAMES[engine]} computes in float32"
            raise InputError(
                f"int8 needs CTranslate2, which cannot be used here because {reason}: use float32."
            )
    if engine != "auto" and reasons[engine]:
        name = _NAMES[engine]
        raise InputError(
            f"{name[0].upper() + name[1:]} cannot run this model because {reasons[engine]}: "
            "use engine torch."
        )
    usable = [name for name in WRITERS[1:] if not reasons[name] and engine in ("auto", name)]
    return usable, "float32"


def usable_readers(
    family: str,
    settings: Settings,
    engine: str = "auto",
    precision: str = "float32",
    *,
    excluded: Mapping[str, str] | None = None,
) -> tuple[list[str], str]:
    """Return the engines that can embed, classify or fill with a model, and the precision.

    Args:
        excluded: engines that cannot be used this time, with the reason.
    """
    check_choice("engine", engine, READERS)
    check_choice("precision", precision, PRECISIONS)
    reasons = _reasons(READERS[1:], family, settings, excluded)
    if precision == "auto":
        precision = "float32" if reasons["onnx"] or engine not in ("auto", "onnx") else "int8"
    for name, known in _READS.items():
        if precision not in known and not reasons[name]:
            reasons[name] = f"it computes in {' or '.join(known)}"
    if engine != "auto" and reasons[engine]:
        raise InputError(
            f"{_NAMES[engine]} cannot be used here because {reasons[engine]}: use another engine "
            "or precision."
        )
    usable = [name for name in READERS[1:] if not reasons[name] and engine in ("auto", name)]
    if not usable:
        raise InputError(
            f"{precision} needs ONNX Runtime, which cannot be used here because {reasons['onnx']}: "
            "use float32."
        )
    return usable, precision


class FamilyAbilities(NamedTuple):
    """Abilities of the models of one family."""

    family: str
    """Regard's name of the family; empty for models that run as they are."""
    names: Mapping[str, str]
    """The models that belong to it, by language."""
    model_types: tuple[str, ...] = ()
    """The values of model_type in config.json that are imported."""
    lens: str = "✓"
    trains: bool = False
    exports: tuple[str, ...] = ()

    @property
    def fast_engines(self) -> tuple[str, ...]:
        """The engines besides torch that run its usual models."""
        settings = {"n_heads": 1} if self.family else {"n_heads": 1, "architecture": "other"}
        family = self.family or "decoder"
        return tuple(x for x in _RULES if unsupported_reason(x, family, settings) is None)


_IF_FOUND = "where the parts sum to the stream"
FAMILIES = (
    FamilyAbilities(
        "transformer",
        {"en": "transformer: Marian, Pegasus", "ko": "transformer: Marian, Pegasus"},
        ("marian", "pegasus"),
        trains=True,
        exports=("huggingface", "onnx", "ctranslate2"),
    ),
    FamilyAbilities(
        "decoder",
        {
            "en": "decoder: GPT-2, Llama, Mistral, Qwen2, llama2.c",
            "ko": "decoder: GPT-2, Llama, Mistral, Qwen2, llama2.c",
        },
        ("gpt2", "llama", "mistral", "qwen2"),
        trains=True,
        exports=("huggingface", "onnx", "ctranslate2", "gguf"),
    ),
    FamilyAbilities(
        "encoder",
        {"en": "encoder: BERT, DistilBERT", "ko": "encoder: BERT, DistilBERT"},
        ("bert", "distilbert"),
        trains=True,
        exports=("huggingface", "onnx"),
    ),
    FamilyAbilities(
        "vision",
        {"en": "vision: ViT, DeiT", "ko": "vision: ViT, DeiT"},
        ("vit", "deit"),
        trains=True,
        exports=("huggingface", "onnx"),
    ),
    FamilyAbilities(
        "seq2seq",
        {"en": "seq2seq: RNN with attention", "ko": "seq2seq: 어텐션이 있는 RNN"},
        lens="–",
        trains=True,
    ),
    FamilyAbilities(
        "",
        {
            "en": "any other: of transformers, timm, `nn.Transformer`, your own",
            "ko": "그 밖의 모든 모델: transformers, timm, `nn.Transformer`, 직접 만든 모델",
        },
        lens=_IF_FOUND,
    ),
)
"""The only table that says what each family can do; documents and commands print it."""
_FAMILY_HEADS = {
    "en": ("family", "look", "edit", "lens", "train", "fast engine", "export"),
    "ko": ("계열", "들여다보기", "수정", "렌즈", "학습", "빠른 엔진", "내보내기"),
}
_IN_KOREAN = {_IF_FOUND: "부분들의 합이 스트림과 같을 때"}


def family_rows(language: str = "en") -> list[dict[str, str]]:
    """Return the table of families, ready to print: a row for each, by column."""
    rows = []
    for one in FAMILIES:
        lens = _IN_KOREAN.get(one.lens, one.lens) if language == "ko" else one.lens
        engines, exports = (", ".join(x) or "–" for x in (one.fast_engines, one.exports))
        cells = (one.names[language], "✓", "✓", lens, "✓" if one.trains else "–", engines, exports)
        rows.append(dict(zip(_FAMILY_HEADS[language], cells, strict=True)))
    return rows


def family_markdown(language: str = "en") -> str:
    """Return the table of families in Markdown."""
    heads = _FAMILY_HEADS[language]
    lines = [heads, ["---"] * len(heads), *(row.values() for row in family_rows(language))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
