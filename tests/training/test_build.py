"""The model of a recipe: its config from data and base model, and wrong keys."""

import pytest
import torch

from regard.errors import UnknownNameError
from regard.models.config import build
from regard.models.decoder import DecoderConfig
from regard.models.transformer import TransformerConfig
from regard.text.tokenizer_training import train_tokenizer
from regard.training.build import (
    build_seeded,
    complete_config,
    config_fields,
    copy_weights,
    image_tokens,
)
from regard.training.datasets import Datasets
from regard.training.recipe import load_recipe

SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 16}


def recipe(task, **model):
    data = {"generate": "digits"} if task == "classification" else {"train": "x"}
    given = {"task": task, "data": data, "training": {"steps": 1}}
    return load_recipe({**given, "model": model})


@pytest.fixture(scope="module")
def letters():
    return train_tokenizer(["a b c d"], kind="characters", vocab_size=20)


@pytest.fixture(scope="module")
def digits():
    return train_tokenizer(["1 2 3 4 5"], kind="characters", vocab_size=20)


def completed(asked, datasets, base):
    fields = config_fields(asked, base=base)
    return complete_config(fields, asked, datasets, base=base)


def test_embeddings_with_more_rows_than_tokens_keep_them(letters):
    base = DecoderConfig(n_vocab=64, n_layers=1, **SMALL)  # 64: as some pad it to be fast
    config = completed(recipe("language"), Datasets({}, letters), base)
    before, model = build(base), build_seeded(config, 1)
    assert copy_weights(model, before.state_dict()) == []
    assert torch.equal(model.tokens.weight, before.tokens.weight)
    assert len(model.tokens.weight) == 64


def test_a_shared_embedding_of_two_tokenizers_stays_shared(letters, digits):
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1}
    base = TransformerConfig(n_vocab=64, n_source_vocab=64, tie="all", **SMALL, **layers)
    config = completed(recipe("translation"), Datasets({}, letters, digits), base)
    assert (config.n_vocab, config.n_source_vocab, config.tie) == (64, 64, "all")
    assert copy_weights(build_seeded(config, 1), build(base).state_dict()) == []


def test_a_new_model_has_one_row_per_token(letters, digits):
    asked = recipe("translation", preset="tiny")
    config = completed(asked, Datasets({}, letters, digits), None)
    assert (config.n_vocab, config.n_source_vocab) == (len(digits), len(letters))
    assert config.tie == "target"


def test_images_of_8_pixels_in_patches_of_2_are_16_tokens_and_one_for_the_class():
    fields = config_fields(recipe("classification", patch_size=2, **SMALL))
    assert image_tokens(fields, 8) == 17


def test_a_key_that_vision_models_do_not_have_is_refused_with_the_nearest():
    fields = config_fields(recipe("classification", n_layer=3))
    with pytest.raises(UnknownNameError, match=r"no setting 'n_layer'; the nearest .*n_layers"):
        image_tokens(fields, 8)
