"""Models with random weights for the scripts of this folder, and texts for them."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import train_tokenizer

WORDS = ["the", "dog", "is", "sleeping", "in", "a", "garden", "while", "two", "children", "play"]
"""Each is one token."""


def save_model(folder: Path, task: str, texts: Sequence[str], config: dict[str, Any]) -> None:
    """Save a model with this configuration and a tokenizer for the words of these texts."""
    tokenizer: Tokenizer = train_tokenizer(list(texts) * 2, vocab_size=200, min_frequency=1)
    torch.manual_seed(0)
    model = build(config_from_dict({"n_vocab": len(tokenizer), **config})).eval()
    Model(module=model, task=task, tokenizer=tokenizer).save(folder)


def save_encoder(folder: Path, *, width: int, n_layers: int, n_heads: int = 12) -> None:
    """Save an encoder."""
    sizes = {"d_model": width, "d_ff": 2 * width, "n_layers": n_layers, "n_heads": n_heads}
    save_model(folder, "masked", WORDS, {"family": "encoder", "positions": "sinusoidal", **sizes})


def text_of(n_tokens: int, seed: int = 0) -> str:
    """Return a text of `n_tokens` tokens, including the two that the tokenizer adds."""
    chosen = random.Random(seed).choices(WORDS, k=n_tokens - 2)
    return " ".join(chosen)
