"""Arrays on their way to the page: every binary answer is one safetensors file.

It says itself what is in it (names, shapes, types), `safetensors.numpy.load` reads it in a script,
and a page needs ten lines to. What is no array stands in its metadata.

Bytes of a "root" array are 255 · √weight: tones follow the root, as areas of circles do, so small
weights keep their tone. Bytes of a "linear" array go from 1 (its `low`) to 255 (its `high`); 0 is
-inf.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from safetensors.numpy import save
from torch import Tensor

from regard.errors import InputError

MEDIA_TYPE = "application/octet-stream"
DTYPES = ("float32", "float16", "uint8")


def packed(
    arrays: Mapping[str, Tensor | np.ndarray], about: Mapping[str, Any] | None = None
) -> bytes:
    """Arrays and what is to be said about them, as a safetensors file."""
    plain = {name: np.ascontiguousarray(_plain(array)) for name, array in arrays.items()}
    said = {name: str(value) for name, value in (about or {}).items()}
    return save(plain, metadata=said or None)  # of nothing and no words it would write no JSON


def roots(weights: Tensor) -> np.ndarray:
    """Weights between 0 and 1 as bytes: 255 · √weight."""
    return (weights.clamp(0, 1).sqrt() * 255).round().byte().numpy()


def reduced(table: Tensor, dtype: str) -> tuple[np.ndarray, dict[str, Any]]:
    """A table in the type that was asked for, and what is to be known to read it."""
    if dtype not in DTYPES:
        raise InputError(f"numbers are sent as {', '.join(DTYPES)}, not {dtype!r}.")
    if dtype == "uint8":
        return _linear(table)
    plain = table.float().numpy()
    return plain.astype(np.float16 if dtype == "float16" else np.float32), {}


def _linear(table: Tensor) -> tuple[np.ndarray, dict[str, Any]]:
    seen = table[table > -inf]
    low, high = (seen.min().item(), seen.max().item()) if len(seen) else (0.0, 0.0)
    steps = (table - low) / ((high - low) or 1.0) * 254 + 1
    coded = steps.masked_fill(table == -inf, 0).round().clamp(0, 255).byte().numpy()
    return coded, {"coding": "linear", "low": low, "high": high}


def _plain(array: Tensor | np.ndarray) -> np.ndarray:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array
