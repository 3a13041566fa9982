"""From a configuration to a model, with numbers or without."""

import subprocess
import sys

import pytest
import torch

import regard
from regard.layers.attention_forms import FORMS
from regard.models.config import build, build_on_meta, config_from_dict, weights_state
from regard.models.decoder import DecoderConfig

SMALL = {"d_model": 8, "n_heads": 2, "d_ff": 12}
CONFIGS = {
    "transformer": {**SMALL, "n_vocab": 9, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "seq2seq": {"d_model": 8, "n_vocab": 9, "n_layers": 2},
    "encoder": {**SMALL, "n_vocab": 9, "n_layers": 1, "n_classes": 2},
    "decoder": {**SMALL, "n_vocab": 9, "n_layers": 1, "positions": "rotary"},
    "vision": {**SMALL, "n_layers": 1, "image_size": 8, "patch_size": 4, "n_classes": 3},
}


@pytest.mark.parametrize("family", CONFIGS)
def test_a_model_on_the_meta_device_has_the_names_and_shapes_but_no_numbers(family):
    config = config_from_dict({"family": family, **CONFIGS[family]})
    whole, empty = build(config).state_dict(), build_on_meta(config).state_dict()
    assert {name: weight.shape for name, weight in whole.items()} == {
        name: weight.shape for name, weight in empty.items()
    }
    assert {weight.device.type for weight in empty.values()} == {"meta"}
    assert {weight.device.type for weight in whole.values()} == {"cpu"}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_on_the_meta_device_has_the_shapes_of_every_form_of_attention(form):
    config = config_from_dict(
        {
            "family": "encoder",
            "n_vocab": 9,
            "d_model": 8,
            "n_heads": 2,
            "n_layers": 1,
            "max_positions": 16,
            "attention": form,
        }
    )
    shapes = {name: x.shape for name, x in build(config).state_dict().items()}
    assert {name: x.shape for name, x in build_on_meta(config).state_dict().items()} == shapes


def test_building_on_the_meta_device_does_not_load_the_compiler():
    program = (
        "import sys; from regard.models.config import build_on_meta; "
        "from regard.models.config import config_from_dict; "
        f"[build_on_meta(config_from_dict({{'family': k, **v}})) for k, v in {CONFIGS}.items()]; "
        "print('torch._dynamo' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_a_dictionary_builds_the_same_model_as_its_configuration():
    config = DecoderConfig(n_vocab=11, d_model=8, n_heads=2, d_ff=12, n_layers=1)
    ours, theirs = regard.build(config.to_dict()), regard.build(config)
    assert ours.config == theirs.config == config
    assert type(ours) is type(theirs)


def test_weights_of_any_layout_are_known_to_have_changed():
    module = torch.nn.Module()
    module.turned = torch.nn.Parameter(torch.zeros(40, 8).mT)
    module.expanded = torch.nn.Parameter(torch.zeros(1).expand(100), requires_grad=False)
    samples = {}
    before = weights_state(module, samples)
    assert weights_state(module, samples) == before
    module.turned.data += 1
    assert weights_state(module, samples) != before
