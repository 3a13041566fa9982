"""Detection of diverging runs, with the name of the inner value where it started."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from regard.errors import NotFiniteError
from regard.tap import Tapped, listen, split_path
from regard.training.batch import Batch
from regard.training.step import StepResult, TrainStep

_MAY_BE_INFINITE = frozenset({"masked", "temperature"})


class DivergenceError(NotFiniteError):
    """A loss that is NaN or infinite, or that has exploded."""


class LossMonitor:
    """A moving average of the loss that shows when the loss explodes."""

    def __init__(self, average: float | None = None) -> None:
        self.average = average

    def explodes(self, loss: float) -> bool:
        """Return True if the loss is not finite or far above the average."""
        if not isfinite(loss):
            return True
        return self.average is not None and loss > 3.0 * self.average + 1.0

    def update(self, loss: float) -> bool:
        """Add a step's loss to the average unless it explodes; return True if it does."""
        if self.explodes(loss):
            return True
        before = loss if self.average is None else self.average
        self.average = 0.95 * before + (1 - 0.95) * loss
        return False


class ExtremeValues:
    """Tap listener that records the first non-finite value and the largest finite one."""

    changes = False

    def __init__(self) -> None:
        self.first: str | None = None
        self.largest, self.size = "", 0.0

    def __str__(self) -> str:
        if self.first is not None:
            return f"{self.first} is the first inner value that is not finite"
        return f"the largest inner value is {self.largest}, up to {self.size:,.0f}"

    def wants(self, path: str) -> bool:
        del path
        return False

    def see(self, tapped: Tapped) -> Any:
        value = tapped.value
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            name = split_path(tapped.path)[2]
            size = float(value.detach().abs().max())
            if not isfinite(size):
                if self.first is None and name not in _MAY_BE_INFINITE:
                    self.first = tapped.path
            elif size > self.size:
                self.largest, self.size = tapped.path, size
        return value


def find_extremes(train_step: TrainStep, batches: Iterable[Batch], *, step: int) -> ExtremeValues:
    """Run the batches of a step again, with the same dropout, and record extreme inner values."""
    extremes = ExtremeValues()
    with torch.no_grad():
        for index, batch in enumerate(batches):
            train_step.seed(step, index)
            with listen(extremes), train_step.autocast():
                train_step.module(batch.to(train_step.world.device))
    return extremes


def explain(
    train_step: TrainStep, batches: Sequence[Batch], result: StepResult, *, step: int
) -> str:
    """Return one clause that says where the divergence started."""
    extremes = find_extremes(train_step, batches, step=step)
    gradients = ((n, p.grad) for n, p in train_step.module.named_parameters() if p.grad is not None)
    name = first_nonfinite(dict(gradients))
    if extremes.first is None and not result.finite and name is not None:
        name = name.removeprefix("module.").removeprefix("model.")
        return f"all inner values are finite, but the gradient of {name} is not; {extremes}"
    return str(extremes)


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or infinite entry, if there is one."""
    return next((n for n, value in tensors.items() if not bool(torch.isfinite(value).all())), None)
