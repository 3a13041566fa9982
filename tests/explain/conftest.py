"""A small translator with random weights, and what it computes on one sentence."""

import pytest
import torch

from regard.bundle.bundle import Bundle
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.train import train_tokenizer
from regard.trace.run import trace_bundle

TEXTS = ["the dog is sleeping", "a cat sleeps", "der Hund schläft", "eine Katze schläft"]


@pytest.fixture(scope="session")
def translator() -> Bundle:
    torch.manual_seed(7)
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=70, min_frequency=1)
    config = TransformerConfig(
        n_vocab=len(tokenizer),
        d_model=24,
        n_heads=3,
        d_ff=32,
        n_encoder_layers=2,
        n_decoder_layers=2,
        norm="pre",
        pad_id=tokenizer.pad_id or 0,
    )
    return Bundle(model=Transformer(config).eval(), task="translation", tokenizer=tokenizer)


@pytest.fixture(scope="session")
def trace(translator):
    return trace_bundle(translator, "the dog is sleeping", "der Hund schläft")
