"""ONNX: onnxruntime computes what the model computes, for batches and texts of any length."""

import sys

import onnxruntime
import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError, MissingExtraError
from regard.interop.onnx import export_onnx
from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.text.tokenizer_training import train_tokenizer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_shape_checks")]

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24}
LLAMA = {
    "positions": "rotary",
    "norm_kind": "rms",
    "activation": "swiglu",
    "n_kv_heads": 1,
    "tie": False,
}
BATCHES = [[7, 5, 2], [4], [1], [9, 1, 2, 3, 4]]


def bundle_of(shaken, family, **settings):
    sizes = SIZES if family == "vision" else SIZES | {"n_vocab": 30}
    torch.manual_seed(0)
    model = shaken(build(config_from_dict({"family": family, **sizes, **settings})))
    return Model(module=model, task="embedding")


def run(file, **inputs):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = {name: tensor.numpy() for name, tensor in inputs.items()}
    return [torch.from_numpy(result) for result in session.run(None, given)]


def texts(lengths):
    random = torch.Generator().manual_seed(len(lengths))
    return torch.randint(0, 30, (len(lengths), max(lengths)), generator=random)


@torch.no_grad()
def test_an_encoder_with_both_heads(shaken, tmp_path):
    model = bundle_of(shaken, "encoder", n_layers=1, n_classes=3, pool="mean", max_positions=12)
    assert export_onnx(model, tmp_path / "out") == ["model.onnx"]
    for lengths in BATCHES:
        ids, count = texts(lengths), torch.tensor(lengths)
        states, logits, classes = run(tmp_path / "out" / "model.onnx", ids=ids, lengths=count)
        expected = model.module(ids, count)
        for i, n in enumerate(lengths):
            assert_close(states[i, :n], expected[i, :n], rtol=0, atol=1e-5)
            filled = model.module.fill_logits(expected[i, :n])
            assert_close(logits[i, :n], filled, rtol=0, atol=1e-5)
        assert_close(classes, model.module.classify(expected, count), rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{"max_positions": 12}, LLAMA])
def test_decoders_like_gpt2_and_like_llama(shaken, tmp_path, settings):
    model = bundle_of(shaken, "decoder", n_layers=1, **settings)
    export_onnx(model, tmp_path / "out")
    for lengths in BATCHES:
        ids, count = texts(lengths), torch.tensor(lengths)
        (logits,) = run(tmp_path / "out" / "model.onnx", ids=ids, lengths=count)
        expected = model.module(ids, count)
        for i, n in enumerate(lengths):
            assert_close(logits[i, :n], expected[i, :n], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_vision_model(shaken, tmp_path):
    model = bundle_of(shaken, "vision", n_layers=1, image_size=8, patch_size=4, n_classes=3)
    export_onnx(model, tmp_path / "out")
    for n in (1, 3):
        images = torch.randn(n, 3, 8, 8)
        (classes,) = run(tmp_path / "out" / "model.onnx", images=images)
        assert_close(classes, model.module(images), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_transformer_in_two_graphs_with_its_tokenizers(shaken, tmp_path):
    model = bundle_of(shaken, "transformer", n_encoder_layers=1, n_decoder_layers=1)
    model.tokenizer = train_tokenizer(["abc"] * 2, kind="characters", vocab_size=12)
    model.target_tokenizer = train_tokenizer(["cde"] * 2, kind="characters", vocab_size=12)
    assert export_onnx(model, tmp_path / "out") == ["encoder.onnx", "decoder.onnx"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("decoder.onnx", "encoder.onnx", "tokenizer.json", "tokenizer.target.json")
    ]
    for lengths in BATCHES:
        source, count = texts(lengths), torch.tensor(lengths)
        target = texts([max(lengths) + 3] * len(lengths))
        sides = {"source_ids": source, "source_lengths": count}
        (memory,) = run(tmp_path / "out" / "encoder.onnx", **sides)
        inputs = {"target_ids": target, "memory": memory, "source_lengths": count}
        (logits,) = run(tmp_path / "out" / "decoder.onnx", **inputs)
        states = model.module.decode(target, model.module.encode(source, count), count)
        assert_close(logits, model.module.project(states), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "form"),
    [("decoder", "performer"), ("decoder", "longformer"), ("encoder", "reformer")],
)
def test_attention_forms_with_a_fixed_batch_are_refused_by_name(shaken, tmp_path, family, form):
    model = bundle_of(shaken, family, n_layers=1, attention=form)
    with pytest.raises(
        InputError, match=f"{family} models with {form} attention cannot be exported"
    ):
        export_onnx(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_families_and_a_missing_extra_are_refused(shaken, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="seq2seq models cannot be exported to ONNX"):
        export_onnx(
            Model(
                module=build(config_from_dict({"family": "seq2seq", "n_vocab": 9, "d_model": 8})),
                task="translation",
            ),
            tmp_path / "out",
        )
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'regard\[onnx\]'"):
        export_onnx(bundle_of(shaken, "decoder", n_layers=1), tmp_path / "out")
    assert not (tmp_path / "out").exists()
