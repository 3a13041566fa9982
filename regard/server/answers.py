"""Answers: run a model on one input under edits, and describe its output as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import exp
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from regard.analysis.flow import Predictions, predictions
from regard.analysis.site_json import plain
from regard.generation.search import SearchOptions
from regard.generation.tracing import trace_answer
from regard.model import Model
from regard.server import model_inputs
from regard.server.error_codes import ApiError
from regard.server.jobs import Job, ProgressListener
from regard.server.model_inputs import Changes, ModelInput, TraceRequest, is_translator
from regard.server.settings import LIMITS
from regard.tap import Tapped, listen
from regard.trace import outputs
from regard.trace.capture import trace_model
from regard.trace.edit import Edit, Patch
from regard.trace.edits import CellEdit
from regard.trace.trace import Trace

_STREAMS = (".input", ".joined", ".output", ".residual", ".hidden")
_EMBEDDINGS = (".tokens", ".types", ".positions", ".patches")
_STORED_VALUES = (*_STREAMS, *(f"embedding{name}" for name in _EMBEDDINGS))
"""Values that the page requests; the others are dropped to save memory."""


class NextToken(BaseModel):
    """A possible next token."""

    id: int
    name: str
    probability: float
    text: str | None  # the text continued with it; None for a token without text, such as the end


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
    """A part of a text, and its translation."""

    source: str
    text: str


class Answer(BaseModel):
    """Answer of a model, with the fields of its kind."""

    kind: str
    """"translation", "next" (tokens of a language model), "filled" (gaps), "classes" or "none"."""
    output: Any = None
    text: str | None = None
    ids: list[int] | None = None
    tokens: list[TokenInfo] | None = None
    score: float | None = None
    beam: int | None = None
    engine: str | None = None  # that found the answer, and its precision
    precision: str | None = None
    differs: list[int] | None = None  # tokens that float32 would have chosen otherwise
    alternatives: list[outputs.AlternativeTranslation] | None = None
    parts: list[PartInfo] | None = None
    candidates: list[outputs.ScoredCandidate] | None = None
    gaps: list[outputs.Gap] | None = None
    before: "Answer | None" = None
    """The answer without edits; this and the next two are present only under edits."""
    compare: list[Comparison] | None = None
    """Probabilities of the answer without edits, with and without them."""
    unmet: list[dict[str, Any]] | None = None  # edits of positions that the new text does not have


@dataclass(frozen=True)
class AnsweredRun:
    """A trace and the model's answer."""

    trace: Trace
    answer: Answer
    predictions: Predictions | None = None
    """The most probable tokens at each position of a model that predicts tokens."""


class _WritingProgress(ProgressListener):
    """Counts the parts of a text if it has several, and attention sites otherwise."""

    def __init__(self, job: Job, doing: str) -> None:
        super().__init__(job, doing)
        self._several = False

    def report_parts(self, doing: str, done: int, of: int) -> None:
        """Report finished parts; raises an error if the job was canceled."""
        self._several = of > 1
        if self._several:
            self.job.report(doing, done, of)

    def see(self, tapped: Tapped) -> Any:
        if not self._several:
            return super().see(tapped)
        self.job.check()
        return tapped.value


def answer(
    model: Model, given: ModelInput, request: TraceRequest, edits: Sequence[Edit], job: Job
) -> AnsweredRun:
    """Run a model under edits; a translator searches for its target if none is given."""
    n_sites = sum(hasattr(module, "to_query") for module in model.module.modules())
    progress = ProgressListener(job, "tracing", n_sites or None)
    search = SearchOptions(beam=request.beam, n_best=request.beam)
    if is_translator(model) and given.target is None:
        progress = _WritingProgress(job, "writing")
        job.report("writing", 0)
    with listen(progress):
        trace = trace_answer(
            model,
            given.content,
            given.target,
            edits=edits,
            search=search,
            missing="ignore",
            precision="float32" if edits else request.precision,
            progress=progress.report_parts if isinstance(progress, _WritingProgress) else None,
        )
    if given.target is not None:  # the text is one part
        source = given.content if isinstance(given.content, str) else ""
        trace.output = replace(trace.output, part_source=source)
    elif request.part >= len(trace.parts):
        raise ApiError("unknown_part", part=request.part, count=len(trace.parts))
    return _describe(trace, request)


def answer_edited(
    model: Model,
    given: ModelInput,
    request: TraceRequest,
    changes: Changes,
    before: AnsweredRun,
    job: Job,
) -> AnsweredRun:
    """Run a model under the edits of a request, and compare with the answer before them."""
    edits, tokens = changes
    if not is_translator(model):
        given = model_inputs.replace_tokens(model, given, tokens, answer_ids=None)
        with listen(ProgressListener(job, "tracing")):
            trace = trace_model(model, given.content, edits=edits)
        compare = _compare_candidates(before.answer, trace)  # before the logits are dropped
        return _compared(_describe(trace, request), before, compare, unmet=[])
    part = ModelInput(before.trace.output.part_source or given.content, given.target)
    edited = model_inputs.replace_tokens(model, part, tokens, answer_ids=before.answer.ids)
    target = model_inputs.target_ids(model, before.answer.ids)
    with listen(ProgressListener(job, "tracing")):  # with the same target, every edit must apply
        forced = trace_model(model, edited.content, target, edits=edits)
    compare = [
        Comparison(at=at, name=token.text, before=token.probability, after=exp(log_prob))
        for at, (token, log_prob) in enumerate(
            zip(before.answer.tokens or (), forced.output.log_probs, strict=True)
        )
    ]
    if edited.target is not None and model_inputs.target_ids(model, edited.target) == target:
        after = _describe(forced, request)
    elif tokens:
        after = answer(model, edited, request.model_copy(update={"part": 0}), edits, job)
    else:
        after = answer(model, given, request, edits, job)
    unmet = [edit.to_dict() for edit in edits if not _applies(edit, after.trace)]
    return _compared(after, before, compare, unmet)


def _applies(edit: Edit, trace: Trace) -> bool:
    """Return True if the positions of an edit exist at one of its sites."""
    if isinstance(edit, Patch):
        row, site = edit.position or edit.query or 0, edit.path.rpartition(".")[0]
        lengths = [one.n_query for path, one in trace.sites.items() if fnmatchcase(path, site)]
        values = (value for path, value in trace.values.items() if fnmatchcase(path, edit.path))
        return any(row < length for length in (*lengths, *(value.size(-2) for value in values)))
    return not isinstance(edit, CellEdit) or any(
        (edit.query or 0) < site.n_query and (edit.key or 0) < site.n_key
        for path, site in trace.sites.items()
        if fnmatchcase(path, edit.site)
    )


def _compared(after: AnsweredRun, before: AnsweredRun, compare: Any, unmet: Any) -> AnsweredRun:
    fields = {"before": before.answer, "compare": compare, "unmet": unmet}
    return replace(after, answer=after.answer.model_copy(update=fields))


def next_tokens(
    trace: Trace, model: Model, text: str, *, temperature: float, count: int
) -> list[NextToken]:
    """Return the most probable next tokens of a language model's trace at a temperature."""
    tokenizer = model.tokenizer
    logits = trace.values["output.logits"][0, -1]
    if temperature == 0:
        probabilities = torch.nn.functional.one_hot(logits.argmax(), len(logits)).to(logits.dtype)
    else:
        probabilities = (logits.double() / temperature).softmax(-1)
    best, ids = probabilities.topk(min(count, len(logits)))
    return [
        NextToken(
            id=id,
            name=str(id) if tokenizer is None else tokenizer.label_of(id),
            probability=probability,
            text=continued(text, model, [id]),
        )
        for id, probability in zip(ids.tolist(), best.tolist(), strict=True)
    ]


def continued(text: str, model: Model, written: Sequence[int]) -> str | None:
    """Return the text with more tokens; None if these tokens have no text."""
    ids, tokenizer = ModelInput(text).source_ids(model), model.tokenizer
    if tokenizer is not None and any(id >= len(tokenizer) for id in written):
        return None  # an output that no token belongs to
    texts = (ids, [*ids, *written])
    before, after = ("" if tokenizer is None else tokenizer.decode(x) for x in texts)
    if before == after:
        return None
    return text + after.removeprefix(before) if after.startswith(before) else after


def _describe(trace: Trace, request: TraceRequest) -> AnsweredRun:
    """Return the answer of a trace, and drop the values that the page does not request."""
    parts, part = trace.parts, trace.parts[min(request.part, len(trace.parts) - 1)]
    fields: dict[str, Any] = {"kind": "none"}
    output = part.output
    if isinstance(output, outputs.TranslationOutput):
        fields = {
            "kind": "translation",
            "text": output.text,
            "ids": output.ids,
            "tokens": _tokens(part, "output", output.log_probs),
            "score": output.score,
            "beam": request.beam,
            **{name: getattr(output, name) for name in ("engine", "precision", "differs")},
            "alternatives": output.alternatives,
            "parts": [
                PartInfo(source=one.output.part_source, text=one.output.part_text) for one in parts
            ],
        }
    elif isinstance(output, outputs.NextTokenOutput):
        fields = {"kind": "next", "candidates": output.candidates}
        fields["tokens"] = _tokens(part, "target", [None, *output.log_probs])
    elif isinstance(output, outputs.FillOutput) and output.gaps:
        fields = {"kind": "filled", "gaps": output.gaps}
    elif isinstance(output, outputs.ClassificationOutput):
        fields = {"kind": "classes", "candidates": output.candidates}
    logits = part.values.get("output.logits")
    predicted = None if logits is None else predictions(logits[0])
    stored = _stored_values(part.values)
    if logits is not None and fields["kind"] in ("next", "translation"):
        if logits.nbytes <= LIMITS.logit_bytes:  # figures of writing
            stored["output.logits"] = logits
        elif fields["kind"] == "next":  # needed for other temperatures
            stored["output.logits"] = logits[:, -1:].clone()
    part.values, part.later_parts = stored, []
    return AnsweredRun(part, Answer(output=plain(output), **fields), predicted)


def _stored_values(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values to keep: of a long text, hidden layers can be computed again."""
    activations = {x: value for x, value in values.items() if x.endswith(".activation")}
    streams = {x: value for x, value in values.items() if x.endswith(_STORED_VALUES)}
    if sum(value.nbytes for value in activations.values()) > LIMITS.activation_bytes:
        return streams
    return {x: streams[x] for x in streams if ".feed_forward.input" not in x} | activations


def _tokens(trace: Trace, side: str, log_probs: Sequence[float | None]) -> list[TokenInfo]:
    rows = zip(trace.tokens[side], trace.words[side], log_probs, strict=True)
    return [
        TokenInfo(text=text, word=word, probability=None if value is None else exp(value))
        for text, word, value in rows
    ]


def _compare_candidates(before: Answer, trace: Trace) -> list[Comparison]:
    """Compare the probabilities of the candidates of the earlier answer."""
    values, groups = trace.values, []
    if before.kind == "next":
        groups.append((None, values["output.logits"][0, -1], before.candidates))
    elif before.kind == "classes":
        groups.append((None, values["output.classes"][0], before.candidates))
    gaps = before.gaps or ()
    groups += [(x.position, values["output.logits"][0, x.position], x.candidates) for x in gaps]
    return [
        Comparison(at=at, name=one.name, before=one.probability, after=after[one.id])
        for at, logits, candidates in groups
        for after in [logits.softmax(-1).tolist()]
        for one in candidates
    ]
