"""Made-up examples that any model can read: random ids of several lengths, random images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.bundle.bundle import Bundle
from regard.training.batch import (
    Batch,
    ImageBatch,
    LabelledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)

LENGTHS = (9, 4, 7, 9, 5, 9)
"""Of the examples: some alike, some not."""


@dataclass(frozen=True)
class Example:
    """One text (and its target), or one image; and a class for models that tell classes."""

    ids: Tensor | None = None
    target: Tensor | None = None
    image: Tensor | None = None
    label: int = 0


def examples(bundle: Bundle, lengths: Sequence[int] = LENGTHS, *, seed: int = 0) -> list[Example]:
    """Examples of these lengths; the same for the same seed."""
    draw, config = torch.Generator().manual_seed(seed), bundle.config
    if bundle.family == "vision":
        shape = (config.n_channels, config.image_size, config.image_size)
        count = config.n_classes or 1
        return [
            Example(image=torch.randn(shape, generator=draw), label=i % count) for i in range(4)
        ]
    n_classes = getattr(config, "n_classes", None) or 1
    n_source = getattr(config, "n_source_vocab", None) or config.n_vocab
    return [
        Example(
            ids=_ids(n, n_source, config.pad_id, draw),
            target=_ids(n + 2, config.n_vocab, config.pad_id, draw),
            label=i % n_classes,
        )
        for i, n in enumerate(lengths)
    ]


def _ids(count: int, n_vocab: int, pad_id: int, draw: torch.Generator) -> Tensor:
    """Random ids, none of which is padding."""
    ids = torch.randint(0, n_vocab - 1, (count,), generator=draw)
    return ids + (ids >= pad_id)


def batch_of(bundle: Bundle, some: Sequence[Example], *, extra: int = 0) -> Batch:
    """These examples in one batch, with `extra` places of padding more than they need."""
    labels = torch.tensor([one.label for one in some])
    if bundle.family == "vision":
        return ImageBatch(torch.stack([_given(one.image) for one in some]), labels)
    pad_id = bundle.config.pad_id
    ids, lengths = _padded([_given(one.ids) for one in some], pad_id, extra)
    if bundle.family in ("transformer", "seq2seq"):
        target, target_lengths = _padded([_given(one.target) for one in some], pad_id, extra)
        return PairBatch(ids, target, lengths, target_lengths)
    if bundle.family == "decoder":
        return TextBatch(ids, lengths)
    if bundle.task == "classification":
        return LabelledTextBatch(ids, lengths, labels)
    told = (torch.arange(ids.size(1)) % 3 == 1) & (torch.arange(ids.size(1)) < lengths[:, None])
    return MaskedBatch(ids, lengths, ids, told)


def _padded(rows: Sequence[Tensor], pad_id: int, extra: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), int(lengths.max()) + extra), pad_id)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table, lengths


def _given(value: Any) -> Tensor:
    assert value is not None, "examples of a family have what it reads"
    return value
