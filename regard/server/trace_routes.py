"""Routes that trace a model on one input, as JSON, as an HTML page or as a figure."""

from functools import partial
from math import exp, inf
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, NonNegativeInt

from regard.analysis import heads
from regard.analysis.site_json import describe_image, describe_site
from regard.errors import RegardError
from regard.figures.formats import FORMATS, Figure
from regard.figures.kinds import TRACE_KINDS
from regard.generation.search import SearchOptions
from regard.generation.tracing import alternatives_at
from regard.hardware import limit_threads
from regard.server.answers import Answer, NextToken, next_tokens
from regard.server.error_codes import ApiError
from regard.server.html_export import as_html
from regard.server.jobs import EVENTS, Job, ProgressListener
from regard.server.model_inputs import ModelInput, TraceRequest, replace_tokens
from regard.server.service import Context, Service, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.tap import listen
from regard.trace.trace import Trace

router = APIRouter(prefix="/api")
Sites = Annotated[list[str], Query(alias="site")]
Count = Annotated[int, Query(ge=1, le=LIMITS.candidates)]


class MaskInfo(BaseModel):
    """Mask of a site: "all", "causal", or "bits" that come with a head's vectors."""

    kind: str
    text: str


class SiteInfo(BaseModel):
    """An attention site."""

    path: str
    group: str
    layer: int | None
    n_heads: int
    n_query: int
    n_key: int
    d_k: int
    d_v: int
    asks: str | None
    answers: str | None
    writes: str | None
    similarity: str
    scale: float
    temperature: list[float | str]
    slopes: list[float] | None
    mask: MaskInfo
    rotary: bool
    norm_first: bool | None
    space: bool


class ImageInfo(BaseModel):
    """Patches of an image."""

    n_rows: int
    n_columns: int
    patch_size: int
    first: int
    height: int
    width: int


class TraceInfo(BaseModel):
    """Description of a trace, without its arrays."""

    id: str
    asked: dict[str, Any]  # the request; empty for traces of no model
    title: str
    family: str
    task: str
    tokens: dict[str, list[str]]
    words: dict[str, list[int | None]]
    output: Any
    answer: Answer
    start: heads.Selection  # a head and a cell to show first
    image: ImageInfo | None
    sites: list[SiteInfo]


def _start(service: Service, stored: StoredTrace) -> heads.Selection:
    """Return the connection that an example is chosen to show, or else the clearest one."""
    trace, found = stored.trace, None
    if text := stored.request and stored.request.get("text"):
        examples = service.catalog[stored.request["model"]].examples()
        looks = next((one.looks for one in examples if one.text == text), None)
        found = heads.selection_between(trace, *looks) if looks else None
    return found or heads.default_selection(trace)


def describe(service: Service, stored: StoredTrace) -> TraceInfo:
    """Return the description of a stored trace."""

    def compute() -> TraceInfo:
        trace, names = stored.trace, ("", "", "")
        if stored.request:
            entry = service.catalog[stored.request["model"]]
            names = entry.name, entry.description.family, entry.description.task
        title, family, task = names
        image = describe_image(trace, lambda name, value, kind: name)
        return TraceInfo(
            id=stored.id,
            asked=stored.request,
            title=title,
            family=family,
            task=task,
            tokens=trace.tokens,
            words=trace.words,
            output=stored.answer.output,
            answer=stored.answer,
            start=_start(service, stored),
            image=None if image is None else ImageInfo.model_validate(image),
            sites=[SiteInfo.model_validate(describe_site(trace, path)) for path in trace],
        )

    with limit_threads(count_products(stored.trace, queries=heads.FAST_SAMPLE)):
        return stored.cached("description", compute)


def count_products(trace: Trace, *, queries: float = inf) -> float:
    """Estimate the cost of all weights of a trace, or of so many queries of each site."""
    return sum(
        site.n_heads * min(site.n_query, queries) * site.n_key * site.key.size(-1)
        for site in trace.sites.values()
    )


@router.post("/trace", response_model=TraceInfo, responses=EVENTS)
async def trace(body: TraceRequest, context: Context) -> Response:
    """Run a model, store its trace and describe it."""
    name, service = body.model, context.service
    return await context.compute(name, lambda job: describe(service, service.trace(body, job)))


class AnswerInfo(BaseModel, from_attributes=True):
    """An answer and the id of its trace."""

    id: str
    answer: Answer


@router.post("/answer", response_model=AnswerInfo, responses=EVENTS)
async def answer(body: TraceRequest, context: Context) -> Response:
    """Run a model, store its trace and return only the answer."""
    name, run = body.model, context.service.trace
    return await context.compute(name, lambda job: AnswerInfo.model_validate(run(body, job)))


@router.get("/runs/{run}/{step}", response_model=TraceInfo)
async def snapshot(
    run: str, step: NonNegativeInt, context: Context, text: NonNegativeInt = 0
) -> Response:
    """Describe the snapshot of a text at a step of a training run."""
    service = context.service
    return await context.read(lambda job: describe(service, service.snapshot(run, step, text)))


@router.get("/trace/{id}", response_model=TraceInfo)
async def stored_trace(stored: Stored, context: Context) -> Response:
    """Describe a stored trace."""
    return await context.read(lambda job: describe(context.service, stored))


class AlternativeInfo(BaseModel):
    """A token that could be at a position, and the translation with it."""

    token: str
    id: int
    probability: float
    text: str
    ids: list[int]


class AlternativeList(BaseModel):
    """Alternatives at a position, the most probable first."""

    alternatives: list[AlternativeInfo]


@router.get("/trace/{id}/alternatives", response_model=AlternativeList, responses=EVENTS)
async def alternatives(
    stored: Stored, context: Context, position: NonNegativeInt, count: Count = 5
) -> Response:
    """Return the most probable tokens at a position of a translation, and the texts with them."""
    ids, service = stored.answer.ids, context.service
    if ids is None:
        raise ApiError("not_a_translation")
    if position >= len(ids):
        raise ApiError("unknown_position", position=position, side="answer", count=len(ids))
    request, prefix = TraceRequest(**stored.request), ids[:position]
    search = SearchOptions(beam=request.beam)

    def work(job: Job) -> AlternativeList:
        model = service.catalog[request.model].model()
        edits, tokens = service.changes(request, job)
        source = ModelInput(stored.trace.output.part_source or request.text or "")
        replaced = [edit for edit in tokens if edit.side == "source"]
        given = replace_tokens(model, source, replaced, answer_ids=None).source_ids(model)
        with listen(ProgressListener(job, "writing")):
            found = alternatives_at(model, given, prefix, edits=edits, search=search, count=count)
        _, tokenizer = model.translation_tokenizers()
        end = [tokenizer.required_id("end")]
        listed = [
            AlternativeInfo(
                token=tokenizer.pieces_of([*prefix, one.token])[-1].text,
                id=one.token,
                probability=exp(one.log_prob),
                text=tokenizer.decode(one.continuation.ids),
                ids=one.continuation.ids + (end if one.continuation.finished else []),
            )
            for one in found
        ]
        return AlternativeList(alternatives=listed)

    return await context.compute(request.model, work)


class NextTokenList(BaseModel):
    """Possible next tokens, the most probable first."""

    candidates: list[NextToken]


@router.get("/trace/{id}/next")
def next_token(
    stored: Stored,
    context: Context,
    temperature: Annotated[float, Query(ge=0, le=LIMITS.temperature)] = 1.0,
    count: Count = 5,
) -> NextTokenList:
    """Return the most probable next tokens at a sampling temperature."""
    if stored.answer.kind != "next":
        raise ApiError("not_a_language_model")
    name, text = stored.request["model"], stored.request["text"]
    model = context.service.catalog[name].model()
    found = next_tokens(stored.trace, model, text, temperature=temperature, count=count)
    return NextTokenList(candidates=found)


class MeasureList(BaseModel):
    """Measures of the heads of each site."""

    measures: dict[str, list[heads.HeadMeasures]]


@router.get("/trace/{id}/measures", response_model=MeasureList)
async def measures(stored: Stored, context: Context, sites: Sites = []) -> Response:  # noqa: B006
    """Measure every head of the sites, of all sites by default."""

    def work(job: Job) -> MeasureList:
        found = {}
        with limit_threads(count_products(stored.trace)):
            for path in sites or stored.trace:
                job.check()
                measure = partial(heads.measure_heads, stored.trace[path])
                found[path] = stored.cached(("measures", path), measure)
        return MeasureList(measures=found)

    return await context.read(work)


_MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
_BINARY = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
State = Annotated[str, Query(max_length=LIMITS.text_characters)]


@router.get("/trace/{id}/html", response_class=Response, responses={200: _BINARY})
async def html_file(stored: Stored, context: Context, state: State = "") -> Response:
    """Return the explorer with this trace as one HTML file; it opens with the given selection."""

    def work(job: Job) -> Response:
        with limit_threads(count_products(stored.trace)):
            page = as_html(stored.trace, title=stored.request.get("model", ""), state=state)
        return _download(page, "text/html; charset=utf-8", "regard.html")

    return await context.wait(work)


class FigureQuery(BaseModel):
    """A head and a query; "compare" also needs another head, of the same or of another trace."""

    site: str
    head: NonNegativeInt = 0
    query: NonNegativeInt = 0
    language: Literal["en", "ko"] = "en"
    other: str | None = None  # the id of another trace
    other_site: str | None = None
    other_head: NonNegativeInt | None = None

    def draw(self, stored: StoredTrace, kind: str, service: Service) -> Figure:
        """Draw a figure; raise a RegardError if this trace or head has none of its kind."""
        found = stored.trace[self.site]
        if self.head >= found.n_heads:
            raise ApiError("unknown_head", site=self.site, head=self.head, count=found.n_heads)
        place = {"site": self.site, "head": self.head, "language": self.language}
        if kind != "compare":
            return stored.trace.figure(kind, query=self.query, **place)
        other = None if self.other is None else service.traces.get(self.other)
        if self.other is not None and other is None:
            raise ApiError("unknown_trace")
        second = {"other_site": self.other_site, "other_head": self.other_head}
        trace = None if other is None else other.trace
        return stored.trace.figure(kind, other=trace, **second, **place)


class FigureKinds(BaseModel):
    """Kinds of figures of a trace."""

    kinds: list[str]


FigureParams = Annotated[FigureQuery, Query()]
FigureKind = Annotated[str, Query(json_schema_extra={"enum": [*TRACE_KINDS, "architecture"]})]


@router.get("/trace/{id}/figures", response_model=FigureKinds)
async def figure_kinds(stored: Stored, context: Context, given: FigureParams) -> Response:
    """List the kinds of figures that fit a head: those that can be drawn."""

    def fits(kind: str) -> bool:
        try:
            given.draw(stored, kind, context.service)
        except RegardError:
            return False
        return True

    def work(job: Job) -> FigureKinds:
        found = []
        for kind in (*TRACE_KINDS, "architecture"):
            job.check()
            if fits(kind):
                found.append(kind)
        return FigureKinds(kinds=found)

    return await context.read(work)


@router.get("/trace/{id}/figure", response_class=Response, responses={200: _BINARY})
async def figure(
    stored: Stored,
    context: Context,
    kind: FigureKind,
    given: FigureParams,
    format: Literal["svg", "png", "pdf"] = "pdf",
) -> Response:
    """Return a figure of one head, of the answer at one position or of the model as a file."""

    def work(job: Job) -> Response:
        drawn = given.draw(stored, kind, context.service)
        data = FORMATS[f".{format}"](drawn.drawing)
        return _download(data, _MEDIA_TYPES[format], f"regard-{kind}.{format}")

    return await context.wait(work)


def _download(content: str | bytes, media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)
