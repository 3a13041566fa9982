"""Model configurations, the models built from them, and weights in safetensors files."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.multi_head import check_heads
from regard.errors import (
    FileError,
    InputError,
    UnknownNameError,
    check_choice,
    check_counts,
    check_field_types,
    check_probabilities,
    nearest,
)
from regard.files import map_tensors
from regard.layers.attention_forms import NOT_CAUSAL
from regard.layers.embedding import (
    LAYOUTS,
    POSITIONS,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from regard.layers.feed_forward import ACTIVATIONS
from regard.layers.stack import INITIALIZATIONS, NORMS, LayerConfig

FAMILIES = {
    "transformer": "Transformer",
    "seq2seq": "Seq2Seq",
    "encoder": "Encoder",
    "decoder": "Decoder",
    "vision": "Vision",
}
"""The modules of `regard.models`, each with its class; the configuration is that plus Config."""
POOLERS = ("none", "tanh", "relu")
"""Activations of the linear layer on the vector of a whole text or image."""


def _most(name: str) -> int:
    """Return the largest value of a setting, so that a damaged file cannot ask for everything."""
    if name.endswith("layers"):
        return 1024
    return 16_384 if name in ("image_size", "patch_size", "n_channels") else 2**24


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of every family's configuration: typed fields, and a dictionary that JSON can hold."""

    family: ClassVar[str]

    def __post_init__(self) -> None:
        check_field_types(self, where=f"in a {self.family} model ")
        for field in fields(self):
            value, most = getattr(self, field.name), _most(field.name)
            if isinstance(value, int) and value > most:
                raise InputError(f"{field.name} is {value}; it must be at most {most:,}.")

    def check_counts(self, *names: str) -> None:
        """Refuse a count or width below 1 in these fields."""
        check_counts(**{name: getattr(self, name) for name in names})

    def to_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # none is nested
        return {"family": self.family, **values}


@dataclass(frozen=True, kw_only=True)
class StackConfig(ModelConfig, LayerConfig):
    """Settings of the text models that are made of stacks of layers."""

    dropout: float = 0.1
    positions: str = "sinusoidal"
    position_layout: str = "interleaved"
    """Order of sines and cosines: interleaved, or in halves as in Marian."""
    max_positions: int = 512  # number of learned positions, and the longest input of a Linformer
    rotary_theta: float = 10000.0
    d_rotary: int | None = None  # numbers of a head that rotary positions rotate; all by default
    rotary_scaling: tuple[float, float, float, float] | None = None
    """Llama 3.1's factor, low, high and original length."""
    initialization: str = "xavier_uniform"
    pad_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self)
        self.check_counts("max_positions", "d_rotary")
        check_choice("positions", self.positions, POSITIONS)
        check_choice("position_layout", self.position_layout, LAYOUTS)
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        _check_positions(self)

    @property
    def alibi(self) -> bool:
        return self.positions == "alibi"

    @property
    def n_tokens(self) -> int:
        return self.max_positions

    @property
    def plain_heads(self) -> bool:
        """True if heads share d_model evenly, each with its own keys and values."""
        d_k = self.d_model // self.n_heads
        plain = self.d_k in (None, d_k) and self.d_v in (None, d_k)
        return plain and self.n_kv_heads in (None, self.n_heads)

    def make_positions(self) -> SinusoidalPositions | LearnedPositions | None:
        """Build the positions that are added to token embeddings, if any."""
        if self.positions == "sinusoidal":
            return SinusoidalPositions(self.d_model, layout=self.position_layout)
        learned = self.positions == "learned"
        return LearnedPositions(self.max_positions, self.d_model) if learned else None

    def make_rotary(self) -> RotaryPositions | None:
        """Build the rotation of queries and keys, if positions are rotary."""
        if self.positions != "rotary":
            return None
        return RotaryPositions(
            self.d_head,
            theta=self.rotary_theta,
            d_rotary=self.d_rotary,
            scaling=self.rotary_scaling,
        )


def config_from_dict(given: Mapping[str, Any]) -> ModelConfig:
    """Build the configuration from a dictionary such as `to_dict` returns."""
    rest = dict(given)
    family = rest.pop("family", None)
    check_choice("family", family, FAMILIES)
    kind = config_class(family)
    known = {field.name: field for field in fields(kind)}
    for name in rest:
        if name not in known:
            hint = nearest(name, known)
            raise UnknownNameError(f"a {family} model has no setting {name!r}; {hint}.")
    required = (name for name, field in known.items() if field.default is MISSING)
    missing = [name for name in required if name not in rest]
    if missing:
        raise InputError(f"a {family} model also needs {', '.join(missing)}.")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in rest.items()})


def config_class(family: str) -> type[ModelConfig]:
    """Return the configuration class of a family, imported on first use."""
    return getattr(import_module(f"regard.models.{family}"), f"{FAMILIES[family]}Config")


def check_layers(config: Any) -> None:
    """Refuse settings of which no layer can be made."""
    config.check_counts("d_model", "d_ff", "d_k", "d_v", "attention_size", "attention_dilation")
    config.check_counts("attention_rounds", "attention_chunk")
    check_heads(config.d_model, config.n_heads, d_k=config.d_k, n_kv_heads=config.n_kv_heads)
    dropouts = ("dropout", "attention_dropout", "activation_dropout")
    check_probabilities(**{name: getattr(config, name) for name in dropouts})
    check_choice("norm", config.norm, ("post", "pre"))
    check_choice("norm_kind", config.norm_kind, NORMS)
    check_choice("activation", config.activation, ACTIVATIONS)
    config.check_attention()
    if not config.norm_eps > 0:
        raise InputError(f"norm_eps is {config.norm_eps}; it must be larger than 0.")


def check_pad(pad_id: int, n_vocab: int) -> None:
    """Refuse a padding token that is not in the vocabulary."""
    if not 0 <= pad_id < n_vocab:
        last = n_vocab - 1
        raise InputError(
            f"pad_id is {pad_id}, but the vocabulary has {n_vocab} tokens, 0 to {last}."
        )


def check_causal(config: StackConfig) -> None:
    """Refuse a decoder made of attention that would see the future."""
    if config.attention in NOT_CAUSAL:
        raise InputError(
            f"{config.attention} attention mixes all positions, so a decoder made of it would see "
            "the future: choose another form of attention."
        )


def _check_positions(config: StackConfig) -> None:
    if config.positions == "alibi" and config.attention != "exact":
        raise InputError(
            f"positions are 'alibi', which change the scores of single pairs; {config.attention} "
            "attention never computes those: choose other positions, or attention 'exact'."
        )
    config.make_rotary()  # refuses an impossible d_rotary
    if not config.rotary_theta > 0:
        raise InputError(f"rotary_theta is {config.rotary_theta}; it must be larger than 0.")
    if config.rotary_scaling is not None:
        factor, low, high, original = config.rotary_scaling
        if not (factor >= 1 and 0 < low < high and original >= 1):
            raise InputError(
                f"rotary_scaling is {config.rotary_scaling}; it is (factor, low, high, original "
                "length) with a factor of 1 or more and low smaller than high."
            )


def build(config: ModelConfig | Mapping[str, Any]) -> nn.Module:
    """Build a model with fresh weights from a configuration, or from a dictionary of one."""
    if isinstance(config, Mapping):
        config = config_from_dict(config)
    if not isinstance(config, ModelConfig):
        raise InputError(f"a {type(config).__name__} is not a configuration: give a dictionary.")
    module = import_module(f"regard.models.{config.family}")
    return getattr(module, FAMILIES[config.family])(config)


def build_on_meta(config: ModelConfig) -> nn.Module:
    """Build the model on the meta device: weights have shapes, but take no memory and no time."""
    with torch.device("meta"), _SkipInitialization():
        return build(config)


class _SkipInitialization(TorchFunctionMode):
    """Skip the functions that fill weights.

    Weights on the meta device have no numbers, and torch would import its compiler to find out.
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


STORED = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""The dtypes that weights can be stored in."""


def write_weights(file: Path, model: nn.Module, *, dtype: str | None = None) -> None:
    """Write all weights, converted to `dtype` if given."""
    if dtype is not None and dtype not in STORED:
        raise InputError(f"weights can be stored as {', '.join(STORED)}, not as {dtype!r}.")
    wanted = None if dtype is None else STORED[dtype]
    tensors = {
        name: weight.detach().cpu().to(wanted or weight.dtype).contiguous()
        for name, weight in model.state_dict().items()
    }
    for name, weight in tensors.items():
        if dtype == "float16" and not torch.isfinite(weight).all():
            raise InputError(f"{name} has numbers out of the range of float16: use another dtype.")
    try:
        save_file(tensors, file, metadata={"format": "pt"})
    except SafetensorError as error:
        raise FileError(f"{file} cannot be written ({error}).") from error


def read_weights(file: Path) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file, by name; they are mapped, not copied."""
    return {name: _as_tensor(file, name, *stored) for name, stored in map_tensors(file).items()}


def _as_tensor(file: Path, name: str, kind: str, array: np.ndarray) -> Tensor:
    if array.dtype == np.uint8 and kind != "U8":
        raise FileError(f"{name} in {file} is stored as {kind}, which regard does not read.")
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if kind == "BF16" else tensor


def build_from_weights(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    *,
    dtype: torch.dtype | None = torch.float32,
    source: str | Path,
) -> nn.Module:
    """Build the model with these weights, in eval mode; a dtype of None keeps the stored one."""
    model = build_on_meta(config)  # weights that are replaced need no memory
    wanted = model.state_dict()
    _check_fit(weights, wanted, source)
    own = {name: weights[name].to(dtype or weights[name].dtype) for name in wanted}
    model.load_state_dict(own, assign=True)
    return model.eval()


def weights_state(module: nn.Module, samples: dict[int, np.ndarray]) -> tuple[Any, ...]:
    """Return a value that changes when weights of a module are written to or replaced.

    What is written through `weight.data` or NumPy has no new version in torch, so a few numbers of
    each weight are part of the value. Other numbers of a weight may be changed that way unnoticed.

    Args:
        samples: views of those numbers, by address: an empty dictionary at first.
    """
    weights, modules = [], [module]
    while modules:  # several times as fast as parameters(), for every short answer
        inner = modules.pop()
        weights += [one for one in inner._parameters.values() if one is not None]
        modules += [one for one in inner._modules.values() if one is not None]
    places = [one.data_ptr() for one in weights]
    if not samples.keys() >= set(places):
        samples.clear()
        samples |= zip(places, map(_sample, weights), strict=True)
    versions = [0 if one.is_inference() else one._version for one in weights]
    return (*places, *versions, b"".join(samples[place].tobytes() for place in places))


def _sample(weight: Tensor) -> np.ndarray:
    """Return a view of eight numbers of a weight, as integers; none if it is not in main memory."""
    kind = _INTEGERS.get(weight.element_size())
    stored = weight.layout == torch.strided and not weight.is_quantized and weight.numel()
    if weight.device.type != "cpu" or kind is None or not stored:
        return np.empty(0, np.uint8)
    size = (weight.storage_offset() + weight.numel()) * weight.element_size()
    if weight.untyped_storage().nbytes() < size:  # expanded from fewer numbers
        return np.empty(0, np.uint8)
    step = max(weight.numel() // 8 - 1, 1)  # different columns of most matrices
    return weight.detach().as_strided((min(8, weight.numel()),), (step,)).view(kind).numpy()


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _check_fit(
    weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: str | Path
) -> None:
    for name in wanted:
        if name not in weights:
            raise FileError(f"{source} has no weights {name!r}, {_MIXED}.")
        given, right = tuple(weights[name].shape), tuple(wanted[name].shape)
        if given != right:
            raise FileError(
                f"{name} in {source} has the shape {given}, but the configuration needs {right}, "
                f"{_MIXED}."
            )
        if not weights[name].is_floating_point():
            raise FileError(f"{name} in {source} holds {weights[name].dtype}, {_MIXED}.")
    for name in weights:
        if name not in wanted:
            raise FileError(f"{source} has weights {name!r} that the model does not, {_MIXED}.")


_MIXED = "so it belongs to another configuration: download the folder again, or save it again"


def describe_size(module: nn.Module, dtype: str | None = None) -> str:
    """Return the number of parameters and of bytes, as text."""
    weights = list(module.parameters())
    each = None if dtype is None else getattr(torch, dtype).itemsize
    n_bytes = sum(weight.numel() * (each or weight.element_size()) for weight in weights)
    size = f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"
    return f"{sum(w.numel() for w in weights):,} parameters, {size}"
