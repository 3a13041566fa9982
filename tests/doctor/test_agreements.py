"""Proofs that other ways to run a model agree with it, and faults that they find."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.doctor import reference
from regard.doctor.proofs import CLAIMS, run_proofs, tiny_model
from regard.doctor.reference import AGREEMENTS, example_texts


@pytest.fixture(scope="module")
def dates():
    return regard.load("dates-transformer")


def by_name(model):
    return {proof.name: proof for proof in run_proofs(model, AGREEMENTS)}


def test_all_agreements_hold_for_a_bundled_translator(dates):
    proofs = by_name(dates)
    names = [
        "permutation",
        "fused",
        "definition",
        "trace",
        "engines",
        "int8",
        "tokenizer",
        "saving",
    ]
    names.append("export")
    assert list(proofs) == names
    assert all(proof.holds for proof in proofs.values()), proofs
    assert [name for name in names if not proofs[name].applies] in ([], ["export"])
    assert proofs["saving"].bound == 0
    assert "answers" in proofs["int8"].measured


def test_models_without_texts_say_what_does_not_apply():
    proofs = by_name(tiny_model())
    assert all(proof.holds for proof in proofs.values())
    idle = [name for name, proof in proofs.items() if not proof.applies]
    assert {"trace", "engines", "int8", "tokenizer"} <= set(idle)
    assert all(proofs[name].measured for name in idle)
    assert proofs["definition"].applies


def test_an_encoder_that_knows_positions_is_found(monkeypatch):
    built = reference.build

    def positioned(config):
        module = built(config)
        places = torch.arange(9.0)[:, None] / 9
        module.encoder.layers[0].register_forward_pre_hook(lambda m, x: (x[0] + places, *x[1:]))
        return module

    monkeypatch.setattr(reference, "build", positioned)
    assert not reference.prove_permutation(tiny_model()).holds


def test_a_kernel_that_differs_from_the_definition_is_found(monkeypatch):
    from regard.attention import attend

    fused = attend.fused_attention
    monkeypatch.setattr(attend, "fused_attention", lambda *a, **o: 1.01 * fused(*a, **o))
    assert not reference.prove_fused(tiny_model()).holds


def test_a_site_that_differs_from_its_definition_is_found(dates, monkeypatch):
    from regard.trace.site import Site

    context = Site.context
    monkeypatch.setattr(
        Site, "context", lambda self, *a, **o: 1.001 * context(self, *a, **o) + 1e-3
    )
    assert not reference.prove_definition(dates).holds


def test_a_trace_of_another_text_is_found(dates, monkeypatch):
    monkeypatch.setattr(reference, "example_texts", lambda model: ["12 August 2021"])
    translate = type(dates).translate
    other = lambda self, text, **o: replace(translate(self, text, **o), text="2021-08-13")  # noqa: E731
    monkeypatch.setattr(type(dates), "translate", other)
    assert reference.prove_trace(dates).difference == 1


@pytest.mark.parametrize("prove", [reference.prove_engines, reference.prove_int8])
def test_an_engine_of_other_weights_is_found(dates, monkeypatch, prove):
    texts, answers = ["12 August 2021"], reference._answers

    def damaged(model, texts, **options):
        found = answers(model, texts, **options)
        is_fast = options.get("engine") != "torch"
        return [("2021-08-13", score - 1) for _, score in found] if is_fast else found

    monkeypatch.setattr(reference, "example_texts", lambda model: texts)
    monkeypatch.setattr(reference, "_answers", damaged)
    proof = prove(dates)
    assert not proof.holds
    assert "2 answers, 2 of them other texts" in proof.measured  # greedy, and with a beam


def test_a_tokenizer_that_loses_letters_is_found(dates, monkeypatch):
    decode = type(dates.tokenizer).decode
    monkeypatch.setattr(type(dates.tokenizer), "decode", lambda self, ids: decode(self, ids)[:-1])
    assert reference.prove_tokenizer(dates).difference == len(example_texts(dates))


@pytest.mark.parametrize("name", ["saving", "export"])
def test_a_file_of_other_weights_is_found(monkeypatch, make_bundle, name):
    load = reference.load

    def damaged(folder):
        model = load(folder)
        with torch.no_grad():
            next(model.module.parameters()).mul_(1.01)
        return model

    monkeypatch.setattr(reference, "load", damaged)
    proof = getattr(reference, f"prove_{name}")(make_bundle("encoder"))
    assert not proof.holds or not proof.applies
    assert proof.applies or name == "export"


def test_every_proof_has_its_claim_in_the_table(dates):
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert all(one["claim"] == CLAIMS[one["name"]] for one in report["proofs"])
    assert len(report["proofs"]) == 16
