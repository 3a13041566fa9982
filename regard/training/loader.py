"""From a corpus to the batches of each step: resumable, and the same for any number of processes.

A step learns from `accumulate` batches, however many processes there are: they share these out.
So the learning of one process and that of several differ in nothing but the order of additions.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import numpy as np

from regard.data.batches import Batches, split_among_ranks
from regard.errors import InputError
from regard.training.batch import Batch

_CHUNK = 2**16


@runtime_checkable
class Make(Protocol):
    """From example numbers and an epoch to a batch; see `regard.training.datasets`."""

    lengths: Sequence[np.ndarray]
    """How many tokens each example has, on every side."""

    def __call__(self, examples: Sequence[int], epoch: int) -> Any: ...


class Feed:
    """Batches without end, epoch after epoch, a step's worth at a time.

    Args:
        numbers: which examples make a batch; of rank 0 of 1, since the sharing is done here.
        make: the tensors of these examples.
        accumulate: how many batches one step learns from.
    """

    def __init__(self, numbers: Batches, make: Make, *, accumulate: int = 1) -> None:
        self.numbers = numbers
        self.make = make
        self._accumulate = accumulate
        self._left: Iterator[list[int]] | None = None
        self._n_batches = numbers.count()

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has, about: other epochs may be cut into batches otherwise."""
        return -(-self._n_batches // self._accumulate)

    @property
    def epochs(self) -> float:
        """How many epochs were handed out so far, with the part of the current one."""
        return self.numbers.epoch + min(1.0, self.numbers.position / self._n_batches)

    def state(self) -> dict[str, int]:
        """Where this is in which data, for `resume`; the same for any number of processes."""
        return self.numbers.state() | self._data

    @cached_property
    def _data(self) -> dict[str, int]:
        """How many examples there are, and a checksum of their lengths, which decide on batches."""
        checksum, count = 0, len(self.make.lengths[0])
        for side in self.make.lengths:
            for first in range(0, count, _CHUNK):
                checksum = crc32(
                    np.asarray(side[first : first + _CHUNK], "<i8").tobytes(), checksum
                )
        return {"examples": count, "lengths": checksum}

    def resume(self, state: dict[str, int]) -> None:
        """Go on where another, of the same data and seed, has been; other data are refused."""
        count, before = self._data["examples"], state.get("examples")
        if any(state.get(name, value) != value for name, value in self._data.items()):
            others = " of other lengths" if count == before else ""
            raise InputError(
                f"the run was begun with {before:,} training examples and now there are "
                f"{count:,}{others}: bring the data back as they were, or begin another run."
            )
        self.numbers.resume(state)
        self._left = None

    def take(self, *, rank: int = 0, ranks: int = 1) -> list[Batch]:
        """What one process computes in the next step; all get the same number of batches.

        The last step of an epoch may have fewer than others, and a process's share of it may be a
        batch with nothing to predict.
        """
        group, epoch = self._next_group()
        return list(shares(group, self.make, epoch=epoch, rank=rank, ranks=ranks))

    def _next_group(self) -> tuple[list[list[int]], int]:
        while True:
            if self._left is None:
                self._left = iter(self.numbers)
            epoch, group = self.numbers.epoch, []
            for batch in self._left:
                group.append(batch)
                if len(group) == self._accumulate:
                    return group, epoch
            self._left = None  # the epoch is over
            if group:
                return group, epoch


def one_pass(numbers: Batches, make: Make, *, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
    """Every example once, for one process of several; all get the same number of batches."""
    return shares(list(numbers.all(0)), make, epoch=0, rank=rank, ranks=ranks)


def shares(
    group: Sequence[list[int]], make: Make, *, epoch: int, rank: int, ranks: int
) -> Iterator[Batch]:
    """One process's part of a group of batches, `ranks` of which are computed at a time."""
    for first in range(0, len(group), ranks):
        examples = split_among_ranks(list(group[first : first + ranks]), ranks)[rank]
        yield make(examples, epoch) if examples else make([0], epoch).blank()
