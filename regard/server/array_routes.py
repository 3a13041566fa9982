"""Routes that return arrays of a stored trace, and tiles of its tables, as safetensors files."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, isfinite
from typing import Annotated, Any, Literal

import numpy as np
import torch
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, NonNegativeInt
from safetensors.numpy import save
from torch import Tensor

from regard.analysis import heads, site_json
from regard.analysis import steps as analysis_steps
from regard.analysis.measurements import approximation
from regard.hardware import limit_threads
from regard.server.error_codes import ApiError
from regard.server.jobs import Job
from regard.server.service import Context, RequestContext, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.server.trace_routes import Sites, count_products
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
        return table.float().cpu().numpy().astype(dtype), {}
    finite = table[table > -inf]
    low, high = (finite.min().item(), finite.max().item()) if len(finite) else (0.0, 0.0)
    levels = (table - low) / ((high - low) or 1.0) * 254 + 1
    encoded = levels.masked_fill(table == -inf, 0).round().clamp(0, 255).byte().cpu().numpy()
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


def read_tile(site: Site, head: int, stage: Stage, rows: IndexRange, columns: IndexRange) -> Tensor:
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


_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(
    prefix="/api/trace/{id}", default_response_class=Response, responses={200: {"content": _FILE}}
)


class ArrayResponse(Response):
    """A safetensors file that depends on the address only."""

    def __init__(self, tables: Arrays, metadata: Mapping[str, Any] | None = None) -> None:
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        data = to_safetensors(tables, metadata)
        super().__init__(data, headers=headers, media_type="application/octet-stream")


def in_reader_thread(work: Callable[..., Response]) -> Callable[..., Any]:
    """Make a route of a function that runs in a reader thread, with its job if it takes one."""
    params = dict(inspect.signature(work).parameters)
    takes_job = params.pop("job", None) is not None

    async def route(context_: RequestContext, **given: Any) -> Response:
        return await context_.wait(lambda job: work(**given, **({"job": job} if takes_job else {})))

    context = inspect.Parameter("context_", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    signature = inspect.Signature([*params.values(), context], return_annotation=Response)
    route.__name__, route.__doc__ = work.__name__, work.__doc__
    route.__signature__ = signature  # type: ignore[attr-defined]
    return route


class HeadQuery(BaseModel):
    """A head of a site."""

    site: str
    head: NonNegativeInt = 0

    def of(self, stored: StoredTrace) -> Site:
        """Return the site, after a check that the head exists."""
        site = stored.trace[self.site]
        if self.head >= site.n_heads:
            raise ApiError("unknown_head", site=site.path, head=self.head, count=site.n_heads)
        return site


HeadParams = Annotated[HeadQuery, Query()]


@router.get("/thumbnails")
@in_reader_thread
def thumbnails(
    stored: Stored,
    job: Job,
    size: Annotated[int, Query(ge=1, le=LIMITS.thumbnail)] = 64,
    sites: Sites = [],  # noqa: B006
) -> Response:
    """Return thumbnails of all heads of the sites: head × row × column as 255 · √weight."""

    def compute(path: str) -> Tensor:
        return heads.weights_to_bytes(heads.thumbnails(stored.trace[path], size, check=job.check))

    with limit_threads(count_products(stored.trace)):
        found = {
            path: stored.cached(("thumbnails", path, size), partial(compute, path))
            for path in sites or stored.trace
        }
    return ArrayResponse(found, {"coding": "root"})


@router.get("/vectors")
@in_reader_thread
def vectors(query: HeadParams, stored: Stored) -> Response:
    """Return queries, keys and values of one head, and its mask as bits if it is irregular."""
    site = query.of(stored)
    is_exact = hasattr(site.pattern, "similarity")
    if (site.changed or not is_exact) and site.n_query * site.n_key > LIMITS.table_cells:
        raise ApiError("table_too_long", site=site.path, rows=site.n_query, columns=site.n_key)
    kind = site_json.mask_kind(site)
    bits = {"allowed": site_json.mask_bits(site, query.head)[0]} if kind == "bits" else {}
    metadata = {"pattern": json.dumps(site_json.describe_pattern(site)), "mask": kind}
    return ArrayResponse({**site_json.head_arrays(site, query.head), **bits}, metadata)


class TileQuery(HeadQuery):
    """Part of one head's table."""

    stage: Stage = "weights"
    dtype: DType = "float32"
    row_start: NonNegativeInt
    row_stop: NonNegativeInt
    row_bins: int = Field(default=LIMITS.bins, ge=1, le=LIMITS.bins)
    column_start: NonNegativeInt
    column_stop: NonNegativeInt
    column_bins: int = Field(default=LIMITS.bins, ge=1, le=LIMITS.bins)


@router.get("/tile")
@in_reader_thread
def tile(
    query: Annotated[TileQuery, Query()], stored: Stored, context: Context, job: Job
) -> Response:
    """Return part of one head's table; each cell is the maximum of the cells it covers."""
    site, head, stage = query.of(stored), query.head, query.stage
    rows = IndexRange.checked("rows", query.row_start, query.row_stop, query.row_bins, site.n_query)
    columns = IndexRange.checked(
        "columns", query.column_start, query.column_stop, query.column_bins, site.n_key
    )

    def pool() -> PooledTable:
        pooled = pool_table(site, head, stage, check=job.check)
        context.service.traces.grow(stored.id, pooled.table.nbytes)
        return pooled

    if is_direct(rows, columns):
        table = read_tile(site, head, stage, rows, columns)
    else:
        table = stored.cached(("pooled", site.path, head, stage), pool).tile(rows, columns)
    array, metadata = encode_table(table, query.dtype)
    return ArrayResponse({"tile": array}, metadata)


class CellQuery(HeadQuery):
    """One weight of a head."""

    query: NonNegativeInt
    key: NonNegativeInt


@router.get("/steps")
@in_reader_thread
def steps(query: Annotated[CellQuery, Query()], stored: Stored) -> Response:
    """Return every step from the inputs to one weight: vectors as arrays, numbers as metadata."""
    query.of(stored)
    found = analysis_steps.steps(stored.trace, query.site, query.head, query.query, query.key)
    parts = {n: x for n, x in vars(found).items() if n not in ("projections", "value")}
    vectors = {name: x.float() for name, x in parts.items() if isinstance(x, Tensor)}
    numbers = {name: _metadata(x) for name, x in parts.items() if name not in vectors}
    return ArrayResponse(vectors, numbers)


def _metadata(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return repr(value) if isfinite(value) else str(value)


@router.get("/projections")
@in_reader_thread
def projections(query: HeadParams, stored: Stored) -> Response:
    """Return the projection matrices of one head, such as "query.weight" and "query.bias"."""
    query.of(stored)
    module = analysis_steps.attention_module(stored.trace, query.site)
    found = {} if module is None else analysis_steps.projections(module, query.head)
    pairs = {f"{name}.{x}": getattr(found[name], x) for name in found for x in ("weight", "bias")}
    return ArrayResponse({name: x.float() for name, x in pairs.items() if x is not None})


@router.get("/space")
@in_reader_thread
def space(site: str, stored: Stored, axes: Annotated[int, Query(ge=2, le=3)] = 2) -> Response:
    """Return tokens as points before and after a site, and the arrows that its heads add."""
    found = analysis_steps.space(stored.trace, site, n_axes=axes)
    names = ("before", "after", "arrows", "rest")
    points = {name: getattr(found, name).float() for name in names}
    return ArrayResponse(points, {"share": found.share})


@router.get("/rollout")
@in_reader_thread
def rollout(site: str, stored: Stored) -> Response:
    """Return the attention rollout of all layers up to this site."""
    found = stored.cached(("rollout", site), lambda: heads.rollout(stored.trace, site))
    dtype = torch.float32 if len(found) <= 512 else torch.float16
    return ArrayResponse({"rollout": found.to(dtype)})


@router.get("/exact")
@in_reader_thread
def exact(query: HeadParams, stored: Stored) -> Response:
    """Return the exact weights that one head of an efficient form approximates."""
    site = query.of(stored)
    if site.n_query * site.n_key > LIMITS.exact_cells:
        raise ApiError("comparison_too_long", site=site.path)
    found = approximation(site, query.head if site.lead else None)
    tables = {"exact": found.exact.float(), "variation": found.variation.float()}
    return ArrayResponse(tables, {"largest": found.largest, "mean": found.mean})


@router.get("/pixels")
@in_reader_thread
def pixels(stored: Stored) -> Response:
    """Return the image that the model read, row × column × 3 bytes."""
    found: list[np.ndarray] = []
    site_json.describe_image(stored.trace, lambda name, value, kind: found.append(value) or name)
    if not found:
        raise ApiError("no_image")
    return ArrayResponse({"pixels": found[0]})
