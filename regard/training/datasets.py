"""Datasets that make batches from example numbers, one class for each kind of data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batches, collate, pad, uniform_draws
from regard.data.corpus import Corpus
from regard.data.images import Augmentation, Images, Normalization, center_crop
from regard.data.token_augmentation import Masking, MergeDropout
from regard.text.tokenizer import Tokenizer
from regard.training.loader import (
    Batch,
    BatchLoader,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
    batches_of_rank,
)

Examples = Sequence[int]
_SIDE_SEED = 2**32
"""Distance between the seeds of source and target, so that they get different random numbers."""


class _CorpusDataset:
    """Base class of datasets whose lengths are those of a corpus."""

    corpus: Corpus

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return self.corpus.lengths


@dataclass(frozen=True)
class PairDataset(_CorpusDataset):
    """Sources and targets; with merge dropout, tokenized differently in every epoch."""

    corpus: Corpus
    source_pad: int
    target_pad: int
    merge_dropout: Sequence[MergeDropout] = ()
    seed: int = 0

    def __call__(self, examples: Examples, epoch: int) -> PairBatch:
        pads = (self.source_pad, self.target_pad)
        fields = collate(self.corpus, examples, pad_ids=pads)
        for side, merge_dropout in enumerate(self.merge_dropout):
            pieces = merge_dropout.apply(
                [self.corpus.fields[side][number] for number in examples],
                seed=_SIDE_SEED * side + self.seed,
                epoch=epoch,
                examples=examples,
                longest=int(self.lengths[side].max()),
            )
            fields[side] = pad(pieces, pads[side])
        (source, source_lengths), (target, target_lengths) = fields
        return PairBatch(*map(_tensor, (source, target, source_lengths, target_lengths)))


class WindowDataset:
    """Windows of running text, one token longer than what the model reads.

    With `shift`, every epoch cuts the text at different places, so that no token is always first.
    """

    def __init__(self, stream: np.ndarray, *, length: int, seed: int, shift: bool = True) -> None:
        self._stream, self._length, self._seed = stream, length, seed
        self._max_offset = length if shift and len(stream) > 2 * length else 1
        n_windows = max(1, -(-(len(stream) - self._max_offset) // length))
        self.lengths = (np.broadcast_to(np.int64(length), n_windows),)

    def __call__(self, examples: Examples, epoch: int) -> TextBatch:
        draw = uniform_draws(self._seed, epoch, np.zeros(1), 1)[0, 0]
        offset = int(draw * self._max_offset)
        starts = [offset + int(number) * self._length for number in examples]
        windows = [self._stream[first : first + self._length + 1] for first in starts]
        return TextBatch(*map(_tensor, pad(windows, 0)))


@dataclass(frozen=True)
class MaskedTextDataset(_CorpusDataset):
    """Texts with hidden tokens, different ones in every epoch."""

    corpus: Corpus
    masking: Masking
    pad_id: int
    seed: int

    def __call__(self, examples: Examples, epoch: int) -> MaskedBatch:
        ((ids, lengths),) = collate(self.corpus, examples, pad_ids=[self.pad_id])
        hidden, predicted = self.masking.hide(ids, seed=self.seed, epoch=epoch, examples=examples)
        return MaskedBatch(*map(_tensor, (hidden, lengths, ids, predicted)))


@dataclass(frozen=True)
class LabeledTextDataset(_CorpusDataset):
    """Texts with their classes."""

    corpus: Corpus
    pad_id: int

    def __call__(self, examples: Examples, epoch: int) -> LabeledTextBatch:
        del epoch
        texts = self.corpus.fields[self.corpus.names.index("text")]
        ids, lengths = pad([texts[number] for number in examples], self.pad_id)
        labels = self.corpus.labels[np.asarray(examples)].astype(np.int64)
        return LabeledTextBatch(*map(_tensor, (ids, lengths, labels)))


@dataclass(frozen=True)
class ImageDataset:
    """Images with their classes; with an augmentation, changed randomly in every epoch."""

    images: Images
    normalization: Normalization
    n_tokens: int
    augmentation: Augmentation | None = None
    side: int = 0
    seed: int = 0

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return (np.broadcast_to(np.int64(self.n_tokens), len(self.images)),)

    def __call__(self, examples: Examples, epoch: int) -> ImageBatch:
        pixels = self.images.pixels[np.asarray(examples)]
        if self.augmentation is not None:
            pixels = self.augmentation.apply(pixels, seed=self.seed, epoch=epoch, examples=examples)
        elif self.side:
            pixels = center_crop(pixels, self.side)
        labels = self.images.labels[np.asarray(examples)].astype(np.int64)
        return ImageBatch(_tensor(self.normalization.apply(pixels)), _tensor(labels))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


@dataclass(frozen=True)
class Datasets:
    """The datasets of a recipe, with tokenizers and classes."""

    splits: dict[str, Any]
    """Datasets by name: "train", "validation" and perhaps "test"."""
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    classes: tuple[str, ...] | None = None
    pixels: Normalization | None = None
    image_shape: tuple[int, int] | None = None
    """Side and channels of the images."""

    def loader(self, *, batch_tokens: int, accumulate: int, seed: int) -> BatchLoader:
        train = self.splits["train"]
        numbers = Batches(train.lengths, tokens=batch_tokens, seed=seed)
        return BatchLoader(numbers, train, accumulate=accumulate)

    def one_epoch(
        self, split: str, *, batch_tokens: int, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """Return every example of a split once, divided among the processes."""
        make = self.splits[split]
        tokens = max(batch_tokens, *(int(side.max()) for side in make.lengths))
        numbers = list(Batches(make.lengths, tokens=tokens, shuffle=False).all(0))
        return batches_of_rank(numbers, make, epoch=0, rank=rank, world_size=world_size)
