from dataclasses import replace
from math import nan

import pytest
import torch

from regard.doctor import learning, reading
from regard.doctor.examination import PROOFS, examine, tiny_bundle
from regard.doctor.proof import Proof, largest
from regard.doctor.samples import LENGTHS, batch_of, examples
from regard.training.batch import PairBatch


def by_name(bundle):
    return {proof.name: proof for proof in examine(bundle)}


def test_every_proof_holds_for_a_tiny_transformer_and_measures_something():
    proofs = by_name(tiny_bundle())
    assert list(proofs) == ["padding", "batch size", "caching", "accumulation", "resuming"]
    assert all(proof.applies and proof.holds for proof in proofs.values())
    assert proofs["resuming"].difference == proofs["resuming"].bound == 0


@pytest.mark.parametrize(
    ("family", "idle"),
    [
        ("seq2seq", []),
        ("decoder", []),
        ("encoder", ["caching"]),
        ("vision", ["padding", "caching"]),
    ],
)
def test_every_family_is_proved_as_far_as_the_claims_apply(make_bundle, family, idle):
    proofs = by_name(make_bundle(family, settings={"dropout": 0.1}))
    assert [name for name, proof in proofs.items() if not proof.applies] == idle
    assert all(proof.holds for proof in proofs.values())


def test_forms_without_a_cache_say_so():
    bundle = tiny_bundle()
    config = replace(bundle.config, attention="efficient")
    made = type(bundle)(model=type(bundle.model)(config).eval(), task="translation")
    proof = reading.prove_caching(made)
    assert not proof.applies
    assert proof.measured == "efficient attention keeps no cache"


def test_padding_that_leaks_is_found(monkeypatch):
    def leaky(*arguments, **options):
        batch = batch_of(*arguments, **options)
        full = torch.full_like(batch.source_lengths, batch.source_ids.size(1))
        return replace(batch, source_lengths=full)

    monkeypatch.setattr(reading, "batch_of", leaky)
    proof = reading.prove_padding(tiny_bundle())
    assert not proof.holds
    assert proof.difference > 1e-2


def test_a_model_that_looks_at_its_neighbours_in_the_batch_is_found():
    bundle = tiny_bundle()
    bundle.model.tokens.register_forward_hook(lambda m, i, x: x + 0.1 * x.mean(0, keepdim=True))
    assert not reading.prove_batch_size(bundle).holds


def test_a_cache_that_forgets_is_found(monkeypatch):
    bundle = tiny_bundle()
    fresh = bundle.model.new_cache
    step = reading.TranslationStepper.step

    def forget(self, ids):
        found = step(self, ids)
        self.cache = fresh()
        return found

    monkeypatch.setattr(reading.TranslationStepper, "step", forget)
    assert not reading.prove_caching(bundle).holds


def test_gradients_that_are_averaged_over_parts_are_found(monkeypatch):
    monkeypatch.setattr(PairBatch, "n_targets", lambda batch: 1)
    assert not learning.prove_accumulation(tiny_bundle()).holds


def test_an_optimiser_that_is_not_restored_is_found(monkeypatch):
    def weights_only(tensors, model, optimiser, average):
        model.load_state_dict(tensors.weights)

    monkeypatch.setattr(learning, "restore", weights_only)
    assert learning.prove_resuming(tiny_bundle()).difference > 0


def test_models_that_cannot_learn_say_why(make_bundle):
    bundle = make_bundle("encoder", settings={"fill_head": False})
    proofs = by_name(bundle)
    assert [name for name, p in proofs.items() if not p.applies] == [
        "caching",
        "accumulation",
        "resuming",
    ]
    assert "fill head" in proofs["resuming"].measured


def test_the_model_and_the_random_numbers_are_left_as_they_were():
    bundle = tiny_bundle()
    before = {name: value.clone() for name, value in bundle.model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert len(list(examine(bundle))) == len(PROOFS)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(before[n], v) for n, v in bundle.model.state_dict().items())
    assert all(parameter.grad is None for parameter in bundle.model.parameters())


def test_a_difference_that_is_no_number_does_not_hold():
    assert not Proof("x", "", "", nan, 1.0).holds
    assert Proof("x", "", "not for this").holds
    bad = [torch.tensor([nan]), torch.tensor([1.0])]
    assert not Proof("x", "", "", largest(bad, [torch.zeros(1)] * 2), 9.0).holds


def test_examples_hold_no_padding_and_batches_hold_them_whole():
    bundle = tiny_bundle()
    some = examples(bundle)
    batch = batch_of(bundle, some, extra=2)
    assert batch.source_lengths.tolist() == list(LENGTHS)
    assert batch.source_ids.shape == (len(LENGTHS), max(LENGTHS) + 2)
    assert all((one.ids != bundle.config.pad_id).all() for one in some)
    assert torch.equal(batch.source_ids[1, :4], some[1].ids)
