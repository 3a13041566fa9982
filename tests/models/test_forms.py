"""Models made of every form of attention."""

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.layers.attention_forms import FORMS, NOT_CAUSAL
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import Encoder, EncoderConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.vision import Vision, VisionConfig

SIZES = {"n_vocab": 19, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
SMALL = {"linformer": 5, "longformer": 3, "performer": 8, "reformer": 2}


def chosen(form):
    return {"attention": form, "attention_size": SMALL.get(form), "max_positions": 24}


def encoder(form):
    torch.manual_seed(0)
    return Encoder(EncoderConfig(**SIZES, n_layers=2, **chosen(form))).eval()


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_no_real_position(form):
    ids = torch.randint(1, 19, (2, 12))
    padded = torch.cat([ids, torch.randint(1, 19, (2, 5))], dim=1)
    model = encoder(form)
    with torch.no_grad():
        assert_close(model(padded, [12, 12])[:, :12], model(ids, [12, 12]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in NOT_CAUSAL])
def test_a_decoder_never_sees_the_future(form):
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(**SIZES, n_layers=2, **chosen(form))).eval()
    ids = torch.randint(1, 19, (1, 14))
    later = ids.clone()
    later[0, 9:] = torch.randint(1, 19, (5,))
    with torch.no_grad():
        assert_close(model(ids)[:, :9], model(later)[:, :9], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in NOT_CAUSAL])
def test_a_translator_reads_its_source_with_any_form(form):
    torch.manual_seed(0)
    config = TransformerConfig(**SIZES, n_encoder_layers=1, n_decoder_layers=1, **chosen(form))
    logits = Transformer(config).eval()(torch.randint(1, 19, (2, 7)), torch.randint(1, 19, (2, 5)))
    assert logits.shape == (2, 4, 19)


@pytest.mark.parametrize("form", FORMS)
def test_images_can_be_seen_with_any_form(form):
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "n_channels": 1}
    config = VisionConfig(
        n_classes=3, image_size=12, patch_size=4, attention=form,
        attention_size=SMALL.get(form), **sizes,
    )  # fmt: skip
    assert Vision(config)(torch.randn(2, 1, 12, 12)).shape == (2, 3)


def test_a_decoder_of_mixed_positions_is_refused():
    with pytest.raises(InputError, match="would see the future"):
        DecoderConfig(**SIZES, n_layers=1, attention="linformer")
    with pytest.raises(InputError, match="attention_size"):
        EncoderConfig(**SIZES, n_layers=1, attention="performer", attention_size=0)
