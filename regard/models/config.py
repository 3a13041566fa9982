"""From a configuration to a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import import_module
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import InputError, UnknownNameError, nearest
from regard.layers.attention_forms import FORMS, NOT_CAUSAL
from regard.layers.feed_forward import ACTIVATIONS
from regard.layers.initialize import INITIALIZATIONS
from regard.layers.norm import NORMS
from regard.layers.position import (
    LAYOUTS,
    POSITIONS,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.layers.stack import LayerPlan


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


@dataclass(frozen=True, kw_only=True)
class StackConfig(ModelConfig):
    """What all families have that are made of stacks of layers."""

    d_model: int
    n_heads: int
    d_ff: int
    d_k: int | None = None
    """Width of a head's queries and keys; d_model / n_heads unless given."""
    d_v: int | None = None
    """Width of a head's values; like d_k unless given."""
    n_kv_heads: int | None = None
    """Heads of keys and values that the query heads share in groups; n_heads unless given."""
    dropout: float = 0.1
    """On embeddings and on what each sub-layer adds."""
    attention_dropout: float = 0.0
    activation_dropout: float | None = None
    """Inside the feed-forward; like `dropout` unless given."""
    norm: str = "post"
    norm_kind: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "relu"
    attention_bias: bool = True
    feed_forward_bias: bool = True
    attention: str = "exact"
    attention_size: int | None = None
    """What a form other than exact is large by: a window's radius, a number of features, …"""
    positions: str = "sinusoidal"
    position_layout: str = "interleaved"
    """How sines and cosines stand: in turn, or in halves as Marian has them."""
    max_positions: int = 512
    """How many positions are learned, where they are."""
    rotary_theta: float = 10000.0
    d_rotary: int | None = None
    """How many numbers of a head rotary positions turn; all unless given."""
    rotary_scaling: tuple[float, float, float, float] | None = None
    """Llama 3.1's factor, low, high and original length."""
    initialization: str = "xavier_uniform"
    pad_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "d_model", "n_heads", "d_ff", "d_k", "d_v", "n_kv_heads")
        check_counts(self, "max_positions", "d_rotary", "attention_size")
        check_probabilities(self, "dropout", "attention_dropout", "activation_dropout")
        check_choice(self, "norm", ("post", "pre"))
        check_choice(self, "norm_kind", NORMS)
        check_choice(self, "activation", ACTIVATIONS)
        check_choice(self, "attention", FORMS)
        check_choice(self, "positions", POSITIONS)
        check_choice(self, "position_layout", LAYOUTS)
        check_choice(self, "initialization", INITIALIZATIONS)
        check_heads(self)
        check_positions(self)
        for name in ("norm_eps", "rotary_theta"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be larger than 0.")

    @property
    def plain_heads(self) -> bool:
        """Whether heads share d_model evenly, each with keys and values of its own."""
        d_k = self.d_model // self.n_heads
        plain = self.d_k in (None, d_k) and self.d_v in (None, d_k)
        return plain and self.n_kv_heads in (None, self.n_heads)

    def plan(self) -> LayerPlan:
        """The numbers from which the layers are made."""
        return LayerPlan(
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_ff=self.d_ff,
            d_k=self.d_k,
            d_v=self.d_v,
            n_kv_heads=self.n_kv_heads,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=(
                self.dropout if self.activation_dropout is None else self.activation_dropout
            ),
            norm=self.norm,
            norm_kind=self.norm_kind,
            norm_eps=self.norm_eps,
            activation=self.activation,
            attention_bias=self.attention_bias,
            feed_forward_bias=self.feed_forward_bias,
            form=self.attention,
            form_size=self.attention_size,
            n_positions=self.max_positions,
            alibi=self.positions == "alibi",
        )

    def make_positions(self) -> SinusoidalPositions | LearnedPositions | None:
        """What is added to token embeddings to say where they stand, if anything is."""
        if self.positions == "sinusoidal":
            return SinusoidalPositions(self.d_model, layout=self.position_layout)
        return (
            LearnedPositions(self.max_positions, self.d_model)
            if self.positions == "learned"
            else None
        )

    def make_rotary(self) -> RotaryPositions | None:
        """What turns queries and keys to say where they stand, if anything does."""
        if self.positions != "rotary":
            return None
        return RotaryPositions(
            self.d_k or self.d_model // self.n_heads,
            theta=self.rotary_theta,
            d_rotary=self.d_rotary,
            scaling=self.rotary_scaling,
        )


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
    missing = [name for name in required(kind) if name not in rest]
    if missing:
        raise InputError(f"a {family} model also needs {', '.join(missing)}.")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in rest.items()})


def config_class(family: str) -> type[ModelConfig]:
    """The configuration class of a family, loaded when it is first needed."""
    entry = FAMILIES[family]
    return getattr(import_module(entry.module), entry.config)


def required(kind: type[ModelConfig]) -> list[str]:
    """The fields that have no default."""
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


def check_pad(config: ModelConfig, n_vocab: int) -> None:
    """Refuse a padding token that is not in the vocabulary."""
    pad_id = getattr(config, "pad_id", 0)
    if not 0 <= pad_id < n_vocab:
        raise InputError(
            f"pad_id is {pad_id}, but the vocabulary has {n_vocab} tokens, 0 to {n_vocab - 1}."
        )


def check_choice(config: ModelConfig, name: str, choices: Sequence[str]) -> None:
    """Refuse a name that is not one of these."""
    value = getattr(config, name)
    if value not in choices:
        raise UnknownNameError(
            f"{name} is {value!r}, which is none of {', '.join(choices)}; "
            f"{nearest(str(value), choices)}."
        )


def check_causal(config: "StackConfig") -> None:
    """Refuse a decoder made of attention that would see the future."""
    if config.attention in NOT_CAUSAL:
        raise InputError(
            f"{config.attention} attention mixes all positions, so a decoder made of it would see "
            "the future: choose another form of attention."
        )


def check_heads(config: StackConfig) -> None:
    """Refuse heads that cannot share the width, or the key/value heads, evenly."""
    d_model, n_heads, n_kv_heads = config.d_model, config.n_heads, config.n_kv_heads
    if config.d_k is None and d_model % n_heads:
        raise InputError(
            f"d_model is {d_model}, which {n_heads} heads cannot share evenly; choose n_heads that "
            f"divides {d_model}, or give d_k."
        )
    if n_kv_heads is not None and n_heads % n_kv_heads:
        raise InputError(
            f"n_kv_heads is {n_kv_heads}, which does not divide the {n_heads} heads; choose one "
            "that does."
        )


def check_positions(config: StackConfig) -> None:
    """Refuse positions that this model's attention cannot have."""
    if config.positions == "alibi" and config.attention != "exact":
        raise InputError(
            f"positions are 'alibi', which change the scores of single pairs; {config.attention} "
            "attention never computes those. Choose other positions, or attention 'exact'."
        )
    if config.positions == "rotary":
        d_k = config.d_k or config.d_model // config.n_heads
        d_rotary = config.d_rotary or d_k
        if d_rotary % 2 or d_rotary > d_k:
            raise InputError(
                f"rotary positions cannot turn {d_rotary} of a head's {d_k} numbers; they turn "
                f"pairs, so choose an even d_rotary up to {d_k}."
            )
    if config.rotary_scaling is not None:
        factor, low, high, original = config.rotary_scaling
        if not (factor >= 1 and 0 < low < high and original >= 1):
            raise InputError(
                f"rotary_scaling is {config.rotary_scaling}; it is (factor, low, high, original "
                "length) with a factor of 1 or more and low smaller than high."
            )


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple) or len(value) != len(parts):
            return False
        return all(_fits(one, part) for one, part in zip(value, parts, strict=True))
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


def build(config: ModelConfig) -> nn.Module:
    """A fresh model of the configuration's family."""
    entry = FAMILIES[config.family]
    return getattr(import_module(entry.module), entry.model)(config)


def build_on_meta(config: ModelConfig) -> nn.Module:
    """The model without its numbers: weights that have a shape, but take no room and no time."""
    with torch.device("meta"), _NoNumbers():
        return build(config)


class _NoNumbers(TorchFunctionMode):
    """Leaves out what fills weights with numbers.

    Weights without room have none to fill, and torch would load its compiler to find that out.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        options = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return options["tensor"] if "tensor" in options else args[0]
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0]
        if func is torch.randn:
            return torch.empty(*args, **{k: v for k, v in options.items() if k != "generator"})
        return func(*args, **options)
