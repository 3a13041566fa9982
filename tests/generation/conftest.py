"""Translators for these tests, and a cache of their own."""

import pytest
import torch

from regard.model import Model
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig
from tests.generation.toy import tokenizer, toy


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(cache))


@pytest.fixture(scope="session")
def toy_folder():
    return toy()


def lively(model):
    """Weights so large that outputs are far apart."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory):
    """Saves a translator that was not trained, of any family and with any settings."""

    def make(family="transformer", *, unused=0, **settings):
        words = tokenizer()
        sizes = {"d_model": 16, "n_vocab": len(words) + unused, **settings}
        if family == "seq2seq":
            model = Seq2Seq(Seq2SeqConfig(**sizes))
        else:
            layers = {"n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
            model = Transformer(TransformerConfig(**{**layers, **sizes}))
        folder = tmp_path_factory.mktemp("model") / family
        Model(module=lively(model), task="translation", tokenizer=words).save(folder)
        return folder

    return make
