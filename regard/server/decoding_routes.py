"""Decoding of a stored trace, step by step: the beam search or the sampling behind an answer."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from regard.generation.decoding_steps import (
    DecodingStep,
    sample_steps,
    search_tree,
    target_steps,
)
from regard.generation.search import BeamTree, SamplingOptions, SearchOptions
from regard.model import Model
from regard.server.answers import continued
from regard.server.error_codes import ApiError
from regard.server.jobs import EVENTS, Job, ProgressListener
from regard.server.model_inputs import ModelInput, TraceRequest, replace_tokens
from regard.server.service import Context, Service, Stored, StoredTrace
from regard.server.settings import LIMITS
from regard.tap import listen
from regard.text.tokenizer import Tokenizer

router = APIRouter(prefix="/api/trace/{id}")


class CandidateInfo(BaseModel, from_attributes=True):
    """A possible token of a step; see `StepCandidate`."""

    id: int
    name: str
    rank: int
    log_prob: float
    scaled: float | None
    cut: str
    probability: float


class DecodingStepInfo(BaseModel):
    """One step: the best candidates, and the id of the token that was written."""

    chosen: int
    name: str
    forced: bool
    candidates: list[CandidateInfo]


class NodeInfo(BaseModel, from_attributes=True):
    """A sequence that beam search considered: its parent's tokens and one more."""

    step: int
    parent: int | None
    id: int
    name: str
    log_prob: float
    score: float
    fate: str
    won: bool  # True for the sequences that the answer starts with


class DecodingInfo(BaseModel):
    """The steps in which a text was written."""

    kind: str
    """"beam", "sample", or "given" if the text was not written by the model."""
    text: str  # the whole text that was written; with the prompt of a language model
    ids: list[int]  # what was written; with the end token, if the model wrote it
    finished: bool
    steps: list[DecodingStepInfo]
    tree: list[NodeInfo] | None
    score: float | None  # of the sequence that won the search
    is_answer: bool  # False if the search in PyTorch ends at another answer than the trace
    traceable: bool  # False if the text is tokenized differently when it is read


class DecodingQuery(BaseModel):
    """Options of decoding; a translation has the beam of its trace."""

    forced: str = Field(default="", pattern=r"^(\d+(,\d+)*)?$")
    """Token ids that the text must start with, as "5,12"."""
    temperature: float = Field(default=1.0, ge=0, le=LIMITS.temperature)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=40, ge=1, le=LIMITS.generated_tokens)
    count: int = Field(default=8, ge=1, le=LIMITS.candidates)

    def forced_ids(self, tokenizer: Tokenizer) -> list[int]:
        ids = [int(id) for id in self.forced.split(",") if id]
        for id in ids:
            tokenizer.token_of(id)  # raises an error for an unknown id
        return ids


@router.get("/decoding", response_model=DecodingInfo, responses=EVENTS)
async def decoding(
    query: Annotated[DecodingQuery, Query()], stored: Stored, context: Context
) -> Response:
    """Write the answer of a trace again, from a forced start if one is given, and record how."""
    kind = stored.answer.kind
    if kind not in ("translation", "next"):
        raise ApiError("writes_no_text")
    run = _translate if kind == "translation" else _sample
    request, service = TraceRequest(**stored.request), context.service

    def work(job: Job) -> DecodingInfo:
        with listen(ProgressListener(job, "writing")):
            return run(service, stored, request, query, job)

    return await context.compute(request.model, work)


def _translate(
    service: Service, stored: StoredTrace, request: TraceRequest, query: DecodingQuery, job: Job
) -> DecodingInfo:
    model = service.catalog[request.model].model()
    edits, tokens = service.changes(request, job)
    _, tokenizer = model.translation_tokenizers()
    source = ModelInput(stored.trace.output.part_source or request.text or "")
    replaced = [edit for edit in tokens if edit.side == "source"]
    source_ids = replace_tokens(model, source, replaced, answer_ids=None).source_ids(model)
    forced, answer = query.forced_ids(tokenizer), list(stored.answer.ids or ())
    given = request.target is not None and not forced
    found, tree = None, None
    ids = answer
    if not given:
        search = SearchOptions(beam=request.beam, n_best=request.beam)
        found = search_tree(model, source_ids, prefix=forced, edits=edits, search=search)
        ids = found.best.ids + ([tokenizer.required_id("end")] if found.best.finished else [])
        tree = _nodes(found.tree, tokenizer)
    steps = target_steps(model, source_ids, ids, edits=edits, count=query.count)
    return DecodingInfo(
        kind="given" if given else "beam",
        text=tokenizer.decode(ids),
        ids=ids,
        finished=found is None or found.best.finished,
        steps=_describe_steps(steps, len(forced), tokenizer),
        tree=tree,
        score=None if found is None or not tree else found.best.score,
        is_answer=bool(forced) or ids == answer,
        traceable=True,
    )


def _sample(
    service: Service, stored: StoredTrace, request: TraceRequest, query: DecodingQuery, job: Job
) -> DecodingInfo:
    model: Model = service.catalog[request.model].model()
    tokenizer, prompt = model.tokenizer, request.text or ""
    if tokenizer is None:
        raise ApiError("no_tokenizer")
    forced = query.forced_ids(tokenizer)
    edits, _ = service.changes(request, job)
    options = SamplingOptions(
        max_tokens=query.max_tokens,
        temperature=query.temperature,
        top_k=query.top_k,
        top_p=query.top_p,
        seed=query.seed,
    )
    count = query.count
    found = sample_steps(model, prompt, options, forced=forced, edits=edits, count=count)
    text = continued(prompt, model, found.ids) or prompt
    ids = found.ids + ([tokenizer.required_id("end")] if found.finished else [])
    return DecodingInfo(
        kind="sample",
        text=text,
        ids=ids,
        finished=found.finished,
        steps=_describe_steps(found.steps, len(forced), tokenizer),
        tree=None,
        score=None,
        is_answer=True,
        traceable=ModelInput(text).source_ids(model) == [*found.prompt_ids, *found.ids],
    )


def _describe_steps(
    steps: tuple[DecodingStep, ...], n_forced: int, tokenizer: Tokenizer
) -> list[DecodingStepInfo]:
    def candidate(one: Any) -> CandidateInfo:
        return CandidateInfo(name=tokenizer.label_of(one.id), **vars(one))

    return [
        DecodingStepInfo(
            chosen=step.chosen,
            name=tokenizer.label_of(step.chosen),
            forced=i < n_forced,
            candidates=[candidate(one) for one in step.candidates],
        )
        for i, step in enumerate(steps)
    ]


def _nodes(tree: BeamTree, tokenizer: Tokenizer) -> list[NodeInfo]:
    won = set()
    at: int | None = tree.best if tree.nodes else None
    while at is not None:
        won.add(at)
        at = tree.nodes[at].parent
    return [
        NodeInfo(
            step=node.step,
            parent=node.parent,
            id=node.id,
            name=tokenizer.label_of(node.id),
            log_prob=node.log_prob,
            score=node.score,
            fate=node.fate,
            won=i in won,
        )
        for i, node in enumerate(tree.nodes)
    ]
