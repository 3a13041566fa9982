"""Recurrent models step by step: caches that change nothing, what is watched, and edits."""

import pytest
import torch
from torch.testing import assert_close

import regard
from tests.models.small_seq2seq import LENGTHS, SITE, SOURCE, TARGET, VARIANTS, seq2seq, variant


@pytest.fixture(params=VARIANTS, ids="-".join)
def model(request):
    return variant(*request.param)


def test_decoding_with_a_cache_equals_decoding_at_once(model):
    memory = model.encode(SOURCE, LENGTHS)
    expected = model.decode(TARGET, memory, LENGTHS)
    cache = model.new_cache()
    parts = [
        model.decode(part, memory, LENGTHS, cache=cache)
        for part in (TARGET[:, :1], TARGET[:, 1:3], TARGET[:, 3:])
    ]
    assert_close(torch.cat(parts, dim=1), expected)
    assert cache["decoder"].length == 4


def test_rows_of_a_cache_move_and_leave_as_beams_do(model):
    memory = model.encode(SOURCE, LENGTHS)
    cache = model.new_cache()
    model.decode(TARGET[:, :2], memory, LENGTHS, cache=cache)
    rows = torch.tensor([2, 0, 2, 1])
    for part in cache.values():
        part.keep(rows)
    found = model.decode(TARGET[rows, 2:3], memory[rows], LENGTHS[rows], cache=cache)
    expected = model.decode(TARGET[rows, :3], memory[rows], LENGTHS[rows])[:, 2:]
    assert len(memory[rows]) == 4
    assert_close(found, expected)


def test_a_recorded_run_with_a_cache_joins_its_steps(model):
    with regard.watch() as whole:
        memory = model.encode(SOURCE, LENGTHS)
        model.project(model.decode(TARGET, memory, LENGTHS))
    with regard.watch() as stepwise:
        memory, cache = model.encode(SOURCE, LENGTHS), model.new_cache()
        for i in range(4):
            states = model.decode(TARGET[:, i : i + 1], memory, LENGTHS, cache=cache)
            model.project(states, first=i)
    assert whole.values.keys() == stepwise.values.keys()
    for path, value in whole.values.items():
        assert_close(stepwise.value(path), value)
    for path in whole:
        assert_close(stepwise[path].weights(batch=1), whole[path].weights(batch=1))


def test_recording_changes_no_result(model):
    with regard.watch() as trace:
        watched = model(SOURCE, TARGET, LENGTHS)
    assert_close(model(SOURCE, TARGET, LENGTHS), watched)
    if model.alignment is not None:
        memory = model.encode(SOURCE, LENGTHS)
        assert_close(trace[SITE].key, memory.states[:, None])
        assert_close(trace[SITE].value, memory.states[:, None])
        context = trace.value("decoder.cross.context")[:, 0]
        assert_close(context, torch.stack([trace[SITE].context(0, batch=i) for i in range(3)]))


@pytest.mark.parametrize("attention", ["additive", "dot", "general"])
def test_every_edit_of_the_alignment_has_its_effect(attention):
    model = seq2seq(attention=attention)
    plain = model(SOURCE, TARGET, LENGTHS)

    def run(*edits):
        with regard.watch(edits=edits) as trace:
            logits = model(SOURCE, TARGET, LENGTHS)
        return logits, trace[SITE]

    logits, site = run(regard.forbid(SITE, query=1, key=0))
    assert_close(logits[:, 0], plain[:, 0])
    assert not torch.allclose(logits[0, 1], plain[0, 1])
    weights = site.weights(head=0, batch=0)
    assert weights[1, 0] == 0
    assert weights[0, 0] > 0
    assert weights[2, 0] > 0
    assert_close(weights.sum(-1), torch.ones(3))
    # the third sentence has one word: with it forbidden the decoder sees nothing, not NaN
    assert torch.isfinite(logits).all()
    assert_close(site.context(0, batch=2, rows=1), torch.zeros(1, 6))

    ablated, _ = run(regard.ablate(SITE))
    weightless, _ = run(regard.set_weights(SITE, 0.0))
    assert_close(ablated, weightless)
    assert not torch.allclose(ablated, plain)

    table = torch.eye(3, 5)
    _, site = run(regard.set_weights(SITE, table))
    assert_close(site.weights(head=0, batch=0), table)
    assert_close(site.context(0, batch=0), site.value[0, 0, :3])

    _, site = run(regard.temperature(SITE, 0.0))
    assert (site.weights(head=0, batch=0).amax(-1) == 1).all()

    _, site = run(regard.set_scores(SITE, 50.0, query=2, key=1))
    assert site.weights(head=0, batch=0)[2].argmax() == 1


def test_initial_states_and_fed_predictions_are_recorded_and_changed():
    model = seq2seq(input_feeding=True)
    plain = model(SOURCE, TARGET, LENGTHS)
    with regard.watch() as trace:
        model(SOURCE, TARGET, LENGTHS)
    memory = model.encode(SOURCE, LENGTHS)
    for i, bridge in enumerate(model.bridges):
        start = bridge(memory.last[i])
        assert_close(trace.value(f"decoder.layers.{i}.first_hidden"), start.hidden)
        assert_close(trace.value(f"decoder.layers.{i}.first_cell"), start.cell)
    joined = trace.value("decoder.layers.0.input")
    fed = trace.value("decoder.output")
    assert_close(joined[:, 1:, -6:], fed[:, :-1])
    assert not joined[:, 0, -6:].any()
    for path in ("decoder.layers.1.first_cell", "encoder.output", "decoder.embedding.tokens"):
        with regard.watch(edits=[regard.set_value(path, 0.0)]):
            assert not torch.allclose(model(SOURCE, TARGET, LENGTHS), plain)


def test_replacements_for_all_steps_are_applied_step_by_step():
    model = seq2seq(input_feeding=True)
    outputs = torch.randn(3, 3, 6)
    with regard.watch(edits=[regard.set_value("decoder.output", outputs)]) as trace:
        logits = model(SOURCE, TARGET, LENGTHS)
    assert_close(logits, model.project(outputs))
    assert_close(trace.value("decoder.layers.0.input")[:, 1:, -6:], outputs[:, :-1])
