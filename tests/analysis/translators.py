"""Small translators with random weights, for tests that look into them."""

import torch

from regard.model import Model
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer_training import train_tokenizer

TEXTS = ["the dog is sleeping", "a cat sleeps", "der Hund schläft", "eine Katze schläft"]


def small_translator(*, seed: int, vocab_size: int) -> Model:
    """Two layers of three heads on each side."""
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=vocab_size, min_frequency=1)
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
    return Model(module=Transformer(config).eval(), task="translation", tokenizer=tokenizer)
