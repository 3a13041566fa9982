"""A kept trace in the words of the page: what is small and asked for once, as JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil, inf, isfinite
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from regard.analysis.approximation import approximation
from regard.analysis.heads import readable
from regard.analysis.rollout import rollout
from regard.analysis.site_json import (
    describe_pattern,
    describe_site,
    head_arrays,
    mask_bits,
    mask_kind,
)
from regard.analysis.space import picture, space
from regard.analysis.steps import attention_module, projections, steps
from regard.errors import InputError
from regard.server.catalog import Entry
from regard.server.trace_store import Kept
from regard.trace.site import Site

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


Arrays = dict[str, Tensor | np.ndarray]
MOST_CELLS = 64_000_000
"""Cells of a table that is sent whole because it cannot be computed from vectors."""
_EXACT_UP_TO = 512
"""Rows of a rollout that is sent with all digits."""


def describe(kept: Kept, entry: Entry | None) -> dict[str, Any]:
    """Tokens, sites, where to begin, the answer: what is known without a look at every head."""
    trace = kept.trace
    shown = picture(trace, lambda name, value, kind: name)
    return {
        "id": kept.id,
        "asked": kept.asked,
        "title": entry.name if entry else "",
        "family": entry.described.family if entry else "",
        "task": entry.described.task if entry else "",
        "tokens": trace.tokens,
        "words": trace.words,
        "output": kept.answer["output"],
        "answer": kept.answer,
        "start": asdict(readable(trace)),
        "image": shown and {name: shown[name] for name in shown if name != "pixels"},
        "sites": [describe_site(trace, path) for path in trace],
    }


def pixels(kept: Kept) -> np.ndarray:
    """The picture that a model read, row × column × 3 bytes."""
    found: list[np.ndarray] = []
    picture(kept.trace, lambda name, value, kind: found.append(value) or name)
    if not found:
        raise InputError("this trace is of a text: it has no picture.")
    return found[0]


def head_vectors(site: Site, head: int) -> Arrays:
    """What the page computes a head's tables from; the mask as bits where it must be a table."""
    check_head(site, head)
    exact = hasattr(site.pattern, "similarity")
    if (site.changed or not exact) and site.n_query * site.n_key > MOST_CELLS:
        raise InputError(
            f"{site.path} is too long to send its weights whole ({site.n_query:,} × "
            f"{site.n_key:,}): ask for tiles."
        )
    found: Arrays = dict(head_arrays(site, head))
    if mask_kind(site) == "bits":
        found["allowed"] = mask_bits(site, head)[0]
    return found


def head_about(site: Site) -> dict[str, Any]:
    """How a head's tables follow from its vectors: edits change that, too."""
    return {"pattern": json.dumps(describe_pattern(site)), "mask": mask_kind(site)}


def step_arrays(kept: Kept, path: str, head: int, query: int, key: int) -> tuple[Arrays, dict]:
    """The way to one weight: vectors as arrays, single numbers beside them."""
    check_head(kept.trace[path], head)
    way = steps(kept.trace, path, head, query, key)
    parts = {
        name: value for name, value in vars(way).items() if name not in ("projections", "value")
    }
    arrays: Arrays = {name: x.float() for name, x in parts.items() if isinstance(x, Tensor)}
    numbers = {name: x for name, x in parts.items() if not isinstance(x, Tensor)}
    return arrays, {name: _number(x) for name, x in numbers.items()}


def projection_arrays(kept: Kept, path: str, head: int) -> Arrays:
    """The matrices that make this head's vectors, such as "query.weight" and "query.bias"."""
    check_head(kept.trace[path], head)
    module = attention_module(kept.trace, path)
    found: Arrays = {}
    for name, part in ({} if module is None else projections(module, head)).items():
        found[f"{name}.weight"] = part.weight.float()
        if part.bias is not None:
            found[f"{name}.bias"] = part.bias.float()
    return found


def space_arrays(kept: Kept, path: str, n_axes: int) -> tuple[Arrays, dict[str, Any]]:
    """The tokens of a site as points, and the arrows by which its heads move them."""
    seen = space(kept.trace, path, n_axes=n_axes)
    names = ("before", "after", "arrows", "rest")
    return {name: getattr(seen, name).float() for name in names}, {"share": seen.share}


def rollout_array(kept: Kept, path: str) -> Arrays:
    """What each token has of each token of the input, through all layers up to this one."""
    found = kept.work_out(("rollout", path), lambda: rollout(kept.trace, path))
    return {"rollout": found.to(torch.float32 if len(found) <= _EXACT_UP_TO else torch.float16)}


def exact_arrays(site: Site, head: int) -> tuple[Arrays, dict[str, Any]]:
    """The weights that an efficient form approximates, and how far its own are from them."""
    check_head(site, head)
    if site.n_query * site.n_key > MOST_CELLS // 16:
        raise InputError(
            f"{site.path} is too long to be compared with exact attention: shorten it."
        )
    found = approximation(site, head if site.lead else None)
    arrays: Arrays = {"exact": found.exact.float(), "variation": found.variation.float()}
    return arrays, {"largest": found.largest, "mean": found.mean}


def check_head(site: Site, head: int) -> None:
    """Refuse a head that is not there, before anything of it is looked at."""
    if head >= site.n_heads:
        raise InputError(
            f"{site.path} has no head {head}; it has {site.n_heads}, 0 to {site.n_heads - 1}."
        )


def _number(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return repr(value) if isfinite(value) else str(value)
