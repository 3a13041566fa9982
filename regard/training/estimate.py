"""What training will take, told beforehand from a few batches, and compared afterwards."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from torch.utils.flop_counter import FlopCounterMode

from regard.training.feed import Feed, shares
from regard.training.machine import peak_memory
from regard.training.step import Learner

_LOOKED_AT = 200
"""Batches among which the largest is looked for."""
_TIMED = 3


@dataclass(frozen=True)
class Estimate:
    """What an epoch takes."""

    seconds: float
    memory: int
    """Bytes at the peak."""
    flops: float
    """Floating-point operations for one target, forward and backward, in matrix products."""

    def __str__(self) -> str:
        return f"about {spoken_time(self.seconds)} per epoch and {spoken_size(self.memory)} at most"


def estimate(learner: Learner, feed: Feed) -> Estimate:
    """Time, memory and operations, from forward and backward passes that change nothing."""
    every = list(islice(feed.numbers.all(0), _LOOKED_AT))
    by_size = sorted(every, key=lambda batch: _size(feed, batch))
    middle = by_size[len(by_size) // 2]
    with FlopCounterMode(display=False) as counter:
        targets = _try(learner, feed, [middle])
    flops = counter.get_total_flops() / max(1, targets)
    _try(learner, feed, [by_size[-1]])  # also warms up, and reaches the peak of memory
    spread = [every[number * len(every) // _TIMED] for number in range(_TIMED)]
    begin = time.perf_counter()
    _try(learner, feed, spread)
    taken = time.perf_counter() - begin
    share = sum(_size(feed, batch) for batch in spread) / sum(_size(feed, one) for one in every)
    epoch = feed.numbers.count() / len(every)
    parameters = [one for one in learner.module.parameters() if one.requires_grad]
    moments = 2 * sum(one.numel() * one.element_size() for one in parameters)
    memory = peak_memory(learner.team.device) + moments
    return Estimate(taken / share * epoch, memory, flops)


def _try(learner: Learner, feed: Feed, group: Sequence[list[int]]) -> int:
    """Compute the gradients of these batches and forget them; how many targets they have."""
    rank, ranks = learner.team.rank, learner.team.ranks
    parts = list(shares(group, feed.make, epoch=0, rank=rank, ranks=ranks))
    n_targets = sum(part.n_targets() for part in parts)
    learner.gradients(parts, step=0, n_targets=n_targets)
    learner.optimiser.zero_grad(set_to_none=True)
    return n_targets


def _size(feed: Feed, batch: list[int]) -> int:
    """How many places a batch has, with padding, on all sides."""
    return sum(len(batch) * int(side[batch].max()) for side in feed.make.lengths)


def spoken_time(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def spoken_size(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
