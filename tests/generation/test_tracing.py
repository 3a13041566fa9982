"""A trace of what was written equals what was computed when it was written, at every site."""

import ctranslate2
import pytest
import torch
from torch.testing import assert_close

import regard
from regard.generation import torch_engine as plain
from regard.generation.ctranslate2_engine import converted
from regard.generation.stepper import TranslationStepper
from regard.tap import listen, split_path

LINES = ["one two three", "seven", "ten nine eight seven six five", "two two", "four one six"]
SHORT = {"factor": 0.5, "extra": 2}
SETTINGS = {
    "transformer": {"n_decoder_layers": 2},
    "pre-norm": {"norm": "pre", "n_encoder_layers": 2},
    "seq2seq": {},
}


class Weights:
    """Listens to all weights."""

    changes = False

    def __init__(self):
        self.heard = {}

    def wants(self, path):
        return path.endswith(".weights")

    def see(self, tapped):
        if tapped.path.endswith(".weights"):
            self.heard[split_path(tapped.path)[0]] = tapped.value.clone()
        return tapped.value


class Remembering(TranslationStepper):
    """Decodes step by step, with its caches, and remembers the weights of every row's history."""

    written = {}  # noqa: RUF012  (source, target so far) → site → rows of weights, one per step

    def __init__(self, model, source_ids, source_lengths):
        self.ear = Weights()
        with listen(self.ear):
            super().__init__(model, source_ids, source_lengths)
        rows = zip(source_ids.tolist(), source_lengths.tolist(), strict=True)
        self.sources = [tuple(ids[:n]) for ids, n in rows]
        self.read = [()] * len(self.sources)
        self.past = [
            {site: [table[row]] for site, table in self.ear.heard.items()}
            for row in range(self.n_rows)
        ]

    def step(self, ids):
        self.ear.heard = {}
        with listen(self.ear):
            log_probs = super().step(ids)
        for row, new in enumerate(ids.tolist()):
            self.read[row] += tuple(new)
            past = self.past[row] = dict(self.past[row])
            for site, table in self.ear.heard.items():
                past[site] = [*past.get(site, ()), table[row]]
            Remembering.written[self.sources[row], self.read[row]] = past
        return log_probs

    def keep(self, rows):
        super().keep(rows)
        for name in ("sources", "read", "past"):
            setattr(self, name, [getattr(self, name)[row] for row in rows.tolist()])


@pytest.fixture
def remembered(monkeypatch):
    # step by step by the model itself, which tests/generation/test_lean.py compares the other with
    monkeypatch.setattr(plain, "can_run", lambda model: False)
    monkeypatch.setattr(plain, "TranslationStepper", Remembering)
    monkeypatch.setattr(Remembering, "written", {})
    return Remembering.written


def folder_of(make_folder, kind):
    family = "seq2seq" if kind == "seq2seq" else "transformer"
    return make_folder(family, **SETTINGS[kind])


def history(remembered, model, part):
    """What was computed while this was written; a text of the longest allowed length has no end,
    so that its last token was never read."""
    key = tuple(part.source_ids), (model.tokenizer.start_id, *part.ids)
    return remembered[key] if key in remembered else remembered[key[0], key[1][:-1]]


def assert_same_at_every_site(trace, past):
    """Compares heads × queries of a step × keys known by then, some of which may be padding."""
    assert set(past) == set(trace)
    for site, steps in past.items():
        weights, first = trace[site].weights(), 0
        for step in steps:
            n_query, known = (
                min(step.size(-2), weights.size(-2)),
                min(step.size(-1), weights.size(-1)),
            )
            rows = weights[:, first : first + n_query]
            assert_close(step[:, :n_query, :known], rows[..., :known], atol=1e-5, rtol=0)
            assert not rows[..., known:].any()
            assert not step[:, :n_query, known:].any()
            first += n_query
        assert first >= weights.size(-2) - 1
    assert any(len(steps) > 1 for steps in past.values())


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("beam", [1, 4])
def test_the_trace_of_a_translation_is_what_stepwise_search_computed(
    make_folder, remembered, kind, beam
):
    model = regard.load(folder_of(make_folder, kind))
    for one in model.translate(LINES, engine="torch", beam=beam, trace=True, **SHORT):
        (part,) = one.parts
        assert_same_at_every_site(one.trace, history(remembered, model, part))


@pytest.mark.parametrize("kind", ["trained", "pre-norm"])
def test_the_trace_of_what_the_fast_engine_wrote_is_what_it_computed(
    make_folder, toy_folder, remembered, kind
):
    folder = toy_folder if kind == "trained" else folder_of(make_folder, kind)
    model = regard.load(folder)
    found = model.translate(LINES, engine="ctranslate2", beam=4, trace=True, **SHORT)
    written = [one.tokens for one in found]
    bare = ctranslate2.Translator(str(converted(folder, int8=False)), compute_type="float32")
    # The engine itself shows one table: the first head of the last layer's cross-attention.
    forced = bare.translate_batch(
        [one.source_tokens for one in found],
        target_prefix=written,
        max_decoding_length=99,
        return_attention=True,
        beam_size=1,
    )
    last = f"decoder.layers.{model.config.n_decoder_layers - 1}.cross"
    for one, result in zip(found, forced, strict=True):
        own = torch.tensor(result.attention[0][: len(one.tokens)])
        assert len(own) == len(one.tokens)
        assert_close(one.trace[last].weights(head=0)[: len(own)], own, atol=1e-5, rtol=0)
    # All tables are those of stepwise search with PyTorch, which writes the same.
    again = model.translate(LINES, engine="torch", beam=4, **SHORT)
    assert [one.tokens for one in again] == written
    for one in found:
        assert_same_at_every_site(one.trace, history(remembered, model, one.parts[0]))
