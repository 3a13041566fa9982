"""Models with random weights that the scripts of this folder look into, and texts for them."""

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
    """A folder with a model of this configuration, which reads the words of these texts."""
    tokenizer: Tokenizer = train_tokenizer(list(texts) * 2, vocab_size=200, min_frequency=1)
    torch.manual_seed(0)
    model = build(config_from_dict({"n_vocab": len(tokenizer), **config})).eval()
    Model(module=model, task=task, tokenizer=tokenizer).save(folder)


def save_encoder(folder: Path, *, width: int, n_layers: int, n_heads: int = 12) -> None:
    """An encoder of any size."""
    sizes = {"d_model": width, "d_ff": 2 * width, "n_layers": n_layers, "n_heads": n_heads}
    save_model(folder, "masked", WORDS, {"family": "encoder", "positions": "sinusoidal", **sizes})


def text_of(n_tokens: int, seed: int = 0) -> str:
    """So many tokens, with the two that the tokenizer puts around them."""
    chosen = random.Random(seed).choices(WORDS, k=n_tokens - 2)
    return " ".join(chosen)
