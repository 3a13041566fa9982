"""A fault is planted below each proof; `regard doctor` must then name it and end with 1."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.attention import attend, mask
from regard.attention.multi_head import KeyValueCache
from regard.cli.main import app
from regard.doctor import environment, proofs, reference
from regard.generation import tracing
from regard.interop import ctranslate2
from regard.interop.families import CheckpointFamily
from regard.layers.embedding import TokenEmbedding
from regard.layers.feed_forward import FeedForward
from regard.models import config, transformer
from regard.text.tokenizer import Tokenizer
from regard.trace.site import Site
from regard.training.checkpoint import Checkpoints
from regard.training.step import TrainStep
from tests.interop.test_any_model import save
from tests.trace.tiny_models import GPT2


def changed(owner, name, change):
    """A fault: `change` gets the result of a function, and what it was called with."""

    def plant(monkeypatch):
        real = getattr(owner, name)

        def faulty(*arguments, **options):
            return change(real(*arguments, **options), *arguments)

        monkeypatch.setattr(owner, name, faulty)

    return plant


def forget_first(found, cache, key, *_):
    keys, values = found
    if cache.length > key.size(-2):
        values = values.clone()
        values[..., 0, :] = 0
    return keys, values


def scaled_first(tensors, *_):
    name = min(one for one in tensors if one.endswith("fc1.weight"))
    return {**tensors, name: 1.05 * tensors[name]}


def rounded(monkeypatch):
    write = config.save_file

    def write_rounded(many, *arguments, **options):
        write({n: x.bfloat16().float() for n, x in many.items()}, *arguments, **options)

    monkeypatch.setattr(config, "save_file", write_rounded)


def negated(monkeypatch):
    fill = ctranslate2._fill_norm

    def negative(norm, *arguments):
        fill(norm, *arguments)
        norm.gamma = -norm.gamma

    monkeypatch.setattr(ctranslate2, "_fill_norm", negative)


def parts_averaged(monkeypatch):
    real = TrainStep.compute_gradients

    def faulty(self, batches, *, n_targets, **options):
        return real(self, batches, n_targets=n_targets * len(batches), **options)

    monkeypatch.setattr(TrainStep, "compute_gradients", faulty)


def another_target(monkeypatch):
    real = tracing.trace_answer
    monkeypatch.setattr(
        tracing, "trace_answer", lambda model, given, _, **o: real(model, given, "2021-08-13", **o)
    )


pytestmark = pytest.mark.long
FAULTS = {
    "padding": changed(mask, "length_mask", lambda real, *_: torch.ones_like(real)),
    "batch size": changed(TokenEmbedding, "forward", lambda x, *_: x + x.mean(0, keepdim=True)),
    "caching": changed(KeyValueCache, "extend", forget_first),
    "causality": changed(transformer, "causal", lambda real, *_: replace(real, offset=1)),
    "threads": changed(FeedForward, "forward", lambda x, *_: x * torch.get_num_threads()),
    "accumulation": parts_averaged,
    "resuming": changed(
        Checkpoints, "load", lambda found, *_: (found[0], found[1]._replace(optimizer={}))
    ),
    "permutation": changed(TokenEmbedding, "forward", lambda x, *_: x.cumsum(-2)),
    "fused": changed(attend, "fused_attention", lambda x, *_: 1.01 * x),
    "definition": changed(Site, "context", lambda x, *_: 1.01 * x),
    "trace": another_target,
    "engines": negated,
    "int8": negated,
    "tokenizer": changed(Tokenizer, "decode", lambda text, *_: text[:-1]),
    "saving": rounded,
    "export": changed(CheckpointFamily, "to_hf", scaled_first),
}
WEIGHTS = {  # of GPT-2, for the proofs of --reference
    "hidden states": "decoder.layers.1.feed_forward.inner.to_output.weight",
    "attention": "decoder.layers.0.self_attention.inner.to_query.weight",
    "logits": "decoder.norm.weight",
}


@pytest.fixture
def doctor(monkeypatch):
    """Run the command with only what this test looks at; returns its exit code and the failures."""
    monkeypatch.setattr(environment, "describe_environment", list)
    monkeypatch.setattr(proofs, "compare_precisions", lambda model: [])

    def run(*words):
        done = CliRunner().invoke(app, ["doctor", *words, "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        found = json.loads(done.stdout)["proofs"]
        assert all(one["applies"] for one in found), found
        failed = {one["name"] for one in found if not one["holds"]}
        assert all(name in done.stderr for name in failed)
        return done.exit_code, failed

    return run


def test_every_proof_has_a_planted_fault():
    examined = [*proofs.PROOFS, *reference.AGREEMENTS]
    assert {prove.__name__.removeprefix("prove_") for prove in examined} == {
        name.replace(" ", "_") for name in FAULTS
    }
    assert {*FAULTS, *WEIGHTS} == set(proofs.CLAIMS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_reported(name, doctor, monkeypatch, tmp_path):
    for module, listed in ((proofs, "PROOFS"), (reference, "AGREEMENTS")):
        wanted = f"prove_{name.replace(' ', '_')}"
        chosen = tuple(one for one in getattr(module, listed) if one.__name__ == wanted)
        monkeypatch.setattr(module, listed, chosen)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "right"))
    assert doctor("dates-transformer") == (0, set())
    FAULTS[name](monkeypatch)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "wrong"))
    assert doctor("dates-transformer") == (1, {name})


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_wrong_weight_is_reported(name, doctor, monkeypatch, tmp_path):
    save(tmp_path, "GPT2LMHeadModel", GPT2)
    assert doctor(str(tmp_path), "--reference") == (0, set())
    model = regard.load(tmp_path)
    with torch.no_grad():
        dict(model.module.named_parameters())[WEIGHTS[name]].mul_(1.5)
    monkeypatch.setattr("regard.model.load", lambda folder: model)
    code, failed = doctor(str(tmp_path), "--reference")
    assert code == 1
    assert name in failed


def test_gaps_of_a_masked_model_are_not_part_of_its_texts():
    model = regard.load("english-masked")
    gap = model.tokenizer.mask_id
    texts = reference.example_texts(model)
    assert any(gap in model.tokenizer.encode(text) for text in texts)
    proof = reference.prove_tokenizer(model)
    assert proof.applies
    assert proof.difference == 0
