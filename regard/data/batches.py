"""Padding, and batches by token count: similar lengths, shuffled, resumable, split among ranks."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import SupportsIndex

import numpy as np

from regard.data.corpus import Corpus
from regard.errors import InputError

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_STRETCH = 256
"""Neighboring examples that stay in one block, so that their lengths are read together."""


def uniform_draws(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers in [0, 1) for each example (example × count).

    They depend on the arguments only, not on the other examples: splitmix64 (Steele, Lea & Flood
    2014) of the position of each number.
    """
    # one-element arrays, because overflowing scalars would warn
    start, turn = np.array([[seed % 2**64], [epoch % 2**64]], np.uint64)
    key = _mix(_mix(start) + turn * _GAMMA)
    rows = _mix(key + np.asarray(examples).astype(np.uint64) * _GAMMA)
    columns = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    bits = _mix(rows[:, None] + columns[None, :])
    return (bits >> np.uint64(11)) * 2.0**-53


def _mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def pad(
    lists: Sequence[Sequence[int] | np.ndarray], pad_id: int, *, extra: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists as one array, with `extra` columns of padding or more, and their lengths."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    padded = np.full((len(lists), int(lengths.max(initial=0)) + extra), pad_id, np.int64)
    for row, ids in zip(padded, lists, strict=True):
        row[: len(ids)] = ids
    return padded, lengths


def collate(
    corpus: Corpus, examples: Sequence[SupportsIndex] | np.ndarray, *, pad_ids: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the padded ids and the lengths of these examples, for each field of the corpus."""
    if len(pad_ids) != len(corpus.fields):
        raise InputError(
            f"This corpus has the fields {', '.join(corpus.names)}: {len(corpus.fields)} pad ids "
            f"are needed, {len(pad_ids)} were given."
        )
    return [
        pad([field[number] for number in examples], pad_id)
        for field, pad_id in zip(corpus.fields, pad_ids, strict=True)
    ]


class Batches:
    """Lists of example numbers, epoch after epoch, for one of several ranks.

    A batch has as many examples as fit: their count times the longest of them, on the longer side,
    is at most `tokens`. Examples are shuffled into blocks and sorted by length inside each block,
    so memory depends on the block size, not on the corpus.

    The state counts the batches given to all ranks together, so a run can be resumed exactly, even
    with another number of ranks.

    Args:
        lengths: the number of tokens of each example, one array per side; may be memory-mapped.
        shuffle: False goes through the examples block by block in their order.
        rank: ranks get different examples and the same number of batches. At the end of an epoch,
            a rank may get an empty list.
    """

    def __init__(
        self,
        lengths: Sequence[np.ndarray],
        *,
        tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        ranks: int = 1,
        block: int = 2**17,
    ):
        if not lengths or len({len(side) for side in lengths}) != 1 or len(lengths[0]) == 0:
            raise InputError("Batches need at least one example, with a length on every side.")
        if not 0 <= rank < ranks:
            raise InputError(f"The rank is {rank}; with {ranks} ranks it must be 0 to {ranks - 1}.")
        if block < 1 or tokens < 1:
            raise InputError(f"tokens ({tokens}) and block ({block}) must be 1 or more.")
        self._lengths, self._tokens, self._block = lengths, tokens, block
        self._seed, self._shuffle, self._rank, self._ranks = seed, shuffle, rank, ranks
        self.epoch = self.position = 0
        total = len(lengths[0])
        for start in range(0, total, block):
            longest = self._longer_side(np.arange(start, min(start + block, total)))
            if longest.max() > tokens:
                raise InputError(
                    f"Example {start + int(longest.argmax())} has {longest.max():,} tokens, more "
                    f"than the {tokens:,} of a batch: raise the batch's tokens, or drop long "
                    "examples with checks.max_tokens."
                )

    def _longer_side(self, examples: np.ndarray) -> np.ndarray:
        sides = [np.asarray(side[examples], dtype=np.int64) for side in self._lengths]
        return np.maximum(np.maximum.reduce(sides), 1)

    def state(self) -> dict[str, int]:
        """Return the position for `resume`; it is the same on every rank."""
        return {"epoch": self.epoch, "position": self.position}

    def resume(self, state: dict[str, int]) -> None:
        """Continue from the state of batches with the same examples and seed."""
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or position < 0:
            raise InputError(f"{state} is not a state of batches: both numbers must be 0 or more.")
        self.epoch, self.position = epoch, position

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's remaining batches of the current epoch, then advance the epoch."""
        rest = self.all(self.epoch, start=self.position)
        while group := list(islice(rest, self._ranks)):
            self.position += len(group)
            yield split_among_ranks(group, self._ranks)[self._rank]
        self.epoch, self.position = self.epoch + 1, 0

    def count(self, epoch: int = 0) -> int:
        """Return the number of batches that each rank gets in an epoch."""
        return -(-sum(1 for _ in self.all(epoch)) // self._ranks)

    def all(self, epoch: int, *, start: int = 0) -> Iterator[list[int]]:
        """Yield the batches of an epoch for all ranks together, from number `start` on."""
        for number, examples in enumerate(self._blocks(epoch)):
            rng = np.random.default_rng([self._seed, epoch, 1 + number])
            cuts = self._cuts(ordered := self._sorted(examples, rng))
            order = rng.permutation(len(cuts)) if self._shuffle else np.arange(len(cuts))
            for first, last in cuts[order[start:]]:
                yield ordered[first:last].tolist()
            start = max(0, start - len(cuts))

    def _blocks(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield the examples' numbers in blocks of random stretches."""
        total = len(self._lengths[0])
        stretches = np.arange(-(-total // _STRETCH))
        if self._shuffle:
            stretches = np.random.default_rng([self._seed, epoch]).permutation(stretches)
        for part in np.array_split(stretches, -(-total // self._block)):
            examples = (part[:, None] * _STRETCH + np.arange(_STRETCH)).ravel()
            if len(examples := examples[examples < total]):
                yield examples

    def _sorted(self, examples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Sort the examples so that neighbors have similar lengths; ties are in random order.

        The longer side decides; among equals the difference of the sides alternately rises and
        falls. On Multi30k that halves the padding of a plain sort.
        """
        longer = self._longer_side(examples)
        first, last = (self._lengths[i][examples].astype(np.int64) for i in (0, -1))
        difference = first - last
        if self._shuffle:
            ties = rng.random(len(examples))
            parity, backwards = rng.integers(2, size=2)  # different cuts in every epoch
        else:
            ties, parity, backwards = examples, 0, 0
        zigzag = np.where(longer % 2 == parity, difference, -difference)
        return examples[np.lexsort((ties, zigzag, -longer if backwards else longer))]

    def _cuts(self, examples: np.ndarray) -> np.ndarray:
        """Return the first and last position of each batch, as full as possible."""
        longer = self._longer_side(examples)
        cuts, first = [], 0
        while first < len(longer):
            longest = np.maximum.accumulate(longer[first : first + self._tokens])
            size = longest * np.arange(1, len(longest) + 1)
            last = first + int(np.searchsorted(size, self._tokens, side="right"))
            cuts.append((first, last))
            first = last
        return np.array(cuts)


def split_among_ranks(batches: list[list[int]], ranks: int) -> list[list[int]]:
    """Split the examples of a few batches into one part for each rank; parts may be empty.

    Each part comes from one batch, so it is not larger than a batch may be.
    """
    shares = [ranks // len(batches) + (n < ranks % len(batches)) for n in range(len(batches))]
    parts = []
    for batch, share in zip(batches, shares, strict=True):
        parts += [part.tolist() for part in np.array_split(np.array(batch, np.int64), share)]
    return parts
