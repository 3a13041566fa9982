"""Sweeps: one batch for each site gives what one run for each head gives."""

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.trace.edits import ablate, temperature
from tests.analysis.families import TEXT, own_logits, trace_of


def given_of(model):
    """An input with an answer, and its target."""
    if model.family == "vision":
        return torch.linspace(-1, 1, 192).view(3, 8, 8), None
    masked = model.family == "encoder" and model.module.fill is not None
    target = "Ein Hund läuft." if model.family in ("transformer", "seq2seq") else None
    return "A dog [MASK] along." if masked else TEXT, target


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_a_sweep_equals_switching_off_one_head_at_a_time(any_model, to):
    given, target = given_of(any_model)
    others = [temperature("*.self", 0.5)]
    found = any_model.sweep(given, target, to=to, edits=others)
    assert len(found.ranked()) == sum(
        site.n_heads for site in any_model.trace(given, target).sites.values()
    )
    for path, table in found.changes.items():
        for head, changes in enumerate(table):
            edits = [*others, ablate(path, head=head, to=to)]
            logits = own_logits(any_model.trace(given, target, edits=edits)).log_softmax(-1)
            for i, (id, position) in enumerate(zip(found.ids, found.positions, strict=True)):
                after = float(logits[position or 0, id])
                assert float(changes[i]) == pytest.approx(after - found.log_probs[i], abs=1e-5)


def test_one_head_at_a_time_for_long_texts(any_model, monkeypatch):
    given, target = given_of(any_model)
    whole = any_model.sweep(given, target)
    monkeypatch.setattr("regard.analysis.sweep._TOKENS_AT_ONCE", 1)
    parts = any_model.sweep(given, target)
    for path, table in whole.changes.items():
        assert_close(table, parts.changes[path], atol=1e-5, rtol=0)


def test_a_translator_is_measured_on_its_own_answer(make_bundle):
    model = make_bundle("transformer", seed=3)
    found, trace = model.sweep(TEXT), model.trace(TEXT)
    assert found.ids == trace.output.ids
    assert list(found.tokens) == trace.tokens["output"]
    assert found.log_probs == pytest.approx(trace.output.log_probs, abs=1e-5)
    assert_close(found.total(found.ranked()[0][0]).min().item(), found.ranked()[0][2])
    assert found.to_dict()["changes"].keys() == trace.sites.keys()
    assert f"{found.ranked()[0][2]:+.4f}" in repr(found)


def test_a_recurrent_model_has_one_head(make_bundle):
    model = make_bundle("seq2seq")
    found = model.sweep(TEXT, "Ein Hund.")
    edited = model.trace(TEXT, "Ein Hund.", edits=[ablate("decoder.cross")])
    after = torch.tensor(edited.output.log_probs) - torch.tensor(found.log_probs)
    assert_close(found.changes["decoder.cross"][0].float(), after, atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="query by query"):
        model.sweep(TEXT, "Ein Hund.", to="mean")


def test_progress_counts_heads_and_can_cancel(make_bundle):
    model, seen = make_bundle("decoder", settings={"n_layers": 2}), []
    model.sweep(TEXT, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(2, 4), (4, 4)]

    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.sweep(TEXT, progress=stop)


def test_without_an_answer_there_is_nothing_to_measure(make_bundle):
    with pytest.raises(InputError, match=r"\[MASK\]"):
        make_bundle("encoder").sweep(TEXT)
    with pytest.raises(InputError, match="to is 'max'"):
        make_bundle("decoder").sweep(TEXT, to="max")


def test_what_the_sweep_reports_for_an_image(make_bundle):
    model = make_bundle("vision")
    found = model.sweep(given_of(model)[0])
    assert found.positions == (None,)
    assert found.tokens[0] in ("cat", "dog", "horse")
    assert trace_of(model).lens().positions == ("[class]",)
