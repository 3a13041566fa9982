"""Small bundles of every family, made once."""

import pytest
import torch

from regard.bundle.bundle import Bundle
from regard.bundle.card import Card
from regard.data.images import Normalisation
from regard.models.build import build
from regard.models.config import config_from_dict
from regard.text.train import train_tokenizer

TEXTS = ["A dog runs along the beach.", "Ein Hund läuft am Strand entlang."] * 2
SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 12}
FAMILIES = {
    "transformer": {**SIZES, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "seq2seq": {"d_model": 8},
    "encoder": {**SIZES, "n_layers": 1, "n_token_types": 2},
    "decoder": {**SIZES, "n_layers": 1},
    "vision": {**SIZES, "n_layers": 1, "image_size": 8, "patch_size": 4, "n_classes": 3},
}
TASKS = {
    "transformer": "translation",
    "seq2seq": "translation",
    "encoder": "masked",
    "decoder": "language",
    "vision": "classification",
}


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=60, min_frequency=1)


@pytest.fixture(scope="session")
def make_bundle(tokenizer):
    """Makes a bundle of a family; `seed` decides its weights."""

    def make(family, *, seed=0, **more):
        torch.manual_seed(seed)
        settings = dict(FAMILIES[family])
        if family == "vision":
            more.setdefault("labels", ("cat", "dog", "horse"))
            more.setdefault("pixels", Normalisation((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
        else:
            settings["n_vocab"] = len(tokenizer)
            more.setdefault("tokenizer", tokenizer)
        model = build(config_from_dict({"family": family, **settings})).eval()
        card = Card(data="two sentences", licence="CC0", score="none")
        return Bundle(model=model, task=TASKS[family], card=card, **more)

    return make
