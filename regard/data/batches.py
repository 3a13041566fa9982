"""Batches by token count: alike in length, shuffled, resumable, shared among ranks."""

from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np

from regard.data.corpus import Corpus
from regard.errors import InputError

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniform_draws(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each example (example × count), always the same ones.

    Splitmix64 (Steele, Lea & Flood 2014) on the place of each number.
    """
    # arrays of one, because single numbers warn when they run over, which is meant here
    start, turn = np.array([[seed % 2**64], [epoch % 2**64]], np.uint64)
    key = _mixed(_mixed(start) + turn * _STEP)
    rows = _mixed(key + np.asarray(examples).astype(np.uint64) * _STEP)
    places = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    bits = _mixed(rows[:, None] + places[None, :])
    return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def pad(lists: Sequence[Sequence[int] | np.ndarray], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids with `pad_id` behind the shorter lists (list × token), and how long each list is."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    padded = np.full((len(lists), int(lengths.max(initial=0))), pad_id, np.int64)
    for row, ids in zip(padded, lists, strict=True):
        row[: len(ids)] = ids
    return padded, lengths


def collate(
    corpus: Corpus, examples: Sequence[SupportsIndex] | np.ndarray, *, pad_ids: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ids and lengths of these examples, for each field of the corpus."""
    if len(pad_ids) != len(corpus.fields):
        raise InputError(
            f"This corpus has the fields {', '.join(corpus.names)}: {len(corpus.fields)} pad ids "
            f"are needed, {len(pad_ids)} were given."
        )
    return [
        pad([field[number] for number in examples], pad_id)
        for field, pad_id in zip(corpus.fields, pad_ids, strict=True)
    ]


_STRETCH = 256
"""Neighboring examples that stay in one block, so that their lengths are read together."""


class Batches:
    """Lists of example numbers, epoch after epoch, for one rank out of several.

    A batch holds as many examples as fit: their number times the longest of them, on the longer
    side, is `tokens` at most. Examples are first shuffled into blocks, then sorted by length inside
    each block, so memory depends on the block and not on the corpus.

    The state counts the batches that were handed out, to all ranks together. So a run that is
    stopped goes on exactly where it was, also with another number of ranks.

    Args:
        lengths: the examples' numbers of tokens, one array for each side; may be memory-mapped.
        shuffle: False goes through the examples block by block in their order.
        rank: every rank gets other examples and the same number of batches. Where the examples
            left at the end of an epoch do not suffice for that, a rank may get an empty list.
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
            raise InputError(f"Rank {rank} of {ranks} cannot be; ranks are counted from 0.")
        if block < 1 or tokens < 1:
            raise InputError(f"tokens ({tokens}) and block ({block}) must be 1 or more.")
        self._lengths = lengths
        self._tokens = tokens
        self._seed = seed
        self._shuffle = shuffle
        self._rank, self._ranks = rank, ranks
        self._block = block
        self.epoch = 0
        self.position = 0
        self._check_longest()

    def _check_longest(self) -> None:
        for start in range(0, len(self._lengths[0]), self._block):
            longest = self._longer_side(np.arange(start, self._end(start)))
            if longest.max() > self._tokens:
                example = start + int(longest.argmax())
                raise InputError(
                    f"Example {example} has {longest.max():,} tokens and a batch only "
                    f"{self._tokens:,}: raise the batch's tokens, or drop long examples "
                    "with checks.max_tokens."
                )

    def _end(self, start: int) -> int:
        return min(start + self._block, len(self._lengths[0]))

    def _longer_side(self, examples: np.ndarray) -> np.ndarray:
        sides = [np.asarray(side[examples], dtype=np.int64) for side in self._lengths]
        return np.maximum(np.maximum.reduce(sides), 1)

    def state(self) -> dict[str, int]:
        """Where this is, for `resume`; the same on every rank."""
        return {"epoch": self.epoch, "position": self.position}

    def resume(self, state: dict[str, int]) -> None:
        """Go on where another, with the same examples and seed, has been."""
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or position < 0:
            raise InputError(f"{state} is no state of batches.")
        self.epoch, self.position = epoch, position

    def __iter__(self) -> Iterator[list[int]]:
        """What is left of the current epoch for this rank; then the next epoch begins."""
        together: list[list[int]] = []
        for batch in self.all(self.epoch, start=self.position):
            together.append(batch)
            if len(together) == self._ranks:
                self.position += self._ranks
                yield together[self._rank]
                together = []
        if together:
            self.position += len(together)
            yield split_among_ranks(together, self._ranks)[self._rank]
        self.epoch += 1
        self.position = 0

    def count(self, epoch: int = 0) -> int:
        """How many batches each rank gets in an epoch."""
        return -(-sum(1 for _ in self.all(epoch)) // self._ranks)

    def all(self, epoch: int, *, start: int = 0) -> Iterator[list[int]]:
        """The batches of an epoch for all ranks together, from number `start` on."""
        for number, examples in enumerate(self._blocks(epoch)):
            dice = np.random.default_rng([self._seed, epoch, 1 + number])
            cuts = self._cuts(ordered := self._sorted(examples, dice))
            order = dice.permutation(len(cuts)) if self._shuffle else np.arange(len(cuts))
            for first, last in cuts[order[start:]]:
                yield ordered[first:last].tolist()
            start = max(0, start - len(cuts))

    def _blocks(self, epoch: int) -> Iterator[np.ndarray]:
        """The examples' numbers, parted into blocks of random stretches."""
        total = len(self._lengths[0])
        stretches = np.arange(-(-total // _STRETCH))
        if self._shuffle:
            stretches = np.random.default_rng([self._seed, epoch]).permutation(stretches)
        for part in np.array_split(stretches, -(-total // self._block)):
            examples = (part[:, None] * _STRETCH + np.arange(_STRETCH)).ravel()
            if len(examples := examples[examples < total]):
                yield examples

    def _sorted(self, examples: np.ndarray, dice: np.random.Generator) -> np.ndarray:
        """The examples, each beside others of nearly its lengths; equals in random order.

        The longer side decides; among equals the difference of the sides rises and falls in turn,
        as a plough goes up and down a field. On Multi30k that halves the padding of a plain sort.
        """
        longer = self._longer_side(examples)
        difference = self._difference(examples)
        if self._shuffle:
            ties = dice.random(len(examples))
            down, back = dice.integers(2, size=2)  # other cuts in every epoch
        else:
            ties, down, back = examples, 0, 0
        plough = np.where(longer % 2 == down, difference, -difference)
        order = np.lexsort((ties, plough, -longer if back else longer))
        return examples[order]

    def _difference(self, examples: np.ndarray) -> np.ndarray:
        if len(self._lengths) == 1:
            return np.zeros(len(examples), np.int64)
        first, second = (np.asarray(side[examples], np.int64) for side in self._lengths[:2])
        return first - second

    def _cuts(self, examples: np.ndarray) -> np.ndarray:
        """First and last place of each batch, as full as it may be."""
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
    """The examples of a few batches as one part for each rank; parts may be empty.

    A part comes from one batch only, so it is no larger than a batch may be.
    """
    shares = [ranks // len(batches) + (n < ranks % len(batches)) for n in range(len(batches))]
    parts = []
    for batch, share in zip(batches, shares, strict=True):
        parts += [part.tolist() for part in np.array_split(np.array(batch, np.int64), share)]
    return parts
