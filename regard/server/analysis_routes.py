"""Routes of the residual stream: its flow, the lens, attributions, and sweeps of heads."""

import json
from functools import partial
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, NonNegativeInt

from regard.analysis import attribution as attributions
from regard.analysis import flow
from regard.analysis.attribution import Attribution
from regard.analysis.hidden_units import N_UNITS, HiddenUnits, hidden_units
from regard.analysis.lens import lens
from regard.analysis.sweep import HeadSweep, sweep_heads
from regard.hardware import limit_threads
from regard.server import model_inputs
from regard.server.array_routes import ArrayResponse, in_reader_thread
from regard.server.error_codes import ApiError
from regard.server.jobs import EVENTS, Job
from regard.server.model_inputs import ModelInput, TraceRequest
from regard.server.service import Context, Service, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.server.trace_routes import Count

router = APIRouter(prefix="/api")
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


@router.get("/trace/{id}/flow", response_model=FlowInfo)
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


@router.get("/trace/{id}/flow/arrays", response_class=Response, responses=_ARRAYS)
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


@router.get("/trace/{id}/stream", response_class=Response, responses=_ARRAYS)
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


@router.get("/trace/{id}/units", response_model=HiddenUnits)
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


class LensInfo(BaseModel):
    """Predictions at each station of the model: tables of station × position (× rank).

    Entropy and divergence, KL(final ‖ station), are in bits.
    """

    side: str
    entries: str  # "tokens" or "classes"
    norm: str  # the final norm that was applied: "layer", "rms" or "none"
    stations: list[str]
    positions: list[str]
    start: int  # number of the first position
    n_positions: int  # of the whole text
    ids: list[list[list[int]]]
    probabilities: list[list[list[float]]]
    entropy: list[list[float]]
    divergence: list[list[float]]
    answers: list[int]  # the translation's ids; of other models, the most probable at the end
    answer_probabilities: list[list[float]]
    names: dict[str, str]


@router.get("/trace/{id}/lens", response_model=LensInfo, responses=EVENTS)
async def lens_of_trace(
    stored: Stored,
    context: Context,
    start: NonNegativeInt = 0,
    stop: NonNegativeInt | None = None,
    count: Count = 5,
) -> Response:
    """Read every station of the residual stream with the model's own norm and unembedding.

    At most `lens_positions` positions are read at once; `n_positions` says how many there are.
    """
    last = start + LIMITS.lens_positions
    rows = slice(start, last if stop is None else min(stop, last))

    def work(job: Job) -> LensInfo:
        def compute() -> LensInfo:
            found = lens(stored.trace, count=count, rows=rows).to_dict()
            classes = found["entries"] == "classes"
            value = stored.trace.value(found["stations"][0])
            sizes = (0, 1) if classes else (start, value.size(-2))
            return LensInfo(**found, start=sizes[0], n_positions=sizes[1])

        with limit_threads(_count_products(stored, rows.stop - rows.start)):
            return stored.cached(("lens", rows.start, rows.stop, count), compute)

    return await context.read(work)


def _count_products(stored: StoredTrace, n_rows: int) -> float:
    config = getattr(stored.trace.origin, "config", None)
    n_entries = getattr(config, "n_vocab", None) or getattr(config, "n_classes", None) or 1
    n_stations = sum(path.endswith(".residual") for path in stored.trace.values)
    return n_rows * n_stations * n_entries * getattr(config, "d_model", 1)


class AttributionQuery(BaseModel):
    """A token or class by its id; by default the model's answer."""

    token: NonNegativeInt | None = None
    position: NonNegativeInt | None = None
    relative_to: NonNegativeInt | None = None


@router.get("/trace/{id}/attribution", response_model=Attribution)
async def attribution_of_trace(
    query: Annotated[AttributionQuery, Query()], stored: Stored, context: Context
) -> Response:
    """Split the logit of a token or class into what each part of the model adds to it."""

    def work(job: Job) -> Attribution:
        return attributions.attribution(stored.trace, **query.model_dump())

    return await context.read(work)


class SweepRequest(TraceRequest):
    """Switch every head off in turn, in the run that the other fields request."""

    to: Literal["zero", "mean"] = "zero"


class SweepInfo(BaseModel):
    """Changes of the answer's log-probability, head × token by site."""

    id: str  # of the trace whose answer is measured
    to: str
    ids: list[int]
    tokens: list[str]
    positions: list[int | None]
    log_probabilities: list[float]
    changes: dict[str, list[list[float]]]


@router.post("/sweep", response_model=SweepInfo, responses=EVENTS)
async def sweep(body: SweepRequest, context: Context) -> Response:
    """Switch every head off in turn and measure the log-probability of the answer."""
    service, request = context.service, TraceRequest(**body.model_dump(exclude={"to"}))

    def work(job: Job) -> SweepInfo:
        stored = service.trace(request, job)
        compute = partial(_sweep, service, stored, body.to, job)
        found = stored.cached(("sweep", body.to), compute)
        return SweepInfo(id=stored.id, to=body.to, **found.to_dict())

    return await context.compute(body.model, work)


def _sweep(service: Service, stored: StoredTrace, to: str, job: Job) -> HeadSweep:
    request = TraceRequest(**stored.request)
    entry = service.catalog[request.model]
    model, (edits, tokens) = entry.model(), service.changes(request, job)
    unmet = stored.answer.unmet or []
    edits = [edit for edit in edits if edit.to_dict() not in unmet]
    given, target = service.model_input(entry, request), None
    if model_inputs.is_translator(model):
        target = model_inputs.target_ids(model, stored.answer.ids)
        given = ModelInput(stored.trace.output.part_source or given.content)
        tokens = [one for one in tokens if one.side == "source"]
    given = model_inputs.replace_tokens(model, given, tokens, answer_ids=None)
    with limit_threads(model_inputs.count_multiplications(model, given)):
        return sweep_heads(
            model,
            given.content,
            target,
            to=to,
            edits=edits,
            progress=lambda done, of: job.report("sweeping", done, of),
        )
