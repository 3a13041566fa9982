"""Arrays of the API: safetensors files, and tiles of attention tables of any length."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from regard.server.error_codes import ApiError
from regard.server.settings import LIMITS
from regard.trace.site import Site

Stage = Literal["scores", "masked", "weights"]
Arrays = Mapping[str, Tensor | np.ndarray]
DType = Literal["float32", "float16", "uint8"]
_STRIP_CELLS = 4_000_000  # cells of a table that are in memory at once while all of it is pooled


def to_safetensors(arrays: Arrays, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return arrays and metadata as a safetensors file."""
    plain = {
        name: np.ascontiguousarray(x.detach().cpu() if isinstance(x, Tensor) else x)
        for name, x in arrays.items()
    }
    texts = {name: str(value) for name, value in (metadata or {}).items()}
    return save(plain, metadata=texts or None)


def encode_table(table: Tensor, dtype: DType) -> tuple[np.ndarray, dict[str, Any]]:
    """Return a table in a dtype, and the metadata needed to decode it.

    Bytes encode -inf as 0 and the range from `low` to `high` linearly as 1 to 255.
    """
    if dtype != "uint8":
        return table.float().numpy().astype(dtype), {}
    finite = table[table > -inf]
    low, high = (finite.min().item(), finite.max().item()) if len(finite) else (0.0, 0.0)
    levels = (table - low) / ((high - low) or 1.0) * 254 + 1
    encoded = levels.masked_fill(table == -inf, 0).round().clamp(0, 255).byte().numpy()
    return encoded, {"coding": "linear", "low": low, "high": high}


@dataclass(frozen=True)
class IndexRange:
    """Positions from `start` to `stop`, exclusive, pooled into at most `bins` cells."""

    start: int
    stop: int
    bins: int

    def __len__(self) -> int:
        return self.stop - self.start

    @classmethod
    def checked(cls, axis: str, start: int, stop: int, bins: int, n: int) -> "IndexRange":
        """Return a range with at most one bin per position; refuse one outside 0 to `n`."""
        if not 0 <= start < stop <= n:
            raise ApiError("invalid_range", axis=axis, start=start, stop=stop, count=n)
        return cls(start, stop, min(bins, stop - start))

    def edges(self) -> Tensor:
        """Return the start of each bin, and the end of the last."""
        steps = torch.arange(self.bins + 1) * len(self)
        return self.start + (steps + self.bins - 1) // self.bins


@dataclass(frozen=True)
class PooledTable:
    """A table in which each cell is the maximum of block × block cells."""

    table: Tensor
    block: int

    def tile(self, rows: IndexRange, columns: IndexRange) -> Tensor:
        """Return part of the table; a bin covers every block that it touches."""
        part = self.table
        for axis, span in enumerate((rows, columns)):
            edges = span.edges()
            first, last = edges[:-1] // self.block, -(-edges[1:] // self.block)
            part = _segment_max(part, first, last, axis)
        return part


def is_direct(rows: IndexRange, columns: IndexRange) -> bool:
    """Return True if a tile is small enough to be computed without a pooled table."""
    return len(rows) * len(columns) <= 2_000_000


def tile(site: Site, head: int, stage: Stage, rows: IndexRange, columns: IndexRange) -> Tensor:
    """Compute part of one head's table; each cell is the maximum of the cells it covers."""
    spans = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    return max_pool(_table(site, head, stage, *spans), rows.bins, columns.bins)


def pool_table(site: Site, head: int, stage: Stage, *, check: Callable[[], None]) -> PooledTable:
    """Pool one head's whole table in strips; `check` raises before one if the job was canceled."""
    block = 2
    while max(site.n_query, site.n_key) > block * LIMITS.bins:
        block *= 2
    height = max(block, _STRIP_CELLS // site.n_key // block * block)
    strips = []
    for first in range(0, site.n_query, height):
        check()
        strip = _table(site, head, stage, slice(first, first + height), None)
        for axis in (0, 1):
            edges = torch.arange(ceil(strip.size(axis) / block) + 1) * block
            edges = edges.clamp(max=strip.size(axis))
            strip = _segment_max(strip, edges[:-1], edges[1:], axis)
        strips.append(strip)
    return PooledTable(torch.cat(strips), block)


def max_pool(table: Tensor, rows: int, columns: int) -> Tensor:
    """Pool a table into at most this many rows and columns."""
    for axis, bins in enumerate((rows, columns)):
        if bins < table.size(axis):
            edges = IndexRange(0, table.size(axis), bins).edges()
            table = _segment_max(table, edges[:-1], edges[1:], axis)
    return table


def _table(site: Site, head: int, stage: Stage, rows: slice, columns: slice | None) -> Tensor:
    return getattr(site, stage)(head, rows=rows, columns=columns).float()


def _segment_max(table: Tensor, first: Tensor, last: Tensor, axis: int) -> Tensor:
    """Return the maximum of rows (or columns) `first` to `last`, exclusive, for each pair."""
    found = table.index_select(axis, first)
    for step in range(1, int((last - first).max())):
        # a shorter segment takes its last row again
        found = torch.maximum(found, table.index_select(axis, (first + step).minimum(last - 1)))
    return found
