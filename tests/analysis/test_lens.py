"""The lens: the last station is the model's output, in every family, with and without norms."""

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.trace.edits import ablate
from regard.trace.trace import Trace
from tests.analysis.families import LAYERS, TEXT, own_logits, trace_of


def test_the_last_station_is_the_models_own_output(any_model):
    trace = trace_of(any_model)
    found = trace.lens(count=3)
    expected = own_logits(trace).softmax(-1)
    values, ids = expected.topk(3)
    assert_close(found.probabilities[-1], values, atol=1e-5, rtol=0)
    assert torch.equal(found.ids[-1], ids)
    entropy = -(expected * expected.log2()).sum(-1)
    assert_close(found.entropy[-1], entropy, atol=1e-4, rtol=0)
    assert_close(found.divergence[-1], torch.zeros_like(entropy))
    assert found.divergence[0].min() >= 0
    assert found.divergence[:-1].max() > 0
    answered = expected.gather(-1, found.answers[:, None])[:, 0]
    assert_close(found.answer_probabilities[-1], answered, atol=1e-5, rtol=0)


def test_a_station_is_the_norm_and_the_unembedding_of_that_station(make_bundle):
    model = make_bundle("decoder", settings={**LAYERS, "norm": "pre"})
    trace, module = model.trace(TEXT), model.module
    found = trace.lens()
    assert found.norm == "layer"
    assert found.stations[:3] == (
        "decoder.embedding.output",
        "decoder.layers.0.self.residual",
        "decoder.layers.0.feed_forward.residual",
    )
    stream = trace.value("decoder.layers.0.self.residual")[0]
    with torch.no_grad():
        table = (module.decoder.norm(stream) @ module.tokens.weight.T).softmax(-1)
    assert_close(found.probabilities[1], table.topk(5).values)
    final = own_logits(trace).softmax(-1)
    assert_close(found.divergence[1], (final * (final / table).log2()).sum(-1), atol=1e-4, rtol=0)


def test_a_post_norm_model_has_no_final_norm_and_says_so(make_bundle):
    model = make_bundle("transformer", settings={"norm": "post"})
    found = trace_of(model).lens()
    assert found.norm == "none"
    assert found.stations[1:] == (
        "decoder.layers.0.self.residual",
        "decoder.layers.0.cross.residual",
        "decoder.layers.0.feed_forward.residual",
    )


def test_long_texts_are_read_in_chunks_with_the_same_result(make_bundle, monkeypatch):
    trace = make_bundle("decoder", settings=LAYERS).trace(TEXT)
    whole = trace.lens()
    monkeypatch.setattr("regard.analysis.lens._CHUNK", 1)
    parts = trace.lens()
    assert torch.equal(whole.ids, parts.ids)
    assert_close(whole.divergence, parts.divergence)


def test_some_positions_are_those_of_the_whole(any_model):
    trace = trace_of(any_model)
    whole, some = trace.lens(), trace.lens(rows=slice(1, 3))
    rows = slice(None) if whole.entries == "classes" else slice(1, 3)
    assert some.positions == whole.positions[rows]
    assert torch.equal(some.ids, whole.ids[:, rows])
    assert torch.equal(some.answers, whole.answers[rows])
    if whole.entries == "tokens":
        with pytest.raises(InputError, match="no position"):
            trace.lens(rows=slice(99, 100))


def test_a_lens_follows_an_edit_and_is_written_as_json(make_bundle):
    model = make_bundle("decoder", settings=LAYERS)
    edited = model.trace(TEXT, edits=[ablate("decoder.layers.1.self")])
    found, before = edited.lens(), model.trace(TEXT).lens()
    assert_close(found.entropy[:3], before.entropy[:3])
    assert not torch.allclose(found.entropy[-1], before.entropy[-1])
    data = found.to_dict()
    best = data["ids"][-1][-1][0]
    assert data["names"][str(best)] == edited.output.candidates[0].name
    assert repr(found).startswith("<Lens of 5 stations")


def test_traces_that_cannot_be_read_say_why(make_bundle, tmp_path):
    trace = make_bundle("decoder").trace(TEXT)
    trace.save(tmp_path / "trace.safetensors")
    with pytest.raises(InputError, match="has no model"):
        Trace.load(tmp_path / "trace.safetensors").lens()
    with pytest.raises(InputError, match="recurrent model"):
        make_bundle("seq2seq").trace(TEXT, "Ein Hund.").lens()
    with pytest.raises(InputError, match="neither tokens nor classes"):
        make_bundle("encoder", settings={"fill_head": False}).trace(TEXT).lens()
