import json
from dataclasses import fields

import pytest

from regard.errors import InputError, UnknownNameError
from regard.models.config import FAMILIES, build, config_from_dict
from regard.models.decoder import DecoderConfig, llama_config
from regard.models.encoder import EncoderConfig
from regard.models.transformer import TransformerConfig

CONFIGS = [
    TransformerConfig(n_vocab=10, d_model=8, n_heads=2, d_ff=8, tie="none", n_source_vocab=7),
    EncoderConfig(n_vocab=10, d_model=8, n_heads=2, d_ff=8, n_layers=1, n_classes=3),
    DecoderConfig(n_vocab=10, d_model=8, n_heads=2, d_ff=8, n_layers=1, positions="alibi"),
    llama_config(
        n_vocab=10, d_model=8, n_heads=2, d_ff=8, n_layers=1, rotary_scaling=(8.0, 1.0, 4.0, 64.0)
    ),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda one: one.family)
def test_a_config_survives_json(config):
    again = config_from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert type(again) is type(config)


def test_the_dictionary_names_the_family_and_every_field_by_hand():
    given = {"family": "transformer", "n_vocab": 12, "d_model": 64, "n_heads": 4}
    config = config_from_dict(given)
    assert isinstance(config, TransformerConfig)
    assert (config.n_vocab, config.d_model, config.n_heads, config.d_ff) == (12, 64, 4, 2048)
    assert set(config.to_dict()) == {"family", *(field.name for field in fields(config))}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda one: one.family)
def test_build_makes_a_model_of_the_family(config):
    model = build(config)
    assert type(model).__name__ == FAMILIES[config.family]
    assert model.config is config


def test_an_unknown_family_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"family is 'transfomer'.*transformer"):
        config_from_dict({"family": "transfomer"})
    with pytest.raises(UnknownNameError, match="family is None"):
        config_from_dict({"n_vocab": 3})


def test_an_unknown_setting_is_refused_with_the_nearest():
    with pytest.raises(
        UnknownNameError, match=r"transformer model has no setting 'n_head'.*n_heads"
    ):
        config_from_dict({"family": "transformer", "n_vocab": 3, "n_head": 2})


def test_a_setting_that_is_missing_is_named():
    with pytest.raises(InputError, match="a decoder model also needs n_vocab"):
        config_from_dict({"family": "decoder"})


# the tests' own type checks would stop these before the sentences that users see
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"d_model": "512"}, "d_model is '512'; in a transformer model it must be an integer"),
        ({"n_heads": True}, "n_heads is True"),
        ({"d_k": 1.5}, "d_k is 1.5; in a transformer model it must be an integer or absent"),
        ({"scale_embedding": 1}, "scale_embedding is 1; .* true or false"),
        ({"rotary_scaling": (1.0, 2.0)}, "rotary_scaling is .* a list of numbers or absent"),
        ({"n_heads": 0}, "n_heads is 0; it must be 1 or more"),
        ({"n_vocab": -1}, "n_vocab is -1; it must be 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and less than 1"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1"),
        ({"n_heads": 7}, "d_model is 512, which 7 heads cannot share evenly"),
        ({"n_kv_heads": 3}, "n_kv_heads is 3, which 8 heads cannot share evenly"),
        ({"norm": "middle"}, "norm is 'middle'; choose one of post, pre"),
        ({"activation": "gellu"}, "activation is 'gellu'; choose one of .* gelu"),
        ({"positions": "sinus"}, "positions is 'sinus'; .* sinusoidal"),
        ({"attention": "exac"}, "attention is 'exac'; .* exact"),
        ({"initialization": "xavier"}, "initialization is 'xavier'"),
        ({"tie": "both"}, "tie is 'both'"),
        ({"n_source_vocab": 11}, "vocabularies of 11 and 10 tokens, so they cannot share"),
        (
            {"positions": "alibi", "attention": "efficient"},
            "positions are 'alibi', .* efficient attention never computes",
        ),
        ({"pad_id": 10}, "pad_id is 10, but the vocabulary has 10 tokens, 0 to 9"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0; it must be larger than 0"),
        ({"rotary_theta": -1.0}, "rotary_theta is -1.0"),
        (
            {"positions": "rotary", "rotary_scaling": (8.0, 4.0, 1.0, 64.0)},
            "rotary_scaling is .* low smaller than high",
        ),
        ({"positions": "rotary", "d_k": 5}, "cannot rotate 5 of a head's 5 numbers"),
        ({"positions": "rotary", "d_rotary": 66}, "cannot rotate 66 of a head's 64 numbers"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_with_a_sentence(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        TransformerConfig(**({"n_vocab": 10} | changes))


@pytest.mark.usefixtures("no_shape_checks")
def test_whole_numbers_pass_where_numbers_are_meant():
    assert TransformerConfig(n_vocab=10, dropout=0).dropout == 0


def test_dropout_inside_the_feed_forward_is_the_same_dropout_by_default():
    sizes = {"n_vocab": 10, "d_model": 8, "n_heads": 2, "d_ff": 8, "dropout": 0.3}
    for changes, expected in (({}, 0.3), ({"activation_dropout": 0.0}, 0.0)):
        layer = build(TransformerConfig(**sizes, **changes)).encoder.layers[0]
        assert layer.feed_forward.inner.dropout.p == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pool": "sum"}, "pool is 'sum'"),
        ({"pooler": "gelu"}, "pooler is 'gelu'"),
        ({"n_token_types": -1}, "n_token_types is -1"),
        ({"n_classes": 0}, "n_classes is 0"),
    ],
)
def test_a_bad_value_of_an_encoder_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        EncoderConfig(n_vocab=10, **changes)
