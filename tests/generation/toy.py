"""A translator small enough to be trained here: English numbers to German ones, backwards.

"one two three" becomes "drei zwei eins", so the true alignment of every sentence is known, and is
not the diagonal.
"""

import random
import tempfile
from functools import cache
from pathlib import Path

import jaxtyping
import torch

from regard.model import Model
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer_training import train_tokenizer

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
TRANSLATED = dict(zip(ENGLISH, GERMAN, strict=True))
_KEPT = []


def pairs(count, *, seed):
    """Sentences and their true translations."""
    chance = random.Random(seed)
    sentences = [chance.choices(ENGLISH, k=chance.randint(2, 6)) for _ in range(count)]
    return [(" ".join(words), true_translation(words)) for words in sentences]


def true_translation(words):
    return " ".join(TRANSLATED[word] for word in reversed(words))


@cache
def toy() -> Path:
    """The folder of the trained model, made once for each process."""
    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name) / "toy"
    jaxtyping.config.update("jaxtyping_disable", True)  # shapes are checked in other tests
    try:
        model = Model(module=_trained(), task="translation", tokenizer=tokenizer())
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    model.save(folder)
    return folder


@cache
def tokenizer():
    """One that cuts some of the words into pieces."""
    return train_tokenizer(ENGLISH + GERMAN, kind="bpe", vocab_size=60, min_frequency=1)


def _trained():
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 2}
    config = TransformerConfig(n_vocab=len(tokenizer()), norm="pre", dropout=0.0, **sizes)
    model = Transformer(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, fused=True)
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (300 - step) / 150)
        batch = pairs(32, seed=step)
        sources, source_lengths = _padded([source for source, _ in batch])
        targets, target_lengths = _padded([target for _, target in batch])
        counted = torch.arange(targets.size(1) - 1) < (target_lengths - 1)[:, None]
        logits = model(sources, targets, source_lengths, target_lengths)
        loss = torch.nn.functional.cross_entropy(logits[counted], targets[:, 1:][counted])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def _padded(texts):
    rows = tokenizer().encode_batch(texts)
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for i, row in enumerate(rows):
        table[i, : len(row)] = torch.tensor(row)
    return table, lengths
