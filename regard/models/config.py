"""Configurations: what a model is made of, frozen, checked when made, and told apart by family."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from regard.errors import InputError, UnknownNameError, nearest


@dataclass(frozen=True)
class Family:
    """Where a family's configuration and model are to be found."""

    module: str
    config: str
    model: str


FAMILIES = {
    "transformer": Family("regard.models.transformer", "TransformerConfig", "Transformer"),
    "seq2seq": Family("regard.models.seq2seq", "Seq2SeqConfig", "Seq2Seq"),
    "encoder": Family("regard.models.encoder", "EncoderConfig", "Encoder"),
    "decoder": Family("regard.models.decoder", "DecoderConfig", "Decoder"),
    "vision": Family("regard.models.vision", "VisionConfig", "Vision"),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What every family's configuration can do; the fields are each family's own."""

    family: ClassVar[str]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if not _fits(value, hints[field.name]):
                raise InputError(
                    f"{field.name} is {value!r}; for a {self.family} model it must be "
                    f"{_spoken(hints[field.name])}."
                )

    def to_dict(self) -> dict[str, Any]:
        """The family and all fields, as JSON can hold them."""
        return {"family": self.family, **asdict(self)}


def config_from_dict(given: Mapping[str, Any]) -> ModelConfig:
    """The configuration that `to_dict` gave this dictionary for."""
    rest = dict(given)
    family = rest.pop("family", None)
    if family not in FAMILIES:
        raise UnknownNameError(
            f"there is no family of models {family!r}; {nearest(str(family), FAMILIES)}."
        )
    kind = config_class(family)
    known = {field.name: field for field in fields(kind)}
    for name in rest:
        if name not in known:
            raise UnknownNameError(
                f"a {family} model has no setting {name!r}; {nearest(name, known)}."
            )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in rest.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in required(kind) if name not in values]
        raise InputError(f"a {family} model also needs {', '.join(missing)}.") from None


def config_class(family: str) -> type[ModelConfig]:
    """The configuration class of a family, loaded when it is first needed."""
    entry = FAMILIES[family]
    return getattr(import_module(entry.module), entry.config)


def required(kind: type[ModelConfig]) -> list[str]:
    """The fields that have no default."""
    from dataclasses import MISSING

    return [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]


def check_counts(config: ModelConfig, *names: str) -> None:
    """Refuse a count or width below 1; None means "not given" and passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more.")


def check_probabilities(config: ModelConfig, *names: str) -> None:
    """Refuse what is no probability below 1; None means "not given" and passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise InputError(f"{name} is {value}; it is a probability from 0 up to, not with, 1.")


def check_choice(config: ModelConfig, name: str, choices: Sequence[str]) -> None:
    """Refuse a name that is not one of these."""
    value = getattr(config, name)
    if value not in choices:
        raise UnknownNameError(
            f"{name} is {value!r}, which is none of {', '.join(choices)}; "
            f"{nearest(str(value), choices)}."
        )


def check_heads(config: ModelConfig) -> None:
    """Refuse heads that cannot share the width, or the key/value heads, evenly."""
    d_model, n_heads, d_k, n_kv_heads = (
        getattr(config, name, None) for name in ("d_model", "n_heads", "d_k", "n_kv_heads")
    )
    assert d_model is not None
    assert n_heads is not None
    if d_k is None and d_model % n_heads:
        raise InputError(
            f"d_model is {d_model}, which {n_heads} heads cannot share evenly; choose n_heads that "
            f"divides {d_model}, or give d_k."
        )
    if n_kv_heads is not None and n_heads % n_kv_heads:
        raise InputError(
            f"n_kv_heads is {n_kv_heads}, which does not divide the {n_heads} heads; choose one "
            "that does."
        )


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(one, parts[0]) for one in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


_WORDS = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}


def _spoken(hint: Any) -> str:
    if get_origin(hint) is UnionType:
        return " or ".join(_spoken(one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of numbers"
    return _WORDS.get(hint, "absent")
