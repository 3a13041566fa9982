"""The image that a vision model read, put together again from the patches it was cut into."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from regard.trace.trace import Trace

_PATCHES = "encoder.embedding.patches"


def picture(trace: Trace, add: Callable[..., str], *, batch: int = 0) -> dict[str, Any] | None:
    """How patches lie on the image, with its pixels added as bytes; None if there is no image."""
    patches, bundle = trace.values.get(_PATCHES), trace.origin
    if patches is None or bundle is None:
        return None
    config = bundle.config
    size, n_channels = config.patch_size, config.n_channels
    n_rows, n_columns = _grid(trace, patches.size(-2))
    pixels = _joined(patches[batch], (n_rows, n_columns), size, n_channels)
    coloured = _coloured(pixels, bundle.pixels)
    return {
        "n_rows": n_rows,
        "n_columns": n_columns,
        "patch_size": size,
        "first": len(trace.tokens["source"]) - n_rows * n_columns,
        "height": coloured.shape[0],
        "width": coloured.shape[1],
        "pixels": add("image", coloured, "pixels"),
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


def _coloured(pixels: np.ndarray, normalisation: Any) -> np.ndarray:
    """Bytes: height × width × 3, as they were before the model's normalisation."""
    if normalisation is not None:
        pixels = pixels * np.array(normalisation.deviation) + np.array(normalisation.mean)
    elif np.abs(pixels).max() <= 1.001:
        pixels = pixels / 2 + 0.5
    else:
        low, high = pixels.min(), pixels.max()
        pixels = (pixels - low) / max(high - low, 1e-9)
    seen = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    return (seen.clip(0, 1) * 255).round().astype(np.uint8)
