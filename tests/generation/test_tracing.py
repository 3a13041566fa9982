"""A trace explains what was answered, and equals what the search computed at every site."""

import json
import subprocess
import sys
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from torch.testing import assert_close

import regard
from regard.errors import InputError, UnknownNameError
from regard.generation import torch_engine
from regard.generation.search import SearchOptions
from regard.generation.stepper import TranslationStepper
from regard.generation.tracing import alternatives_at, trace_answer
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from regard.tap import listen, split_path

LINES = ["one two three", "seven", "ten nine eight seven six five", "two two", "four one six"]
SHORT = {"factor": 0.5, "extra": 2}
SETTINGS = {
    "transformer": {"n_decoder_layers": 2},
    "pre-norm": {"norm": "pre", "n_encoder_layers": 2},
    "seq2seq": {},
}


def written_dates():
    return [f"{date(1950, 1, 1) + timedelta(131 * i):%d %B %Y}" for i in range(200)]


def everyday_lines():
    rows = (Path(__file__).parents[1] / "data" / "everyday.en-de.tsv").read_text("utf-8")
    lines = [row.partition("\t")[0] for row in rows.splitlines()[:15]]
    return [" ".join(lines[:2]), *lines[1:]]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "lines_of"), [("dates-transformer", written_dates), ("en-de", everyday_lines)]
)
def test_python_command_and_server_answer_and_trace_the_same(
    name, lines_of, no_shape_checks, tmp_path, monkeypatch
):
    monkeypatch.setenv("REGARD_WORKERS", "1")
    lines, file = lines_of(), tmp_path / "lines.txt"
    file.write_text("".join(line + "\n" for line in lines))
    run = [sys.executable, "-m", "regard"]
    command = subprocess.Popen(
        [*run, "translate", name, file], stdout=subprocess.PIPE, encoding="utf-8"
    )
    model = regard.load(name)
    answers = [one.text for one in model.translate(lines)]
    traces = [model.trace(line) for line in lines]
    assert [trace.output.text for trace in traces] == answers
    assert (len(traces[0].parts) > 1) == (name == "en-de")
    service = Service(Catalog([model.folder]))
    client = TestClient(make_app(service, version="0"), base_url="http://127.0.0.1")
    for line, answer in zip(lines, answers, strict=True):
        response = client.post("/api/trace", json={"model": name, "text": line})
        assert response.json()["answer"]["text"] == answer
    service.close()
    assert command.communicate(timeout=120)[0].splitlines() == answers
    subprocess.run([*run, "trace", name, lines[0], "-o", tmp_path / "trace.json"], check=True)
    assert json.loads((tmp_path / "trace.json").read_text())["output"]["text"] == answers[0]


def test_every_part_of_a_text_has_a_trace(toy_folder):
    model = regard.load(toy_folder)
    text = "One two three. Seven six."
    trace, answer = model.trace(text), model.translate(text, n_best=2, trace=True)
    assert trace.output.text == answer.text
    assert [part.output.part_text for part in trace.parts] == [part.text for part in answer.parts]
    assert [part.output.part_source for part in trace.parts] == ["One two three.", "Seven six."]
    for traced, other, part in zip(trace.parts, answer.traces, answer.parts, strict=True):
        assert traced.output.ids == (*part.ids, model.tokenizer.end_id)
        assert part.finished
        assert traced.output.score == pytest.approx(part.score)
        assert other.output.alternatives[0].text == answer.alternatives[0].parts[
            answer.parts.index(part)
        ].text  # fmt: skip
    assert len(trace.parts[1]["encoder.layers.0.self"].weights(0)) == len(
        answer.parts[1].source_ids
    )


def test_the_parts_of_a_text_are_counted_and_can_be_canceled(toy_folder):
    model, text, seen = regard.load(toy_folder), "One two three. Seven six. " * 3, []
    trace = trace_answer(model, text, progress=lambda *state: seen.append(state))
    assert trace.output.text == model.translate(text).text
    writing = [("writing", n, 6) for n in (0, 4, 6)]
    assert seen == [*writing, *(("tracing", n, 6) for n in range(1, 7))]

    def stop(doing: str, done: int, of: int) -> None:
        if done == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        trace_answer(model, text, progress=stop)


def test_ids_are_one_part_and_copied_texts_cannot_be_traced(toy_folder):
    model = regard.load(toy_folder)
    ids = model.tokenizer.encode("one two. Seven six.")
    assert len(model.trace(ids).parts) == 1
    with pytest.raises(InputError, match="nothing to trace"):
        model.trace("🍜")
    decoder = regard.load("shakespeare")
    assert decoder.trace("ROMEO:").output.candidates


@pytest.mark.parametrize(
    "edits",
    [
        [regard.ablate("decoder.layers.1.cross")],
        [regard.ablate("decoder.layers.1.self", to="mean")],
        [regard.forbid("encoder.layers.0.self", query=2, key=3)],
        [regard.set_weights("decoder.layers.0.self", 0.5, query=3, key=1, head=0)],
    ],
    ids=repr,
)
@torch.no_grad()
def test_translations_under_edits_are_found_by_rereading_the_whole_target(toy_folder, edits):
    model, text = regard.load(toy_folder), "one two three four. Seven six"
    trace = model.trace(text, edits=edits)
    assert trace.output.text == model.translate(text, edits=edits).text
    if edits[0].to_dict().get("to") == "mean":  # also over queries that the search had not read
        return
    greedy = trace_answer(model, "one two three four", edits=edits, search=SearchOptions(beam=1))
    suppressed = [model.tokenizer.pad_id, model.tokenizer.start_id, model.tokenizer.unknown_id]
    logits = greedy.value("output.logits")[0].clone()
    logits[:, [id for id in suppressed if id is not None]] = -torch.inf
    assert logits.argmax(-1).tolist() == list(greedy.output.ids)


def test_edits_that_apply_nowhere_are_refused(toy_folder):
    model = regard.load(toy_folder)
    far = regard.forbid("encoder.layers.0.self", query=99, key=1)
    for edit, message in (
        (far, "query 99"),
        (regard.ablate("decoder.layers.0.self", head=9), "has no head 9"),
        (regard.ablate("nowhere"), "matched nothing"),
    ):
        for call in (model.trace, model.translate):
            with pytest.raises(UnknownNameError, match=message):
                call("one two", edits=[edit])
    plain = trace_answer(model, "one two", edits=[far], missing="ignore")
    assert plain.output.text == model.translate("one two").text
    # a position that only one of the parts has
    later = regard.forbid("encoder.layers.0.self", query=6, key=1)
    assert len(model.trace("Two. One two three four five six.", edits=[later]).parts) == 2
    with pytest.raises(InputError, match="CTranslate2 does not support edits"):
        model.translate("one", edits=[far], engine="ctranslate2")


@pytest.mark.parametrize("edit", [regard.allow, partial(regard.set_weights, value=0.5)])
def test_a_token_that_is_not_written_yet_cannot_be_shown(toy_folder, edit):
    model, site = regard.load(toy_folder), "decoder.layers.0.self"
    written = model.translate("one two three four")
    later = edit(site, query=0, key=2)
    with pytest.raises(InputError, match="does not exist when the model writes: give the target"):
        model.trace("one two three four", edits=[later])
    with pytest.raises(InputError, match="names a query that does not exist"):
        model.translate("one two three four", edits=[later])
    # a target is read as a whole, and encoders read everything
    trace = model.trace("one two three four", written.text, edits=[later])
    assert trace[site].weights(0)[0, 2] > 0
    known = edit("encoder.layers.0.self", query=0, key=2)
    answer = model.translate("one two three four", edits=[known]).text
    assert model.trace("one two three four", edits=[known]).output.text == answer


def test_alternatives_follow_from_the_prefix(toy_folder):
    model = regard.load(toy_folder)
    source = model.tokenizer.encode("one two three")
    best = model.translate("one two three").parts[0].ids
    found = alternatives_at(model, source, best[:1], count=3)
    assert len(found) == 3
    assert found[0].token == best[1]
    assert found[0].continuation.ids == best
    edited = alternatives_at(
        model, source, best[:1], edits=[regard.ablate("decoder.layers.*.cross")], count=3
    )
    assert edited[0].log_prob != found[0].log_prob


class Weights:
    """Records all attention weights."""

    changes = False

    def __init__(self):
        self.seen = {}

    def wants(self, path):
        return path.endswith(".weights")

    def see(self, tapped):
        if tapped.path.endswith(".weights"):
            self.seen[split_path(tapped.path)[0]] = tapped.value.clone()
        return tapped.value


class RecordingStepper(TranslationStepper):
    """Decodes with caches and records the weights of every row's history."""

    histories = {}  # noqa: RUF012  (source, target so far) → site → weights of each step

    def __init__(self, module, source_ids, source_lengths, **options):
        self.listener = Weights()
        with listen(self.listener):
            super().__init__(module, source_ids, source_lengths, **options)
        rows = zip(source_ids.tolist(), source_lengths.tolist(), strict=True)
        self.sources = [tuple(ids[:n]) for ids, n in rows]
        self.read = [()] * len(self.sources)
        self.past = [
            {site: [table[row]] for site, table in self.listener.seen.items()}
            for row in range(self.n_rows)
        ]

    def step(self, ids):
        self.listener.seen = {}
        with listen(self.listener):
            log_probs = super().step(ids)
        for row, new in enumerate(ids.tolist()):
            self.read[row] += tuple(new)
            past = self.past[row] = dict(self.past[row])
            for site, table in self.listener.seen.items():
                past[site] = [*past.get(site, ()), table[row]]
            self.histories[self.sources[row], self.read[row]] = past
        return log_probs

    def keep(self, rows):
        super().keep(rows)
        for name in ("sources", "read", "past"):
            setattr(self, name, [getattr(self, name)[row] for row in rows.tolist()])


def assert_same_at_every_site(trace, history):
    """Compare heads × queries of each step × keys known by then, some of which are padding."""
    assert set(history) == set(trace)
    for site, steps in history.items():
        weights, first = trace[site].weights(), 0
        for step in steps:
            n_query = min(step.size(-2), weights.size(-2))
            n_key = min(step.size(-1), weights.size(-1))
            rows = weights[:, first : first + n_query]
            assert_close(step[:, :n_query, :n_key], rows[..., :n_key], atol=1e-5, rtol=0)
            assert not rows[..., n_key:].any()
            assert not step[:, :n_query, n_key:].any()
            first += n_query
        assert first >= weights.size(-2) - 1
    assert any(len(steps) > 1 for steps in history.values())


@pytest.mark.parametrize(("kind", "beam"), [("transformer", 4), ("pre-norm", 1), ("seq2seq", 4)])
def test_a_trace_equals_what_stepwise_search_computed(make_folder, monkeypatch, kind, beam):
    monkeypatch.setattr(torch_engine, "can_run", lambda module: False)
    monkeypatch.setattr(torch_engine, "TranslationStepper", RecordingStepper)
    monkeypatch.setattr(RecordingStepper, "histories", {})
    family = "seq2seq" if kind == "seq2seq" else "transformer"
    model = regard.load(make_folder(family, **SETTINGS[kind]))
    for one in model.translate(LINES, engine="torch", beam=beam, trace=True, **SHORT):
        (part,) = one.parts
        source, target = tuple(part.source_ids), (model.tokenizer.start_id, *part.ids)
        # the last token of a text that reached its limit was never read
        history = RecordingStepper.histories.get((source, target))
        history = history or RecordingStepper.histories[source, target[:-1]]
        assert_same_at_every_site(one.trace, history)
