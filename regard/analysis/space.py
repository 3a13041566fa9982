"""The image that a vision model read, put together again from the patches it was cut into."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis.heads import sides
from regard.analysis.steps import attention_module, norm_comes_first, vectors
from regard.errors import InputError
from regard.trace.trace import Trace

_FEWEST = 3
"""Words that span a plane."""


@dataclass(frozen=True)
class Space:
    """Vectors of the residual stream before and after one attention site, seen from one side."""

    before: Tensor
    """Token × axis."""
    after: Tensor
    """Before plus what all heads add."""
    arrows: Tensor
    """Head × token × axis: what each head adds. Empty without the model's weights."""
    rest: Tensor
    """Token × axis: what no head adds, the bias of the last linear layer."""
    share: list[float]
    """How much of the points' spread each axis shows."""


def has_space(trace: Trace, path: str) -> bool:
    """Whether the trace holds what stands before and after a site."""
    return all(f"{path}.{name}" in trace.values for name in ("output", "residual"))


def space(trace: Trace, path: str, *, n_axes: int = 2, batch: int = 0) -> Space:
    """The tokens of a site in the plane in which words differ most, before and after attention.

    Special tokens often stand far from all words, and would leave no room for how those differ.
    The projection is linear and the same for points and arrows, so arrows add up as vectors do:
    before + the heads' arrows + rest = after.
    """
    if n_axes not in (2, 3):
        raise InputError(f"a space has 2 or 3 axes to look at, not {n_axes}.")
    output, residual = (_value(trace, f"{path}.{name}", batch) for name in ("output", "residual"))
    if norm_comes_first(trace, path) is False:
        before = _value(trace, f"{path}.input", batch)
    else:
        before = residual - output
    after = before + output
    told = _words(trace, path, len(before))
    points = torch.cat([before[told], after[told]])
    middle = points.mean(0)
    axes, share = _axes(points - middle, n_axes)
    arrows, rest = _arrows(trace, path, output, batch)
    return Space(
        (before - middle) @ axes, (after - middle) @ axes, arrows @ axes, rest @ axes, share
    )


def _words(trace: Trace, path: str, n: int) -> Tensor:
    """Which tokens are words, or parts of words; all where hardly any are."""
    words = trace.words.get(sides(path)[0], ())
    told = torch.tensor([word is not None for word in words], dtype=torch.bool)
    return told if len(told) == n and told.sum() >= _FEWEST else torch.ones(n, dtype=torch.bool)


def _arrows(trace: Trace, path: str, output: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    module, site = attention_module(trace, path), trace[path]
    if module is None:
        return output.new_zeros(0, *output.shape), output
    weight = module.to_output.weight.detach().double()
    parts = []
    for head in range(site.n_heads):
        context = site.context(head, batch=batch).double()
        width = vectors(site, "value", head, batch).size(-1)
        parts.append(context @ weight[:, head * width : (head + 1) * width].T)
    arrows = torch.stack(parts)
    return arrows, output - arrows.sum(0)


def _axes(points: Tensor, n_axes: int) -> tuple[Tensor, list[float]]:
    """The directions in which the points differ most, as columns, and their shares of it."""
    _, sizes, directions = torch.linalg.svd(points, full_matrices=False)
    n_axes = min(n_axes, len(sizes))
    total = float(sizes.square().sum()) or 1.0
    axes = directions[:n_axes].T
    # Which way an axis points is a matter of chance: the largest entry shall be positive.
    flips = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    share = [float(size) ** 2 / total for size in sizes[:n_axes]]
    return axes * torch.where(flips == 0, torch.ones_like(flips), flips), share


def _value(trace: Trace, path: str, batch: int) -> Tensor:
    value = trace.value(path).double()
    return value[batch] if value.dim() > 2 else value


_PATCHES = "encoder.embedding.patches"


def picture(trace: Trace, add: Callable[..., str], *, batch: int = 0) -> dict[str, Any] | None:
    """How patches lie on the image, with its pixels added as bytes; None if there is no image."""
    patches, model = trace.values.get(_PATCHES), trace.origin
    if patches is None or model is None:
        return None
    config = model.config
    size, n_channels = config.patch_size, config.n_channels
    n_rows, n_columns = _grid(trace, patches.size(-2))
    pixels = _joined(patches[batch], (n_rows, n_columns), size, n_channels)
    colored = _colored(pixels, model.pixels)
    return {
        "n_rows": n_rows,
        "n_columns": n_columns,
        "patch_size": size,
        "first": len(trace.tokens["source"]) - n_rows * n_columns,
        "height": colored.shape[0],
        "width": colored.shape[1],
        "pixels": add("image", colored, "pixels"),
    }


def _grid(trace: Trace, n_patches: int) -> tuple[int, int]:
    """Rows and columns of patches: the last patch's name says where it stands."""
    row, _, column = trace.tokens["source"][-1].partition(",")
    if row.isdigit() and column.isdigit() and (int(row) + 1) * (int(column) + 1) == n_patches:
        return int(row) + 1, int(column) + 1
    return 1, n_patches


def _joined(patches: Tensor, grid: tuple[int, int], size: int, n_channels: int) -> np.ndarray:
    """Height × width × channel."""
    parts = patches.detach().float().cpu().numpy().reshape(*grid, n_channels, size, size)
    high, wide = grid[0] * size, grid[1] * size
    return parts.transpose(0, 3, 1, 4, 2).reshape(high, wide, n_channels)


def _colored(pixels: np.ndarray, normalization: Any) -> np.ndarray:
    """Bytes: height × width × 3, as they were before the model's normalization."""
    if normalization is not None:
        pixels = pixels * np.array(normalization.deviation) + np.array(normalization.mean)
    elif np.abs(pixels).max() <= 1.001:
        pixels = pixels / 2 + 0.5
    else:
        low, high = pixels.min(), pixels.max()
        pixels = (pixels - low) / max(high - low, 1e-9)
    seen = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    return (seen.clip(0, 1) * 255).round().astype(np.uint8)
