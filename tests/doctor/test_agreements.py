"""Proofs that other ways to run a model agree with it, and faults that they find."""

import json

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.doctor import reference
from regard.doctor.proofs import CLAIMS, run_proofs, tiny_model
from regard.doctor.reference import AGREEMENTS


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


def test_every_proof_has_its_claim_in_the_table(dates):
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert all(one["claim"] == CLAIMS[one["name"]] for one in report["proofs"])
    assert len(report["proofs"]) == 16
