"""Parts of tables and small pictures of whole ones, of traces of any length.

A part of a few million cells is computed when it is asked for. A larger one is read off a pooled
level: each of its cells is the largest number of a block of the table, and it is computed once for
each head somebody opens. Pictures of long texts take some queries of each band instead of all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.serve.wire import roots
from regard.trace.site import Site

STAGES = ("scores", "masked", "weights")
DIRECT = 2_000_000
"""Cells of a table that are computed for one answer."""
_STRIP = 4_000_000
"""Cells of a table that are held at once while all of it is looked at."""
MOST_BINS = 2048
"""Rows and columns of an answer, and of a pooled level."""
LARGEST_PICTURE = 256


@dataclass(frozen=True)
class Span:
    """Positions from `start` up to `stop`, told in at most `bins` cells."""

    start: int
    stop: int
    bins: int

    def __len__(self) -> int:
        return self.stop - self.start

    def checked(self, n: int, what: str) -> "Span":
        """The span itself, if there are such positions."""
        if not 0 <= self.start < self.stop <= n:
            raise InputError(
                f"{what} {self.start} to {self.stop} were asked for; there are {n}: ask for a "
                f"start below its stop, within 0 to {n}."
            )
        if not 1 <= self.bins <= MOST_BINS:
            raise InputError(f"{self.bins} bins were asked for; ask for 1 to {MOST_BINS}.")
        return Span(self.start, self.stop, min(self.bins, len(self)))

    def edges(self) -> Tensor:
        """Where each bin begins, and where the last one ends."""
        steps = torch.arange(self.bins + 1) * len(self)
        return self.start + (steps + self.bins - 1) // self.bins


@dataclass(frozen=True)
class Level:
    """A table told in blocks: each cell is the largest number of block × block of its cells."""

    table: Tensor
    block: int

    def part(self, rows: Span, columns: Span) -> Tensor:
        """Part of the table, pooled; a bin takes every block that it touches."""
        part = self.table
        for axis, span in enumerate((rows, columns)):
            edges = span.edges()
            first, last = edges[:-1] // self.block, -(-edges[1:] // self.block)
            part = _largest(part, first, last, axis)
        return part


def tile(site: Site, head: int, stage: str, rows: Span, columns: Span) -> Tensor:
    """Part of one head's table, each cell the largest of those it covers."""
    found = _stage(site, stage, head, (rows.start, rows.stop), (columns.start, columns.stop))
    return pooled(found, rows.bins, columns.bins)


def is_direct(rows: Span, columns: Span) -> bool:
    """Whether a part is small enough to be computed at once."""
    return len(rows) * len(columns) <= DIRECT


def build_level(site: Site, head: int, stage: str, *, check: Callable[[], None]) -> Level:
    """The finest pooled level of a head's table, computed strip by strip.

    Args:
        check: called between strips; it raises if nobody waits any more.
    """
    block = 2
    while max(site.n_query, site.n_key) > block * MOST_BINS:
        block *= 2
    height = max(block, _STRIP // site.n_key // block * block)
    columns = (site.n_key + block - 1) // block
    strips = []
    for first in range(0, site.n_query, height):
        check()
        strip = _stage(site, stage, head, (first, min(first + height, site.n_query)), None)
        strips.append(pooled(strip, ceil(len(strip) / block), columns, block=block))
    return Level(torch.cat(strips), block)


def pooled(table: Tensor, rows: int, columns: int, *, block: int | None = None) -> Tensor:
    """A table in fewer rows and columns, each cell the largest of those it covers."""
    for axis, bins in enumerate((rows, columns)):
        n = table.size(axis)
        if bins < n:
            edges = torch.arange(bins + 1)
            edges = (edges * block).clamp(max=n) if block else -(-edges * n // bins)
            table = _largest(table, edges[:-1], edges[1:], axis)
    return table


def thumbnails(site: Site, size: int, *, check: Callable[[], None]) -> np.ndarray:
    """A picture of every head's weights as bytes, head × row × column: means, as roots."""
    if not 1 <= size <= LARGEST_PICTURE:
        raise InputError(f"a thumbnail has 1 to {LARGEST_PICTURE} rows, not {size}.")
    rows = Span(0, site.n_query, min(size, site.n_query)).edges()
    columns = Span(0, site.n_key, min(size, site.n_key)).edges()
    picked = _sample(rows, max(1, _STRIP // site.n_key // size))
    across, down = _means(columns, torch.arange(site.n_key)), _means(rows, picked)
    pictures = []
    for head in range(site.n_heads):
        check()
        weights = site.weights(head if site.lead else None, rows=picked).float().clamp(min=0)
        pictures.append(down @ weights @ across.T)
    return roots(torch.stack(pictures))


def _stage(
    site: Site, stage: str, head: int, rows: tuple[int, int], columns: tuple[int, int] | None
) -> Tensor:
    if stage not in STAGES:
        raise InputError(f"the stages of attention are {', '.join(STAGES)}, not {stage!r}.")
    place = head if site.lead else None
    return getattr(site, stage)(place, rows=rows, columns=columns).float()


def _largest(table: Tensor, first: Tensor, last: Tensor, axis: int) -> Tensor:
    """The largest of rows (or columns) first to last, for each pair of those."""
    if int((last - first).max()) == 1:
        return table.index_select(axis, first)
    most = int((last - first).max())
    found = table.index_select(axis, first)
    for step in range(1, most):
        # a bin that is shorter than others takes its last one again
        found = torch.maximum(found, table.index_select(axis, (first + step).minimum(last - 1)))
    return found


def _sample(edges: Tensor, most: int) -> Tensor:
    """At most so many positions of each band, evenly spread."""
    bands = (torch.arange(a, b) for a, b in pairwise(edges.tolist()))
    every = [band[:: max(1, ceil(len(band) / most))] for band in bands]
    return torch.cat(every)


def _means(edges: Tensor, positions: Tensor) -> Tensor:
    """The matrix that takes the mean over the positions of each band."""
    band = torch.bucketize(positions, edges[1:], right=True)
    member = torch.nn.functional.one_hot(band, len(edges) - 1).T.float()
    return member / member.sum(1, keepdim=True)
