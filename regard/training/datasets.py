"""What a model learns from, ready to be cut into batches."""

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
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer
from regard.training.batch import (
    Batch,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.loader import Feed, one_pass

Examples = Sequence[int]
_SIDE = 2**32
"""Between the seeds of the sides of a pair, so that they do not get the same random numbers."""


class Pairs:
    """Sources and their targets, in other pieces in every epoch if they are split by chance."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        source_pad: int,
        target_pad: int,
        splittings: Sequence[MergeDropout] = (),
        seed: int = 0,
    ) -> None:
        self._corpus, self._pads = corpus, (source_pad, target_pad)
        self._splittings, self._seed = splittings, seed
        self.lengths: Sequence[np.ndarray] = corpus.lengths

    def __call__(self, examples: Examples, epoch: int) -> PairBatch:
        fields = collate(self._corpus, examples, pad_ids=self._pads)
        for side, splitting in enumerate(self._splittings):
            fields[side] = self._split(side, splitting, examples, epoch)
        (source, source_lengths), (target, target_lengths) = fields
        return PairBatch(*map(_tensor, (source, target, source_lengths, target_lengths)))

    def _split(
        self, side: int, splitting: MergeDropout, examples: Examples, epoch: int
    ) -> tuple[np.ndarray, np.ndarray]:
        field = self._corpus.fields[side]
        pieces = splitting.apply(
            [field[number] for number in examples],
            seed=_SIDE * side + self._seed,
            epoch=epoch,
            examples=examples,
            longest=int(self.lengths[side].max()),
        )
        return pad(pieces, self._pads[side])


class Windows:
    """Stretches of running text, one token longer than what the model reads.

    Every epoch cuts the text at other places, so that no token always comes first.
    """

    def __init__(self, stream: np.ndarray, *, length: int, seed: int, shift: bool = True) -> None:
        self._stream, self._length, self._seed = stream, length, seed
        self._room = length if shift and len(stream) > 2 * length else 1
        n_windows = max(1, -(-(len(stream) - self._room) // length))
        self.lengths: Sequence[np.ndarray] = (np.broadcast_to(np.int64(length), n_windows),)

    def __call__(self, examples: Examples, epoch: int) -> TextBatch:
        offset = int(uniform_draws(self._seed, epoch, np.zeros(1), 1)[0, 0] * self._room)
        starts = [offset + int(number) * self._length for number in examples]
        windows = [self._stream[first : first + self._length + 1] for first in starts]
        ids, lengths = pad(windows, 0)
        return TextBatch(_tensor(ids), _tensor(lengths))


class HiddenTokens:
    """Texts in which some tokens are hidden, other ones in every epoch."""

    def __init__(self, corpus: Corpus, masking: Masking, *, pad_id: int, seed: int) -> None:
        self._corpus, self._masking = corpus, masking
        self._pad_id, self._seed = pad_id, seed
        self.lengths: Sequence[np.ndarray] = corpus.lengths

    def __call__(self, examples: Examples, epoch: int) -> MaskedBatch:
        ((ids, lengths),) = collate(self._corpus, examples, pad_ids=[self._pad_id])
        hidden, told = self._masking.hide(ids, seed=self._seed, epoch=epoch, examples=examples)
        return MaskedBatch(*map(_tensor, (hidden, lengths, ids, told)))


class LabeledTexts:
    """Texts with their classes."""

    def __init__(self, corpus: Corpus, *, pad_id: int) -> None:
        self._corpus = corpus
        self._text = corpus.fields[corpus.names.index("text")]
        self._pad_id = pad_id
        self.lengths: Sequence[np.ndarray] = corpus.lengths

    def __call__(self, examples: Examples, epoch: int) -> LabeledTextBatch:
        del epoch
        ids, lengths = pad([self._text[number] for number in examples], self._pad_id)
        labels = self._corpus.labels[np.asarray(examples)].astype(np.int64)
        return LabeledTextBatch(_tensor(ids), _tensor(lengths), _tensor(labels))


class Pictures:
    """Images with their classes, changed by chance in every epoch if there is an augmentation."""

    def __init__(
        self,
        images: Images,
        normalization: Normalization,
        *,
        n_tokens: int,
        augmentation: Augmentation | None = None,
        side: int = 0,
        seed: int = 0,
    ) -> None:
        self._images, self._normalization = images, normalization
        self._augmentation, self._side, self._seed = augmentation, side, seed
        self.lengths: Sequence[np.ndarray] = (np.broadcast_to(np.int64(n_tokens), len(images)),)

    def __call__(self, examples: Examples, epoch: int) -> ImageBatch:
        pixels = self._images.pixels[np.asarray(examples)]
        if self._augmentation is not None:
            pixels = self._augmentation.apply(
                pixels, seed=self._seed, epoch=epoch, examples=examples
            )
        elif self._side:
            pixels = center_crop(pixels, self._side)
        labels = self._images.labels[np.asarray(examples)].astype(np.int64)
        return ImageBatch(_tensor(self._normalization.apply(pixels)), _tensor(labels))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def too_little(part: str, share: float) -> InputError:
    """What to say where a share of the training data has nothing in it that could be told."""
    return InputError(
        f"data.{part} = {share:g} holds out too little of these data: give a larger share, such as "
        "0.1, or name files."
    )


@dataclass(frozen=True)
class Material:
    """What a model learns from and is tested with."""

    parts: dict[str, Any]
    """From example numbers to a batch, for "train", "validation" and perhaps "test"."""
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    classes: tuple[str, ...] | None = None
    pixels: Normalization | None = None
    image_shape: tuple[int, int] | None = None
    """Side and channels of the images."""

    def feed(self, *, batch_tokens: int, accumulate: int, seed: int) -> Feed:
        """The batches of training, epoch after epoch."""
        make = self.parts["train"]
        numbers = Batches(make.lengths, tokens=batch_tokens, seed=seed)
        return Feed(numbers, make, accumulate=accumulate)

    def once(self, part: str, *, batch_tokens: int, rank: int, ranks: int) -> Iterator[Batch]:
        """Every example of a part once."""
        make = self.parts[part]
        longest = max(int(side.max()) for side in make.lengths)
        tokens = max(batch_tokens, longest)
        numbers = Batches(make.lengths, tokens=tokens, shuffle=False)
        return one_pass(numbers, make, rank=rank, ranks=ranks)
