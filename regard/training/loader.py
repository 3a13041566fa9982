"""Batches of each kind of data for each training step, the same for any number of processes.

A step uses `accumulate` batches, which the processes share. So training with one process and with
several differs only in the order of additions. Loading can resume at any step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batches import Batches, split_among_ranks
from regard.errors import InputError

IGNORE_INDEX = -100
"""The label of an example that does not count, as in torch's cross-entropy."""


@dataclass(frozen=True)
class Batch:
    """Tensors that go through a model together."""

    _no_targets: ClassVar[tuple[str, float]]
    """A field, and its value for an example with nothing to predict."""

    def _map(self, function: Any) -> Any:
        changed = {one.name: function(getattr(self, one.name)) for one in fields(self)}
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Any:
        return self._map(lambda tensor: tensor.to(device))

    def repeated(self) -> Any:
        """Return every example, followed by every example again."""
        return self._map(lambda tensor: torch.cat([tensor, tensor]))

    def n_targets(self) -> int:
        """Return the number of predictions that the loss is summed over."""
        name, value = self._no_targets
        found = getattr(self, name)
        predicted = found != value if name in ("labels", "predicted") else (found - 1).clamp(min=0)
        return int(predicted.sum())

    def without_targets(self) -> Any:
        """Return the first example with nothing to predict, for a process without a share."""
        first, (name, value) = self._map(lambda tensor: tensor[:1]), self._no_targets
        return replace(first, **{name: torch.full_like(getattr(first, name), value)})


@dataclass(frozen=True)
class PairBatch(Batch):
    """Source and target ids, from start token to end token, padded on the right."""

    _no_targets = ("target_lengths", 1)
    source_ids: Int[Tensor, "batch source"]
    target_ids: Int[Tensor, "batch target"]
    source_lengths: Int[Tensor, " batch"]
    target_lengths: Int[Tensor, " batch"]


@dataclass(frozen=True)
class TextBatch(Batch):
    """Running text; every token but the first is predicted from the tokens before it."""

    _no_targets = ("lengths", 1)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Text with some tokens hidden, and the original tokens."""

    _no_targets = ("predicted", False)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch token"]
    predicted: Bool[Tensor, "batch token"]
    """True for tokens that are to be predicted."""


@dataclass(frozen=True)
class LabeledTextBatch(Batch):
    """Texts and their classes."""

    _no_targets = ("labels", IGNORE_INDEX)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images and their classes."""

    _no_targets = ("labels", IGNORE_INDEX)
    images: Float[Tensor, "batch channel height width"]
    labels: Int[Tensor, " batch"]


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
            now = f"{count:,} of other lengths" if count == before else f"{count:,}"
            raise InputError(
                f"the run was started with {before:,} training examples and now there are "
                f"{now}: restore the data, or start another run."
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
