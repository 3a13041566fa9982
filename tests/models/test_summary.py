"""The architecture table: its numbers by hand, and against torch's own counts."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models.config import build
from regard.models.decoder import DecoderConfig, llama_config
from regard.models.encoder import EncoderConfig
from regard.models.summary import summarize
from regard.models.transformer import TransformerConfig
from regard.models.vision import VisionConfig
from regard.tap import listen
from tests.listeners import Everybody

SMALL = {"n_vocab": 11, "d_model": 8, "n_heads": 2, "d_ff": 12}
CONFIGS = {
    "transformer": TransformerConfig(**SMALL, n_encoder_layers=2, n_decoder_layers=3),
    "untied": TransformerConfig(**SMALL, norm="pre", tie="none", positions="learned", d_k=3, d_v=5),
    "encoder": EncoderConfig(**SMALL, n_layers=2, n_token_types=2),
    "gpt": DecoderConfig(**SMALL, n_layers=2),
    "llama": llama_config(**SMALL, n_layers=2, n_kv_heads=1),
}
N = 6


def test_the_rows_of_a_decoder_by_hand():
    summary = summarize(build(DecoderConfig(**SMALL, n_layers=2, max_positions=16)), n_token=N)
    table = [(r.path, r.count, r.shape, r.parameters, r.flops) for r in summary.rows]
    attention = 4 * (8 * 8 + 8) + 16
    feed_forward = 8 * 12 + 12 + 12 * 8 + 8 + 16
    assert table == [
        ("tokens", 1, "11 × 8", 88, 0),
        ("decoder.embedding.positions", 1, "16 × 8", 128, 0),
        # four matrices of 64, and for each of 6 keys 8 products of 4 numbers and 8 sums of them
        (
            "decoder.layers.0–1.self",
            2,
            "2 heads, d_k 4, d_v 4",
            2 * attention,
            2 * (2 * 256 + 2 * N * 2 * (4 + 4)),
        ),
        ("decoder.layers.0–1.feed_forward", 2, "8 → 12", 2 * feed_forward, 2 * 2 * 192),
        ("decoder.norm", 1, "8", 16, 0),
        ("projection", 1, "8 → 11", 0, 2 * 88),
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_all_there_and_counted_once(name):
    model = build(CONFIGS[name])
    summary = summarize(model)
    assert summary.parameters == sum(p.numel() for p in model.parameters())
    assert summary.parameters == sum(row.parameters for row in summary.rows)
    assert summary.memory == 4 * summary.parameters


@pytest.mark.parametrize("name", CONFIGS)
def test_flops_are_those_that_torch_counts(name):
    model = build(CONFIGS[name]).eval()
    ids = torch.zeros(1, N, dtype=torch.long)
    with torch.no_grad(), listen(Everybody()), FlopCounterMode(display=False) as counter:
        if name in ("transformer", "untied"):
            model.project(model.decode(ids, model.encode(ids)))
        elif name == "encoder":
            model.fill_logits(model(ids))
        else:
            model(ids)
    assert summarize(model, n_token=N).flops * N == counter.get_total_flops()


@pytest.mark.parametrize("stem", ["linear", "convolution"])
def test_images_are_as_long_as_their_patches(stem):
    plan = VisionConfig(image_size=8, patch_size=4, n_channels=1, n_classes=3, stem=stem)
    model = build(replace(plan, d_model=8, n_heads=2, d_ff=12, n_layers=2)).eval()
    summary = summarize(model)
    assert "FLOPs for images of 5 tokens" in str(summary)
    with torch.no_grad(), listen(Everybody()), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, 8, 8))
    once = {"encoder.embedding.to_token": 4, "classifier": 1}  # patches, class token
    counted = sum(row.flops * once.get(row.path, 5) for row in summary.rows)
    assert counted == counter.get_total_flops()


def test_layers_that_differ_have_separate_rows():
    model = build(DecoderConfig(**SMALL, n_layers=3))
    model.decoder.layers[1].feed_forward.inner.to_output.bias = None
    paths = [row.path for row in summarize(model).rows if "feed_forward" in row.path]
    assert len(paths) == 2


def test_the_table_can_be_read():
    text = str(build(CONFIGS["llama"]))
    assert "2 on 1 heads, d_k 4, d_v 4" in text
    lines = text.splitlines()
    assert lines[0] == "Decoder"
    assert lines[2].split() == ["part", "kind", "shape", "parameters", "FLOPs/token"]
    assert len({len(line) for line in lines[1:-1]}) == 1  # columns are aligned


def test_a_model_on_the_meta_device_can_be_summarized():
    with torch.device("meta"):
        model = build(TransformerConfig(n_vocab=37_000))
    assert summarize(model).parameters == 63_082_496
