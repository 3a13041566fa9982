"""Weights of models in safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import FileError, InputError
from regard.models.config import ModelConfig, build_on_meta

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
    """Return all tensors of a safetensors file, by name."""
    try:
        return load_file(file)
    except SafetensorError as error:
        what = "damaged, truncated or of another kind" if file.stat().st_size else "empty"
        raise FileError(f"{file} is {what} ({error}): download or save it again.") from error
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}.") from error


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
    own = {name: weights[name].to(dtype or weights[name].dtype, copy=True) for name in wanted}
    model.load_state_dict(own, assign=True)
    return model.eval()


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
