from dataclasses import replace

import pytest

from regard.errors import UnknownNameError
from regard.models.config import build
from regard.models.presets import PRESETS, get_preset

# Vaswani et al. 2017, table 3: parameters in millions
PAPER = {
    "base": 65,
    "A-h1": 65,
    "A-h4": 65,
    "A-h16": 65,
    "A-h32": 65,
    "B-dk16": 58,
    "B-dk32": 60,
    "C-n2": 36,
    "C-n4": 50,
    "C-n8": 80,
    "C-d256": 28,
    "C-d1024": 168,
    "C-ff1024": 53,
    "C-ff4096": 90,
    "D-dropout0": 65,
    "D-dropout2": 65,
    "D-smoothing0": 65,
    "D-smoothing2": 65,
    "E": 65,
    "big": 213,
}


@pytest.mark.parametrize("name", PAPER)
def test_every_row_of_table_3_has_the_papers_parameters_within_4_percent(name):
    count = PRESETS[name].count_parameters()
    assert count == pytest.approx(PAPER[name] * 1e6, rel=0.04)


def test_the_parameters_of_the_base_model_by_hand():
    d, ff = 512, 2048
    attention = 4 * (d * d + d) + 2 * d  # four linear layers and a norm
    feed_forward = d * ff + ff + ff * d + d + 2 * d
    encoder, decoder = 6 * (attention + feed_forward), 6 * (2 * attention + feed_forward)
    assert PRESETS["base"].count_parameters() == 39_000 * d + encoder + decoder


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("llama-7b", 6_738_415_616),
        # 109,482,240 of the published model with its pooler, and the head for masked tokens
        ("bert-base", 109_482_240 + 768 * 768 + 3 * 768 + 30_522),
    ],
)
def test_known_models_have_exactly_their_published_parameters(name, count):
    assert PRESETS[name].count_parameters() == count


def test_a_built_model_has_as_many_parameters_as_counted():
    preset = get_preset("tiny")
    built = sum(parameter.numel() for parameter in build(preset.config).parameters())
    assert preset.count_parameters() == built


@pytest.mark.parametrize(
    ("name", "layers", "d_model", "d_ff", "n_heads"),
    [("tiny", 4, 128, 256, 4), ("small", 3, 256, 1024, 8)],
)
def test_small_presets_have_the_sizes_they_announce(name, layers, d_model, d_ff, n_heads):
    config = PRESETS[name].config
    assert (config.n_encoder_layers, config.n_decoder_layers) == (layers, layers)
    assert (config.d_model, config.d_ff, config.n_heads) == (d_model, d_ff, n_heads)


def test_rows_differ_from_base_only_as_announced():
    base = PRESETS["base"]
    changes = {"D-dropout0": {"dropout": 0.0}, "E": {"positions": "learned"}, "B-dk16": {"d_k": 16}}
    for name, change in changes.items():
        also = {"d_v": 64} if name == "B-dk16" else {}
        assert PRESETS[name].config == replace(base.config, **change, **also)
        assert PRESETS[name].label_smoothing == base.label_smoothing == 0.1
    for name, smoothing in (("D-smoothing0", 0.0), ("D-smoothing2", 0.2)):
        assert PRESETS[name].config == base.config
        assert PRESETS[name].label_smoothing == smoothing


def test_a_preset_accepts_another_vocabulary():
    preset = get_preset("tiny", n_vocab=123)
    assert preset.config == replace(PRESETS["tiny"].config, n_vocab=123)
    assert get_preset("tiny") is PRESETS["tiny"]


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown preset 'bse'.*base"):
        get_preset("bse")
