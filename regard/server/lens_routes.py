"""Routes from the residual stream to the answer: the lens, attributions, and sweeps of heads."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, NonNegativeInt

from regard.analysis import attribution as attributions
from regard.analysis.lens import lens
from regard.analysis.linear_parts import AttributionPart
from regard.analysis.sweep import HeadSweep, sweep_heads
from regard.hardware import limit_threads
from regard.server import model_inputs
from regard.server.jobs import EVENTS, Job
from regard.server.model_inputs import ModelInput, TraceRequest
from regard.server.service import Context, Service, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.server.trace_routes import Count

router = APIRouter(prefix="/api")


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


class AttributionInfo(BaseModel):
    """The logit of a token or class as a sum of parts, which sum to logit - bias."""

    side: str
    entries: str
    norm: str
    position: int | None
    token: int
    name: str
    relative_to: int | None
    relative_name: str | None
    logit: float
    bias: float
    parts: list[AttributionPart]


@router.get("/trace/{id}/attribution", response_model=AttributionInfo)
async def attribution_of_trace(
    query: Annotated[AttributionQuery, Query()], stored: Stored, context: Context
) -> Response:
    """Split the logit of a token or class into what each part of the model adds to it."""

    def work(job: Job) -> AttributionInfo:
        found = attributions.attribution(stored.trace, **query.model_dump())
        return AttributionInfo(**found.to_dict())

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
