"""Batches for each training step: resumable, and the same for any number of processes.

A step uses `accumulate` batches, which the processes share. So training with one process and with
several differs only in the order of additions.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np

from regard.data.batches import Batches, split_among_ranks
from regard.errors import InputError
from regard.training.batch import Batch

_CHUNK = 2**16


class BatchLoader:
    """An endless sequence of batches, epoch after epoch, one step at a time.

    Args:
        numbers: example numbers of each batch, for rank 0 of 1: this class divides them.
        make: makes the tensors of these examples; see `regard.training.datasets`.
        accumulate: batches per step.
    """

    def __init__(self, numbers: Batches, make: Any, *, accumulate: int = 1) -> None:
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
                part = np.asarray(side[first : first + _CHUNK], "<i8")
                checksum = crc32(part.tobytes(), checksum)
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
        group, epoch = [], 0
        while not group:
            self._rest = self._rest or iter(self.numbers)
            epoch = self.numbers.epoch
            group = list(islice(self._rest, self._accumulate))
            if len(group) < self._accumulate:  # end of the epoch
                self._rest = None
        shares = batches_of_rank(group, self.make, epoch=epoch, rank=rank, world_size=world_size)
        return list(shares)


def batches_of_rank(
    group: Sequence[list[int]], make: Any, *, epoch: int, rank: int, world_size: int
) -> Iterator[Batch]:
    """Yield one process's share of a group of batches; all processes get equally many."""
    for first in range(0, len(group), world_size):
        examples = split_among_ranks(list(group[first : first + world_size]), world_size)[rank]
        yield make(examples, epoch) if examples else make([0], epoch).without_targets()
