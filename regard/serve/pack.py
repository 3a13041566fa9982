"""Arrays as text for a page: rounded if need be, their bytes sorted by place, deflated, base64."""

import zlib
from base64 import b64encode
from dataclasses import dataclass
from math import log2
from typing import Any, Literal

import numpy as np

_ROOM = {"float32": 4 * 0.86, "float16": 2 * 0.86}
_MOST = 65504.0
"""The largest number of 16 bits."""


@dataclass(frozen=True)
class Steps:
    """Numbers as counts of steps, at most `most`; each row of an array has its own step."""

    most: int


Kind = Literal["float32", "float16"] | Steps
"""How numbers are kept, from exact to coarse."""


def pack(array: np.ndarray, kind: Kind) -> dict[str, Any]:
    """An array as the page's `unpack` reads it."""
    name = "uint8" if array.dtype == np.uint8 else "int8" if isinstance(kind, Steps) else kind
    if name == "uint8":
        data = array.tobytes()
    elif isinstance(kind, Steps):
        data = _counts(array, kind.most)
    elif kind == "float16":
        data = _by_place(array.clip(-_MOST, _MOST).astype("<f2"))
    else:
        data = _by_place(array.astype("<f4"))
    # Counts hardly ever repeat, so looking for repetitions costs time and gives nothing.
    way = zlib.Z_HUFFMAN_ONLY if isinstance(kind, Steps) else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, way)
    deflated = packer.compress(data) + packer.flush()
    return {"dtype": name, "shape": list(array.shape), "data": b64encode(deflated).decode()}


def least_size(array: np.ndarray, kind: Kind) -> float:
    """How many bytes `pack` will need at least, or a little less."""
    if array.dtype == np.uint8:
        return 0.0
    room = log2(2 * kind.most) * 0.95 / 8 if isinstance(kind, Steps) else _ROOM[kind]
    return array.size * room * 4 / 3


def _by_place(array: np.ndarray) -> bytes:
    """All first bytes, then all second ones, …: signs and exponents are alike, so they deflate."""
    return array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _counts(array: np.ndarray, most: int) -> bytes:
    rows = array.reshape(-1, array.shape[-1])
    step = (np.abs(rows).max(axis=1, keepdims=True) / most).astype("<f2").astype(np.float32)
    counts = np.rint(rows / np.where(step == 0, 1, step)).clip(-127, 127).astype(np.int8)
    return _by_place(step.astype("<f2")) + counts.tobytes()
