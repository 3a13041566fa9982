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


def save_imported(folder: Path, kind: str) -> None:
    """Save a model of `transformers` in its default sizes with random weights, and import it.

    "GPT2LMHeadModel" is GPT-2 small (124 million weights), "BertForMaskedLM" BERT base (110).
    """
    import transformers

    from regard.interop.import_checkpoint import import_checkpoint

    torch.manual_seed(0)
    model = getattr(transformers, kind)
    checkpoint = folder.with_name(f"{folder.name}-checkpoint")
    model(model.config_class()).save_pretrained(checkpoint)
    train_tokenizer(WORDS * 2, vocab_size=200, min_frequency=1).save(checkpoint / "tokenizer.json")
    import_checkpoint(checkpoint).save(folder)


def text_of(n_tokens: int, seed: int = 0) -> str:
    """Return a text of `n_tokens` tokens, including the two that the tokenizer adds."""
    chosen = random.Random(seed).choices(WORDS, k=n_tokens - 2)
    return " ".join(chosen)
