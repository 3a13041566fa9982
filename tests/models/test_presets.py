from dataclasses import replace

import pytest

from regard.errors import UnknownNameError
from regard.models.config import build
from regard.models.presets import PRESETS, get_preset

# Vaswani et al. 2017, table 3, as in the LaTeX source of the paper: millions of parameters (of rows
# without a number those of the base model), perplexity and BLEU on newstest2013
PAPER = {
    "base": (65, 4.92, 25.8),
    "A-h1": (65, 5.29, 24.9),
    "A-h4": (65, 5.00, 25.5),
    "A-h16": (65, 4.91, 25.8),
    "A-h32": (65, 5.01, 25.4),
    "B-dk16": (58, 5.16, 25.1),
    "B-dk32": (60, 5.01, 25.4),
    "C-n2": (36, 6.11, 23.7),
    "C-n4": (50, 5.19, 25.3),
    "C-n8": (80, 4.88, 25.5),
    "C-d256": (28, 5.75, 24.5),
    "C-d1024": (168, 4.66, 26.0),
    "C-ff1024": (53, 5.12, 25.4),
    "C-ff4096": (90, 4.75, 26.2),
    "D-dropout0": (65, 5.77, 24.6),
    "D-dropout2": (65, 4.95, 25.5),
    "D-smoothing0": (65, 4.67, 25.3),
    "D-smoothing2": (65, 5.47, 25.7),
    "E": (65, 4.92, 25.7),
    "big": (213, 4.33, 26.4),
}


@pytest.mark.parametrize("name", PAPER)
def test_every_row_of_table_3_has_the_papers_parameters_within_4_percent(name):
    count = PRESETS[name].count_parameters()
    assert count == pytest.approx(PAPER[name][0] * 1e6, rel=0.04)


def test_perplexity_and_bleu_are_those_of_table_3():
    shown = {name: (one.perplexity, one.bleu) for name, one in PRESETS.items() if one.bleu}
    assert shown == {name: (perplexity, bleu) for name, (_, perplexity, bleu) in PAPER.items()}


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
