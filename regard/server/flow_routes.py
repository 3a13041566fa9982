"""Routes of the flow: the residual stream of a stored trace, station by station."""

import json
from functools import partial
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, NonNegativeInt

from regard.analysis import flow
from regard.analysis.hidden_units import N_UNITS, HiddenUnits, hidden_units
from regard.hardware import limit_threads
from regard.server.array_routes import ArrayResponse, in_reader_thread
from regard.server.error_codes import ApiError
from regard.server.jobs import Job
from regard.server.service import Context, Stored, StoredTrace
from regard.server.settings import LIMITS

router = APIRouter(prefix="/api/trace/{id}")
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ARRAYS: dict[int | str, dict[str, Any]] = {200: {"content": _FILE}}


class FlowInfo(BaseModel):
    """The stations of each side; none if the layers of the model were not tapped."""

    sides: tuple[flow.Side, ...]
    predicts: str | None
    """The side whose positions predict tokens."""
    limit: int
    """Positions that can be requested at once."""


def _sides(stored: StoredTrace) -> tuple[flow.Side, ...]:
    return stored.cached("flow", partial(flow.sides, stored.trace))


@router.get("/flow", response_model=FlowInfo)
async def flow_info(stored: Stored, context: Context) -> Response:
    """Describe the stations of the residual stream."""

    def work(job: Job) -> FlowInfo:
        sides = _sides(stored)
        last = sides[-1].name if sides and _predictions(stored) is not None else None
        return FlowInfo(sides=sides, predicts=last, limit=LIMITS.flow_positions)

    return await context.read(work)


def _predictions(stored: StoredTrace) -> flow.Predictions | None:
    """Return the predictions of a trace; those of snapshots follow from their logits."""
    logits = stored.trace.values.get("output.logits")
    if stored.predictions is not None or logits is None or logits.dim() != 3:
        return stored.predictions
    return stored.cached("predictions", lambda: flow.predictions(logits[0]))


class FlowQuery(BaseModel):
    """Positions of one side."""

    side: Literal["encoder", "decoder"]
    start: NonNegativeInt = 0
    stop: NonNegativeInt


@router.get("/flow/arrays", response_class=Response, responses=_ARRAYS)
@in_reader_thread
def flow_arrays(query: Annotated[FlowQuery, Query()], stored: Stored, job: Job) -> Response:
    """Return the numbers of all stations at some positions of a side.

    PATH.norm and PATH.added are norms of the stream and of what was added to it, PATH.strip is the
    stream, pooled; SITE.mean_keys to SITE.top_heads are the largest weights of each query;
    predictions.ids and predictions.probabilities are the most probable tokens.
    """
    side = next((one for one in _sides(stored) if one.name == query.side), None)
    n_tokens = 0 if side is None else side.n_tokens
    start, stop = query.start, query.stop
    if side is None or not start < stop <= n_tokens or stop - start > LIMITS.flow_positions:
        raise ApiError("invalid_range", axis="rows", start=start, stop=stop, count=n_tokens)
    trace, rows, found = stored.trace, slice(start, stop), {}
    with limit_threads(_largest_product(stored, side, stop - start)):
        for station in side.stations:
            job.check()
            found |= flow.station_arrays(trace, station, rows)
    predicted = _predictions(stored) if side == _sides(stored)[-1] else None
    names: list[list[str]] = []
    if predicted is not None:
        ids = predicted.ids[rows]
        found["predictions.ids"] = ids
        found["predictions.probabilities"] = predicted.probabilities[rows]
        names = [[flow.token_name(trace.origin, id) for id in row] for row in ids.tolist()]
    return ArrayResponse(found, {"names": json.dumps(names, ensure_ascii=False)})


def _largest_product(stored: StoredTrace, side: flow.Side, n_queries: int) -> int:
    """Estimate the cost of one head: heads are computed one by one, too small for two threads."""
    sites = [stored.trace[one.site] for one in side.stations if one.site is not None]
    return max((n_queries * one.n_key * one.key.size(-1) for one in sites), default=0)


class PlaceQuery(BaseModel):
    """A position of a value of the trace."""

    path: str
    position: NonNegativeInt


@router.get("/stream", response_class=Response, responses=_ARRAYS)
@in_reader_thread
def stream(query: Annotated[PlaceQuery, Query()], stored: Stored) -> Response:
    """Return the vector at a station and position, the one before it, and what was added.

    `vector` and `before` are the stream; each added value has its path as its name.
    """
    trace, position = stored.trace, query.position
    vectors = flow.stream(trace, query.path)
    if position >= len(vectors):
        side, count = query.path.partition(".")[0], len(vectors)
        raise ApiError("unknown_position", position=position, side=side, count=count)
    found = {"vector": vectors[position]}
    stations = {one.path: one for side in _sides(stored) for one in side.stations}
    station = stations.get(query.path)
    if station is not None and station.before is not None:
        found["before"] = flow.stream(trace, station.before)[position]
    for path in () if station is None else station.added:
        vectors = flow.stream(trace, path)
        found[path] = vectors[min(position, len(vectors) - 1)]
    return ArrayResponse({name: x.contiguous() for name, x in found.items()})


@router.get("/units", response_model=HiddenUnits)
async def units(
    query: Annotated[PlaceQuery, Query()],
    stored: Stored,
    context: Context,
    count: Annotated[int, Query(ge=1, le=LIMITS.hidden_units)] = N_UNITS,
) -> Response:
    """Return the hidden units of a feed-forward layer that add most at a position."""

    def work(job: Job) -> HiddenUnits:
        with torch.no_grad():
            return hidden_units(stored.trace, query.path, query.position, count=count)

    return await context.read(work)
