"""Routes that return arrays of a stored trace as safetensors files."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, NonNegativeInt
from torch import Tensor

from regard.analysis import heads, site_json
from regard.analysis import rollout as rollouts
from regard.analysis import space as spaces
from regard.analysis import steps as analysis_steps
from regard.analysis.approximation import approximation
from regard.hardware import limit_threads
from regard.server import arrays
from regard.server.arrays import IndexRange
from regard.server.error_codes import ApiError
from regard.server.jobs import Job
from regard.server.service import Context, RequestContext, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.server.trace_routes import Sites, count_products
from regard.trace.site import Site

_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(
    prefix="/api/trace/{id}", default_response_class=Response, responses={200: {"content": _FILE}}
)


class ArrayResponse(Response):
    """A safetensors file that depends on the address only."""

    def __init__(self, tables: arrays.Arrays, metadata: Mapping[str, Any] | None = None) -> None:
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        data = arrays.to_safetensors(tables, metadata)
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

    stage: arrays.Stage = "weights"
    dtype: arrays.DType = "float32"
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

    def pool() -> arrays.PooledTable:
        pooled = arrays.pool_table(site, head, stage, check=job.check)
        context.service.traces.grow(stored.id, pooled.table.nbytes)
        return pooled

    if arrays.is_direct(rows, columns):
        table = arrays.tile(site, head, stage, rows, columns)
    else:
        table = stored.cached(("pooled", site.path, head, stage), pool).tile(rows, columns)
    array, metadata = arrays.encode_table(table, query.dtype)
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
    found = spaces.space(stored.trace, site, n_axes=axes)
    names = ("before", "after", "arrows", "rest")
    points = {name: getattr(found, name).float() for name in names}
    return ArrayResponse(points, {"share": found.share})


@router.get("/rollout")
@in_reader_thread
def rollout(site: str, stored: Stored) -> Response:
    """Return the attention rollout of all layers up to this site."""
    found = stored.cached(("rollout", site), lambda: rollouts.rollout(stored.trace, site))
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
