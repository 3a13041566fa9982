"""Attention from target to source for pairs that are known: read once, as in training."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis.heads import Place
from regard.errors import InputError
from regard.generation.translator import TranslatedPart
from regard.model import Model
from regard.text.tokenizer import Tokenizer
from regard.trace.trace import Trace, watch

_TOGETHER = 32
"""Pairs that are read at once."""


@torch.no_grad()
def crossing_weights(
    model: Model, parts: Sequence[TranslatedPart], places: Sequence[Place] | None = None
) -> Iterator[np.ndarray]:
    """The weights of these heads for each pair, head × target + 1 × source; of all heads if None.

    Row i is what is read to write target token i, after target token i - 1; the last row is what
    is read to write the end.
    """
    for first in range(0, len(parts), _TOGETHER):
        some = parts[first : first + _TOGETHER]
        with watch() as trace:
            model.module(*batch_of(model, some))
        wanted = crossing_places(trace) if places is None else places
        for row, part in enumerate(some):
            rows, columns = range(len(part.ids) + 1), range(len(part.source_ids))
            tables = [
                trace[site].weights(head, batch=row, rows=rows, columns=columns)
                for site, head in wanted
            ]
            yield torch.stack(tables).clamp(min=0).double().numpy()


def crossing_places(trace: Trace) -> list[Place]:
    """Every head that reads the source while the target is written."""
    sites = [path for path in trace if path.endswith("cross")]
    if not sites:
        raise InputError(
            "this model does not attend from target to source, so it cannot tell which word comes "
            "from which."
        )
    return [(path, head) for path in sites for head in range(trace[path].n_heads)]


def batch_of(model: Model, parts: Sequence[TranslatedPart]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the model reads: sources and targets from start to end, and their lengths."""
    start, end = ends_of(model.target_tokenizer)
    sources, source_lengths = _padded([part.source_ids for part in parts])
    targets, target_lengths = _padded([[start, *part.ids, end] for part in parts])
    return sources, targets, source_lengths, target_lengths


def ends_of(tokenizer: Tokenizer | None) -> tuple[int, int]:
    """The start and the end token of a target."""
    start, end = (getattr(tokenizer, name, None) for name in ("start_id", "end_id"))
    if start is None or end is None:
        raise InputError("this model's tokenizer does not say how a target starts and ends.")
    return start, end


@torch.no_grad()
def token_log_probs(model: Model, parts: Sequence[TranslatedPart]) -> Iterator[np.ndarray]:
    """How probable the model finds each target token of each pair, the end token last."""
    for first in range(0, len(parts), _TOGETHER):
        some = parts[first : first + _TOGETHER]
        sources, targets, source_lengths, target_lengths = batch_of(model, some)
        logits = model.module(sources, targets, source_lengths, target_lengths)
        table = logits.log_softmax(dim=-1).gather(-1, targets[:, 1:, None])[..., 0]
        for row, part in enumerate(some):
            yield table[row, : len(part.ids) + 1].double().numpy()


def pair_part(source: str, target: str, tokenizers: tuple[Any, Any]) -> TranslatedPart:
    """A sentence and a translation of it that somebody gives, as the model reads them."""
    source_tokenizer, target_tokenizer = tokenizers
    ids = target_tokenizer.encode(target, specials=False, literal=True)
    return TranslatedPart(source, target, source_tokenizer.encode(source, literal=True), ids)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for i, row in enumerate(rows):
        table[i, : len(row)] = torch.tensor(row)
    return table, lengths
