from dataclasses import replace
from math import nan

import pytest
import torch

from regard.doctor import proofs
from regard.doctor.proofs import (
    LENGTHS,
    PROOFS,
    Proof,
    largest_difference,
    make_batch,
    run_proofs,
    sample_inputs,
    tiny_model,
)
from regard.training.loader import PairBatch


def by_name(model):
    return {proof.name: proof for proof in run_proofs(model)}


def test_every_proof_holds_for_a_tiny_transformer_and_measures_something():
    proofs = by_name(tiny_model())
    names = ["padding", "batch size", "caching", "causality", "threads"]
    assert list(proofs) == [*names, "accumulation", "resuming"]
    assert all(proof.applies and proof.holds for proof in proofs.values())
    assert proofs["resuming"].difference == proofs["resuming"].bound == 0


@pytest.mark.parametrize(
    ("family", "idle"),
    [
        ("seq2seq", []),
        ("decoder", []),
        ("encoder", ["caching", "causality"]),
        ("vision", ["padding", "caching", "causality"]),
    ],
)
def test_proofs_of_every_family(make_bundle, family, idle):
    proofs = by_name(make_bundle(family, settings={"dropout": 0.1}))
    assert [name for name, proof in proofs.items() if not proof.applies] == idle
    assert all(proof.holds for proof in proofs.values())


def test_forms_without_a_cache_say_so():
    model = tiny_model()
    config = replace(model.config, attention="efficient")
    made = type(model)(module=type(model.module)(config).eval(), task="translation")
    proof = proofs.prove_caching(made)
    assert not proof.applies
    assert proof.measured == "efficient attention has no cache"


def test_leaking_padding_is_found(monkeypatch):
    def leaky(*arguments, **options):
        batch = make_batch(*arguments, **options)
        full = torch.full_like(batch.source_lengths, batch.source_ids.size(1))
        return replace(batch, source_lengths=full)

    monkeypatch.setattr(proofs, "make_batch", leaky)
    proof = proofs.prove_padding(tiny_model())
    assert not proof.holds
    assert proof.difference > 1e-2


def test_dependence_on_other_inputs_of_the_batch_is_found():
    model = tiny_model()
    model.module.tokens.register_forward_hook(lambda m, i, x: x + 0.1 * x.mean(0, keepdim=True))
    assert not proofs.prove_batch_size(model).holds


def test_a_forgetful_cache_is_found(monkeypatch):
    model = tiny_model()
    fresh = model.module.new_cache
    step = proofs.TranslationStepper.step

    def forget(self, ids):
        found = step(self, ids)
        self.cache = fresh()
        return found

    monkeypatch.setattr(proofs.TranslationStepper, "step", forget)
    assert not proofs.prove_caching(model).holds


def test_a_decoder_that_sees_the_future_is_found():
    model = tiny_model()
    decoder = model.module.decoder.layers[0]
    decoder.register_forward_hook(lambda m, i, x: x + 0.1 * x.mean(-2, keepdim=True))
    assert not proofs.prove_causality(model).holds


def test_results_that_depend_on_the_threads_are_found(monkeypatch):
    model = tiny_model()
    model.module.tokens.register_forward_hook(lambda m, i, x: x * torch.get_num_threads())
    before = torch.get_num_threads()
    assert not proofs.prove_threads(model).holds
    assert torch.get_num_threads() == before


def test_gradients_that_are_averaged_over_parts_are_found(monkeypatch):
    monkeypatch.setattr(PairBatch, "n_targets", lambda batch: 1)
    assert not proofs.prove_accumulation(tiny_model()).holds


def test_an_optimizer_that_is_not_restored_is_found(monkeypatch):
    def weights_only(tensors, model, optimizer, average):
        model.load_state_dict(tensors.weights)

    monkeypatch.setattr(proofs, "restore", weights_only)
    assert proofs.prove_resuming(tiny_model()).difference > 0


def test_models_that_cannot_be_trained_have_a_reason(make_bundle):
    model = make_bundle("encoder", settings={"fill_head": False})
    proofs = by_name(model)
    assert [name for name, p in proofs.items() if not p.applies] == [
        "caching",
        "causality",
        "accumulation",
        "resuming",
    ]
    assert "fill head" in proofs["resuming"].measured


def test_model_and_random_numbers_stay_unchanged():
    model = tiny_model()
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert len(list(run_proofs(model))) == len(PROOFS)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(before[n], v) for n, v in model.module.state_dict().items())
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_nan_differences_do_not_hold():
    assert not Proof("x", "", "", nan, 1.0).holds
    assert Proof("x", "", "not for this").holds
    bad = [torch.tensor([nan]), torch.tensor([1.0])]
    assert not Proof("x", "", "", largest_difference(bad, [torch.zeros(1)] * 2), 9.0).holds


def test_examples_hold_no_padding_and_batches_hold_them_whole():
    model = tiny_model()
    some = sample_inputs(model)
    batch = make_batch(model, some, extra=2)
    assert batch.source_lengths.tolist() == list(LENGTHS)
    assert batch.source_ids.shape == (len(LENGTHS), max(LENGTHS) + 2)
    assert all((one.ids != model.config.pad_id).all() for one in some)
    assert torch.equal(batch.source_ids[1, :4], some[1].ids)
