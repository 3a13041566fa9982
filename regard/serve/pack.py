"""Arrays as text for a page: rounded if need be, their bytes sorted by place, deflated, base64."""

import zlib
from base64 import b64encode
from typing import Any

import numpy as np

DTYPES = ("float32", "float16", "int8")
"""From exact to coarse. "int8" counts in steps, one step size for each row of an array."""
_ROOM = {"float32": 4 * 0.93, "float16": 2 * 0.93, "int8": 1.12, "uint8": 0.5}
_MOST = 65504.0
"""The largest number of 16 bits."""


def pack(array: np.ndarray, dtype: str) -> dict[str, Any]:
    """An array as the page's `unpack` reads it."""
    if array.dtype == np.uint8:
        dtype, data = "uint8", array.tobytes()
    elif dtype == "int8":
        data = _steps(array)
    elif dtype == "float16":
        data = _by_place(array.clip(-_MOST, _MOST).astype("<f2"))
    else:
        data = _by_place(array.astype("<f4"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = packer.compress(data) + packer.flush()
    return {"dtype": dtype, "shape": list(array.shape), "data": b64encode(deflated).decode()}


def estimated_size(array: np.ndarray, dtype: str) -> float:
    """About how many bytes `pack` will need."""
    dtype = "uint8" if array.dtype == np.uint8 else dtype
    return array.size * _ROOM[dtype] * 4 / 3 + 60


def _by_place(array: np.ndarray) -> bytes:
    """All first bytes, then all second ones, …: signs and exponents are alike, so they deflate."""
    return array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _steps(array: np.ndarray) -> bytes:
    rows = array.reshape(-1, array.shape[-1])
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    whole = np.rint(rows / np.where(step == 0, 1, step)).astype(np.int8)
    return _by_place(step.astype("<f4")) + whole.tobytes()
