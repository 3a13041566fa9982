"""Routes that return arrays of a stored trace as safetensors files."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, NonNegativeInt
from torch import Tensor

from regard.analysis.approximation import approximation
from regard.analysis.heads import thumbnails as site_thumbnails
from regard.analysis.heads import weights_to_bytes
from regard.analysis.rollout import rollout as attention_rollout
from regard.analysis.site_json import (
    describe_image,
    describe_pattern,
    head_arrays,
    mask_bits,
    mask_kind,
)
from regard.analysis.space import space as site_space
from regard.analysis.steps import attention_module
from regard.analysis.steps import projections as head_projections
from regard.analysis.steps import steps as attention_steps
from regard.hardware import limit_threads
from regard.server.arrays import (
    Arrays,
    DType,
    IndexRange,
    PooledTable,
    Stage,
    encode_table,
    is_direct,
    pool_table,
    to_safetensors,
)
from regard.server.arrays import tile as site_tile
from regard.server.error_codes import ApiError
from regard.server.jobs import Job
from regard.server.service import Context, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.server.trace_routes import Sites, count_products
from regard.trace.site import Site

_FLOAT32_ROWS = 512
"""Rows of a rollout that is sent in float32; longer ones are sent in float16."""
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(
    prefix="/api/trace/{id}",
    default_response_class=Response,
    responses={200: {"content": _FILE}},
)


class ArrayResponse(Response):
    """A safetensors file that depends on the address only."""

    def __init__(self, arrays: Arrays, metadata: Mapping[str, Any] | None = None) -> None:
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        super().__init__(
            to_safetensors(arrays, metadata), headers=headers, media_type="application/octet-stream"
        )


class SiteQuery(BaseModel):
    """A site of a trace."""

    site: str


class HeadQuery(SiteQuery):
    """A head of a site."""

    head: NonNegativeInt = 0

    def of(self, stored: StoredTrace) -> Site:
        """Return the site, after a check that the head exists."""
        site = stored.trace[self.site]
        if self.head >= site.n_heads:
            raise ApiError("unknown_head", site=site.path, head=self.head, count=site.n_heads)
        return site


SiteParams = Annotated[SiteQuery, Query()]
HeadParams = Annotated[HeadQuery, Query()]


@router.get("/thumbnails")
async def thumbnails(
    stored: Stored,
    context: Context,
    size: Annotated[int, Query(ge=1, le=LIMITS.thumbnail)] = 64,
    sites: Sites = [],  # noqa: B006
) -> Response:
    """Return thumbnails of all heads of the sites: head × row × column as 255 · √weight."""

    def work(job: Job) -> ArrayResponse:
        with limit_threads(count_products(stored.trace)):
            arrays = {
                path: stored.cached(
                    ("thumbnails", path, size),
                    lambda site=stored.trace[path]: weights_to_bytes(
                        site_thumbnails(site, size, check=job.check)
                    ),
                )
                for path in sites or stored.trace
            }
        return ArrayResponse(arrays, {"coding": "root"})

    return await context.wait(work)


@router.get("/vectors")
def vectors(query: HeadParams, stored: Stored) -> Response:
    """Return queries, keys and values of one head, and its mask as bits if it is irregular."""
    site = query.of(stored)
    is_exact = hasattr(site.pattern, "similarity")
    if (site.changed or not is_exact) and site.n_query * site.n_key > LIMITS.table_cells:
        raise ApiError("table_too_long", site=site.path, rows=site.n_query, columns=site.n_key)
    kind = mask_kind(site)
    bits = {"allowed": mask_bits(site, query.head)[0]} if kind == "bits" else {}
    metadata = {"pattern": json.dumps(describe_pattern(site)), "mask": kind}
    return ArrayResponse({**head_arrays(site, query.head), **bits}, metadata)


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
async def tile(query: Annotated[TileQuery, Query()], stored: Stored, context: Context) -> Response:
    """Return part of one head's table; each cell is the maximum of the cells it covers."""
    site, head, stage = query.of(stored), query.head, query.stage
    rows = IndexRange.checked("rows", query.row_start, query.row_stop, query.row_bins, site.n_query)
    columns = IndexRange.checked(
        "columns", query.column_start, query.column_stop, query.column_bins, site.n_key
    )

    def work(job: Job) -> ArrayResponse:
        def pool() -> PooledTable:
            pooled = pool_table(site, head, stage, check=job.check)
            context.service.traces.grow(stored.id, pooled.table.nbytes)
            return pooled

        if is_direct(rows, columns):
            table = site_tile(site, head, stage, rows, columns)
        else:
            table = stored.cached(("pooled", site.path, head, stage), pool).tile(rows, columns)
        array, metadata = encode_table(table, query.dtype)
        return ArrayResponse({"tile": array}, metadata)

    return await context.wait(work)


class CellQuery(HeadQuery):
    """One weight of a head."""

    query: NonNegativeInt
    key: NonNegativeInt


@router.get("/steps")
def steps(query: Annotated[CellQuery, Query()], stored: Stored) -> Response:
    """Return every step from the inputs to one weight: vectors as arrays, numbers as metadata."""
    query.of(stored)
    found = attention_steps(stored.trace, query.site, query.head, query.query, query.key)
    parts = {n: x for n, x in vars(found).items() if n not in ("projections", "value")}
    arrays = {name: x.float() for name, x in parts.items() if isinstance(x, Tensor)}
    return ArrayResponse(
        arrays, {name: _metadata(x) for name, x in parts.items() if name not in arrays}
    )


def _metadata(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return repr(value) if isfinite(value) else str(value)


@router.get("/projections")
def projections(query: HeadParams, stored: Stored) -> Response:
    """Return the projection matrices of one head, such as "query.weight" and "query.bias"."""
    query.of(stored)
    module = attention_module(stored.trace, query.site)
    arrays = {}
    for name, part in ({} if module is None else head_projections(module, query.head)).items():
        arrays[f"{name}.weight"] = part.weight.float()
        if part.bias is not None:
            arrays[f"{name}.bias"] = part.bias.float()
    return ArrayResponse(arrays)


class SpaceQuery(SiteQuery):
    """Axes for the points of a site."""

    axes: int = Field(default=2, ge=2, le=3)


@router.get("/space")
def space(query: Annotated[SpaceQuery, Query()], stored: Stored) -> Response:
    """Return tokens as points before and after a site, and the arrows that its heads add."""
    found = site_space(stored.trace, query.site, n_axes=query.axes)
    names = ("before", "after", "arrows", "rest")
    arrays = {name: getattr(found, name).float() for name in names}
    return ArrayResponse(arrays, {"share": found.share})


@router.get("/rollout")
def rollout(query: SiteParams, stored: Stored) -> Response:
    """Return the attention rollout of all layers up to this site."""
    found = stored.cached(
        ("rollout", query.site), lambda: attention_rollout(stored.trace, query.site)
    )
    dtype = torch.float32 if len(found) <= _FLOAT32_ROWS else torch.float16
    return ArrayResponse({"rollout": found.to(dtype)})


@router.get("/exact")
def exact(query: HeadParams, stored: Stored) -> Response:
    """Return the exact weights that one head of an efficient form approximates."""
    site = query.of(stored)
    if site.n_query * site.n_key > LIMITS.exact_cells:
        raise ApiError("comparison_too_long", site=site.path)
    found = approximation(site, query.head if site.lead else None)
    arrays = {"exact": found.exact.float(), "variation": found.variation.float()}
    return ArrayResponse(arrays, {"largest": found.largest, "mean": found.mean})


@router.get("/pixels")
def pixels(stored: Stored) -> Response:
    """Return the image that the model read, row × column × 3 bytes."""
    found: list[np.ndarray] = []
    describe_image(stored.trace, lambda name, value, kind: found.append(value) or name)
    if not found:
        raise ApiError("no_image")
    return ArrayResponse({"pixels": found[0]})
