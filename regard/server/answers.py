"""Answers: run a model on one input under edits, and describe its output as JSON.

| family               | kind of answer | content                                                 |
|----------------------|----------------|---------------------------------------------------------|
| transformer, seq2seq | translation    | text, tokens with probabilities, the beam's other texts |
| decoder              | next           | next tokens; the probability of each token of the text  |
| encoder              | filled         | candidates for each gap                                 |
| encoder, vision      | classes        | the most probable classes                               |
| encoder              | none           | vectors only                                            |

An answer under edits also has `before` (the answer without edits), `compare` (the probabilities of
the answer before the edits, with and without them) and `unmet` (edits of positions that the new
text does not have).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import exp
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from regard.analysis.site_json import plain
from regard.generation.search import SearchOptions
from regard.generation.tracing import trace_answer
from regard.model import Model
from regard.server.error_codes import ApiError
from regard.server.jobs import Job, ProgressListener
from regard.server.model_inputs import ModelInput, TraceRequest, replace_tokens, target_ids
from regard.tap import listen
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import read_tokens, trace_model
from regard.trace.edits import CellEdit, Edit
from regard.trace.outputs import (
    AlternativeTranslation,
    ClassificationOutput,
    FillOutput,
    Gap,
    NextTokenOutput,
    ScoredCandidate,
    TranslationOutput,
)
from regard.trace.trace import Trace

_STORED_VALUES = (".input", ".joined", ".output", ".residual", "embedding.patches")
"""Values that the page requests; the others are dropped to save memory."""


class NextToken(BaseModel):
    """A possible next token."""

    id: int
    name: str
    probability: float
    text: str | None
    """The text continued with it; None for a token without text, such as the end."""


class TokenInfo(BaseModel):
    """A token, the number of its word, and its probability."""

    text: str
    word: int | None
    probability: float | None


class Comparison(BaseModel):
    """Probability of a token or class of the earlier answer, without and with edits."""

    at: int | None
    name: str
    before: float | None
    after: float


class PartInfo(BaseModel):
    """A part of a text that is translated in several parts, and its translation."""

    source: str
    text: str


class Answer(BaseModel):
    """Answer of a model; `kind` says which optional fields are present."""

    kind: str
    output: Any = None
    text: str | None = None
    ids: list[int] | None = None
    tokens: list[TokenInfo] | None = None
    score: float | None = None
    beam: int | None = None
    alternatives: list[AlternativeTranslation] | None = None
    parts: list[PartInfo] | None = None
    candidates: list[ScoredCandidate] | None = None
    gaps: list[Gap] | None = None
    before: "Answer | None" = None
    compare: list[Comparison] | None = None
    unmet: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class AnsweredRun:
    """A trace and the model's answer."""

    trace: Trace
    answer: Answer


def answer(
    model: Model, given: ModelInput, request: TraceRequest, edits: Sequence[Edit], job: Job
) -> AnsweredRun:
    """Run a model under edits; a translator searches for its target if none is given."""
    n_sites = sum(hasattr(module, "to_query") for module in model.module.modules())
    progress = ProgressListener(job, "tracing", n_sites or None)
    search = SearchOptions(beam=request.beam, n_best=request.beam)
    if is_translator(model) and given.target is None:
        progress = ProgressListener(job, "writing")
    target = None if given.target is None else target_ids(model, given.target)
    with listen(progress):
        trace = trace_answer(
            model, given.content, target, edits=edits, search=search, missing="ignore"
        )
    if target is not None:  # the text is one part
        source = given.content if isinstance(given.content, str) else ""
        trace.output = replace(trace.output, part_source=source, part_text=trace.output.text)
        return _describe(trace, request)
    if request.part >= len(trace.parts):
        raise ApiError("unknown_part", part=request.part, count=len(trace.parts))
    return _describe(trace, request)


def answer_edited(
    model: Model, given: ModelInput, request: TraceRequest, before: AnsweredRun, job: Job
) -> AnsweredRun:
    """Run a model under the edits of a request, and compare with the answer before them."""
    edits, tokens = request.parsed_edits()
    if not is_translator(model):
        given = replace_tokens(model, given, tokens, answer_ids=None)
        with listen(ProgressListener(job, "tracing")):
            trace = trace_model(model, given.content, edits=edits)
        compare = _compare_candidates(before.answer, trace)
        return _compared(_describe(trace, request), before, compare, [])
    part = ModelInput(before.trace.output.part_source or given.content, given.target)
    edited = replace_tokens(model, part, tokens, answer_ids=before.answer.ids)
    # With the same target, every edit must apply.
    tokenizer, ids = model.target_tokenizer, before.answer.ids or []
    start = [] if tokenizer is None or tokenizer.start_id is None else [tokenizer.start_id]
    target = [*start, *ids]  # without an end if the answer reached the length limit
    with listen(ProgressListener(job, "tracing")):
        same = read_tokens(tokenizer, target)
        forced = trace_model(model, edited.content, same, edits=edits)
    compare = [
        Comparison(at=at, name=token.text, before=token.probability, after=exp(log_prob))
        for at, (token, log_prob) in enumerate(
            zip(before.answer.tokens or (), forced.output.log_probs, strict=True)
        )
    ]
    if edited.target is not None and target_ids(model, edited.target) == target:
        after = _describe(forced, request)
    elif tokens:
        after = answer(model, edited, request.model_copy(update={"part": 0}), edits, job)
    else:
        after = answer(model, given, request, edits, job)
    unmet = [edit.to_dict() for edit in edits if not _applies(edit, after.trace)]
    return _compared(after, before, compare, unmet)


def is_translator(model: Model) -> bool:
    """Return True for models that read a source and write a target."""
    return model.family in ("transformer", "seq2seq")


def _applies(edit: Edit, trace: Trace) -> bool:
    """Return True if the positions of an edit exist at one of its sites."""
    return not isinstance(edit, CellEdit) or any(
        (edit.query or 0) < site.n_query and (edit.key or 0) < site.n_key
        for path, site in trace.sites.items()
        if fnmatchcase(path, edit.site)
    )


def _compared(
    after: AnsweredRun, before: AnsweredRun, compare: list[Comparison], unmet: list[dict[str, Any]]
) -> AnsweredRun:
    fields = {"before": before.answer, "compare": compare, "unmet": unmet}
    return AnsweredRun(after.trace, after.answer.model_copy(update=fields))


def next_tokens(
    trace: Trace, text: str, tokenizer: Tokenizer | None, *, temperature: float, count: int
) -> list[NextToken]:
    """Return the most probable next tokens of a language model's trace at a temperature."""
    logits = trace.values["output.logits"][0, -1]
    if temperature == 0:
        probabilities = torch.nn.functional.one_hot(logits.argmax(), len(logits)).to(logits.dtype)
    else:
        probabilities = (logits.double() / temperature).softmax(-1)
    best, ids = probabilities.topk(min(count, len(logits)))
    return [
        NextToken(
            id=id,
            name=str(id) if tokenizer is None else tokenizer.token_of(id),
            probability=probability,
            text=None if tokenizer is None else _continued(text, tokenizer, id),
        )
        for id, probability in zip(ids.tolist(), best.tolist(), strict=True)
    ]


def _continued(text: str, tokenizer: Tokenizer, id: int) -> str | None:
    """Return the text with one more token; None if that token has no text."""
    ids = tokenizer.encode(text)
    if len(ids) > 1 and ids[-1] == tokenizer.end_id:
        ids = ids[:-1]
    before, after = tokenizer.decode(ids), tokenizer.decode([*ids, id])
    if before == after:
        return None
    return text + after.removeprefix(before) if after.startswith(before) else after


def _describe(trace: Trace, request: TraceRequest) -> AnsweredRun:
    """Return the answer of a trace, and drop the values that the page does not request."""
    parts, part = trace.parts, trace.parts[min(request.part, len(trace.parts) - 1)]
    fields: dict[str, Any] = {"kind": "none"}
    output = part.output
    if isinstance(output, TranslationOutput):
        fields = {
            "kind": "translation",
            "text": output.text,
            "ids": output.ids,
            "tokens": _tokens(part, "output", output.log_probs),
            "score": output.score,
            "beam": request.beam,
            "alternatives": output.alternatives,
            "parts": [
                PartInfo(source=one.part_source, text=one.part_text)
                for one in (trace.output for trace in parts)
            ],
        }
    elif isinstance(output, NextTokenOutput):
        fields = {"kind": "next", "candidates": output.candidates}
        fields["tokens"] = _tokens(part, "target", [None, *output.log_probs])
    elif isinstance(output, FillOutput) and output.gaps:
        fields = {"kind": "filled", "gaps": output.gaps}
    elif isinstance(output, ClassificationOutput):
        fields = {"kind": "classes", "candidates": output.candidates}
    stored = {
        path: value
        for path, value in part.values.items()
        if path.endswith(_STORED_VALUES) and ".feed_forward." not in path
    }
    if fields["kind"] == "next":  # needed for other temperatures
        stored["output.logits"] = part.values["output.logits"][:, -1:].clone()
    part.values, part.later_parts = stored, []
    return AnsweredRun(part, Answer(output=plain(output), **fields))


def _tokens(trace: Trace, side: str, log_probs: Sequence[float | None]) -> list[TokenInfo]:
    rows = zip(trace.tokens[side], trace.words[side], log_probs, strict=True)
    return [
        TokenInfo(text=text, word=word, probability=None if value is None else exp(value))
        for text, word, value in rows
    ]


def _compare_candidates(before: Answer, trace: Trace) -> list[Comparison]:
    """Compare the probabilities of the candidates of the earlier answer."""
    groups: list[tuple[int | None, Tensor, Sequence[ScoredCandidate]]] = []
    if before.kind in ("next", "classes"):
        next_logits = before.kind == "next"
        logits = trace.values["output.logits" if next_logits else "output.classes"][0]
        groups.append((None, logits[-1] if next_logits else logits, before.candidates or ()))
    for gap in before.gaps or ():
        logits = trace.values["output.logits"][0, gap.position]
        groups.append((gap.position, logits, gap.candidates))
    return [
        Comparison(at=at, name=one.name, before=one.probability, after=after[one.id])
        for at, logits, candidates in groups
        for after in [logits.softmax(-1).tolist()]
        for one in candidates
    ]
