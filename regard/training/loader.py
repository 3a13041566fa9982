"""Batches for each training step: resumable, and the same for any number of processes.

A step uses `accumulate` batches, which the processes share. So training with one process and with
several differs only in the order of additions.
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
class BatchMaker(Protocol):
    """Makes a batch from example numbers and an epoch; see `regard.training.datasets`."""

    lengths: Sequence[np.ndarray]
    """Number of tokens of each example, for every side."""

    def __call__(self, examples: Sequence[int], epoch: int) -> Any: ...


class BatchLoader:
    """An endless sequence of batches, epoch after epoch, one step at a time.

    Args:
        numbers: example numbers of each batch, for rank 0 of 1: this class divides them.
        make: makes the tensors of these examples.
        accumulate: batches per step.
    """

    def __init__(self, numbers: Batches, make: BatchMaker, *, accumulate: int = 1) -> None:
        self.numbers, self.make = numbers, make
        self._accumulate = accumulate
        self._rest: Iterator[list[int]] | None = None
        self._n_batches = numbers.count()

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in the first epoch; later epochs may differ by a few."""
        return -(-self._n_batches // self._accumulate)

    @property
    def epochs(self) -> float:
        """Number of epochs so far, including the finished part of the current one."""
        return self.numbers.epoch + min(1.0, self.numbers.position / self._n_batches)

    def state(self) -> dict[str, int]:
        """Return the position in the data for `resume`; the same for any number of processes."""
        return self.numbers.state() | self._fingerprint

    @cached_property
    def _fingerprint(self) -> dict[str, int]:
        """Number of examples and a checksum of their lengths, which decide on the batches."""
        checksum, count = 0, len(self.make.lengths[0])
        for side in self.make.lengths:
            for first in range(0, count, _CHUNK):
                checksum = crc32(
                    np.asarray(side[first : first + _CHUNK], "<i8").tobytes(), checksum
                )
        return {"examples": count, "lengths": checksum}

    def resume(self, state: dict[str, int]) -> None:
        """Continue at a saved position; different data are refused."""
        count, before = self._fingerprint["examples"], state.get("examples")
        if any(state.get(name, value) != value for name, value in self._fingerprint.items()):
            others = " of other lengths" if count == before else ""
            raise InputError(
                f"the run was started with {before:,} training examples and now there are "
                f"{count:,}{others}: restore the data, or start another run."
            )
        self.numbers.resume(state)
        self._rest = None

    def next_step(self, *, rank: int = 0, world_size: int = 1) -> list[Batch]:
        """Return one process's batches of the next step; all processes get equally many.

        The last step of an epoch may have fewer batches than others, and a process's share of it
        may be a batch without targets.
        """
        group, epoch = self._next_group()
        return list(
            batches_of_rank(group, self.make, epoch=epoch, rank=rank, world_size=world_size)
        )

    def _next_group(self) -> tuple[list[list[int]], int]:
        while True:
            if self._rest is None:
                self._rest = iter(self.numbers)
            epoch, group = self.numbers.epoch, []
            for batch in self._rest:
                group.append(batch)
                if len(group) == self._accumulate:
                    return group, epoch
            self._rest = None  # end of the epoch
            if group:
                return group, epoch


def batches_of_rank(
    group: Sequence[list[int]], make: BatchMaker, *, epoch: int, rank: int, world_size: int
) -> Iterator[Batch]:
    """Yield one process's share of a group of batches; all processes get equally many."""
    for first in range(0, len(group), world_size):
        examples = split_among_ranks(list(group[first : first + world_size]), world_size)[rank]
        yield make(examples, epoch) if examples else make([0], epoch).without_targets()
