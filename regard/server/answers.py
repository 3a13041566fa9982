"""One request, done: the model runs on a text or image under edits, and answers.

| family               | kind of answer | what it holds                                            |
|----------------------|----------------|----------------------------------------------------------|
| transformer, seq2seq | translation    | text, tokens with probabilities, the beam's alternatives |
| decoder              | next           | what may come next; how probable each token read was     |
| encoder              | filled         | candidates for each gap                                  |
| encoder, vision      | classes        | the most probable classes                                |
| encoder              | none           | vectors only                                             |

An answer under edits also has `before` (the same without them), `compare` (how probable what was
said before is now) and `unmet` (edits of positions that the new text no longer has).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import torch
from torch import Tensor

from regard.analysis.site_json import plain
from regard.errors import InputError
from regard.generation.search import Found
from regard.model import Model
from regard.server.edit_json import PutToken, write_edit
from regard.server.edited_search import search
from regard.server.jobs import Job, Watching
from regard.server.model_inputs import Given, fitting, put_tokens, target_ids, with_ends
from regard.server.requests import AskTrace
from regard.server.trace_store import Kept
from regard.tap import listen
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import trace_model
from regard.trace.edits import Edit
from regard.trace.trace import Trace

HOTTEST = 100.0


def following(
    kept: Kept, tokenizer: Tokenizer | None, *, temperature: float, count: int
) -> list[dict[str, Any]]:
    """The most probable next tokens of a language model's trace, the best first."""
    if kept.answer["kind"] != "next":
        raise InputError("only a language model says what comes next.")
    if not 0 <= temperature <= HOTTEST:
        raise InputError(f"temperature is {temperature}; ask for 0 to {HOTTEST:.0f}.")
    logits = kept.trace.values["output.logits"][0, -1]
    chances, ids = _chances(logits, temperature).topk(min(count, len(logits)))
    names = [str(id) if tokenizer is None else tokenizer.token_of(id) for id in ids.tolist()]
    texts = [None if tokenizer is None else _text_with(kept, tokenizer, id) for id in ids.tolist()]
    rows = zip(ids.tolist(), names, chances.tolist(), texts, strict=True)
    return [
        {"id": id, "name": name, "probability": chance, "text": text}
        for id, name, chance, text in rows
    ]


def _chances(logits: Tensor, temperature: float) -> Tensor:
    """The probabilities at a temperature; at 0 the largest logit has all."""
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).to(logits.dtype)
    return (logits.double() / temperature).softmax(-1)


def _text_with(kept: Kept, tokenizer: Tokenizer, id: int) -> str | None:
    """The text that was read with one more token; None if that token is no text."""
    text = kept.asked["text"]
    before = tokenizer.encode(text)
    if len(before) > 1 and before[-1] == tokenizer.end_id:
        before = before[:-1]
    plain, longer = tokenizer.decode(before), tokenizer.decode([*before, id])
    if plain == longer:
        return None
    return text + longer.removeprefix(plain) if longer.startswith(plain) else longer


_KEPT = (".input", ".joined", ".output", ".residual", "embedding.patches")
"""Values that the page can ask for; the others are let go, for they take most of the room."""


@dataclass(frozen=True)
class Changes:
    """What a request changes: inside the model, and among the tokens it reads."""

    inner: Sequence[Edit] = ()
    tokens: Sequence[PutToken] = ()

    def __bool__(self) -> bool:
        return bool(self.inner or self.tokens)


@dataclass(frozen=True)
class Run:
    """A trace and the answer that came with it."""

    trace: Trace
    answer: dict[str, Any]


def run(model: Model, given: Given, ask: AskTrace, job: Job) -> Run:
    """Run the model on what is given, without edits."""
    if model.family in ("transformer", "seq2seq"):
        return _translate(model, given, ask, (), job)
    return _finished(_traced(model, given.content, None, (), job))


def run_changed(
    model: Model, given: Given, ask: AskTrace, changes: Changes, before: Run, job: Job
) -> Run:
    """Run the model under changes, and compare with what it answered before."""
    given = put_tokens(model, given, changes.tokens, written=before.answer.get("ids"))
    unmet: list[Edit] = []
    if model.family in ("transformer", "seq2seq"):
        fitting(changes.inner, before.trace, strict=True)
        after = _translate(model, given, ask, changes.inner, job)
        same = after.answer["ids"] == before.answer["ids"]
        forced = after.trace if same else _forced(model, given, changes.inner, before, job)
        told = _chances_now(before.answer, forced)
        met = fitting(changes.inner, after.trace)
        unmet = [edit for edit in changes.inner if edit not in met]
    else:
        trace = _traced(model, given.content, None, changes.inner, job)
        told = _candidates_now(before.answer, trace)
        after = _finished(trace)
    compared = {"before": before.answer, "compare": told}
    compared["unmet"] = [write_edit(edit) for edit in unmet]
    return Run(after.trace, {**after.answer, **compared})


def _translate(model: Model, given: Given, ask: AskTrace, edits: Sequence[Edit], job: Job) -> Run:
    """The answer of a translator: what it writes itself, unless a target is given."""
    source, found = given.source_ids(model), list[Found]()
    if given.target is None:
        found = search(model, source, beam=ask.beam, edits=edits, job=job)
        target = with_ends(model, found[0].ids)
    else:
        target = target_ids(model, given.target)
    lengths = len(source), len(target) - 1
    trace = _traced(model, given.content, target, fitting(edits, lengths), job)
    made = _finished(trace)
    written = model.target_tokenizer
    others = [
        {"text": "" if written is None else written.decode(one.ids), "score": one.score}
        | {"ids": one.ids}
        for one in found[1:]
    ]
    score = found[0].score if found else None
    return Run(trace, {**made.answer, "score": score, "beam": ask.beam, "alternatives": others})


def _traced(model: Model, content: Any, target: Any, edits: Sequence[Edit], job: Job) -> Trace:
    n_sites = sum(hasattr(module, "to_query") for module in model.module.modules())
    with listen(Watching(job, "tracing", n_sites or None)):
        return trace_model(model, content, target, edits=edits)


def _finished(trace: Trace) -> Run:
    """The answer as JSON; what nobody will look at is let go."""
    output = trace.output or {}
    answer: dict[str, Any] = {"kind": "none", "output": plain(output)}
    if "ids" in output:
        answer |= {"kind": "translation", "text": output["text"], "ids": output["ids"]}
        answer["tokens"] = _tokens(trace, "output", output["log_probabilities"])
    elif "next" in output:
        answer |= {"kind": "next", "candidates": output["next"]}
        answer["tokens"] = _tokens(trace, "target", [None, *output["log_probabilities"]])
    elif output.get("filled"):
        answer |= {"kind": "filled", "gaps": output["filled"]}
    elif "classes" in output:
        answer |= {"kind": "classes", "candidates": output["classes"]}
    kept = {path: x for path, x in trace.values.items() if _is_looked_at(path)}
    if answer["kind"] == "next":  # other temperatures give other chances
        kept["output.logits"] = trace.values["output.logits"][:, -1:].clone()
    trace.values = kept
    return Run(trace, answer)


def _is_looked_at(path: str) -> bool:
    return path.endswith(_KEPT) and ".feed_forward." not in path


def _tokens(
    trace: Trace, side: str, log_probabilities: Sequence[float | None]
) -> list[dict[str, Any]]:
    rows = zip(trace.tokens[side], trace.words[side], log_probabilities, strict=True)
    return [
        {"text": text, "word": word, "probability": None if chance is None else exp(chance)}
        for text, word, chance in rows
    ]


def _forced(model: Model, given: Given, edits: Sequence[Edit], before: Run, job: Job) -> Trace:
    """What the model computes if it writes the same as before."""
    target = with_ends(model, before.answer["ids"])
    lengths = len(given.source_ids(model)), len(target) - 1
    return _traced(model, given.content, target, fitting(edits, lengths), job)


def _chances_now(before: dict[str, Any], forced: Trace) -> list[dict[str, Any]]:
    """How probable each token that was written before is now, if all before it stay."""
    rows = zip(before["tokens"], forced.output["log_probabilities"], strict=True)
    return [
        {"at": at, "name": token["text"], "before": token["probability"], "after": exp(chance)}
        for at, (token, chance) in enumerate(rows)
    ]


def _candidates_now(before: dict[str, Any], trace: Trace) -> list[dict[str, Any]]:
    """How probable the candidates of the answer before are now."""
    lists: list[tuple[int | None, Tensor, list[dict[str, Any]]]] = []
    if before["kind"] == "next":
        logits = trace.values["output.logits"][0, -1]
        lists.append((None, logits, before["candidates"]))
    elif before["kind"] == "classes":
        lists.append((None, trace.values["output.classes"][0], before["candidates"]))
    elif before["kind"] == "filled":
        logits = trace.values["output.logits"][0]
        lists += [
            (gap["position"], logits[gap["position"]], gap["candidates"]) for gap in before["gaps"]
        ]
    return [
        {"at": at, "name": one["name"], "before": one["probability"]}
        | {"after": float(logits.softmax(-1)[one["id"]])}
        for at, logits, candidates in lists
        for one in candidates
    ]
