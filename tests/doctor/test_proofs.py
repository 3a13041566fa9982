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


def test_results_that_depend_on_the_threads_are_found(monkeypatch):
    model = tiny_model()
    model.module.tokens.register_forward_hook(lambda m, i, x: x * torch.get_num_threads())
    before = torch.get_num_threads()
    assert not proofs.prove_threads(model).holds
    assert torch.get_num_threads() == before


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
