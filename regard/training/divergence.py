"""When training goes wrong: noticing it, and naming the inner value where it began."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import NotFiniteError
from regard.tap import Tapped, listen, split_path
from regard.training.batch import Batch
from regard.training.step import Learned, Learner

_MEMORY = 0.95
_FACTOR, _ALLOWANCE = 3.0, 1.0
_MAY_BE_INFINITE = frozenset({"masked", "temperature"})


class DivergenceError(NotFiniteError):
    """A loss that is no number any more, or grows without end."""


class LossWatch:
    """Remembers how large the loss was of late, and notices when it explodes."""

    def __init__(self, average: float | None = None) -> None:
        self.average = average

    def explodes(self, loss: float) -> bool:
        """Whether this loss is no number or far above those before it."""
        if not isfinite(loss):
            return True
        return self.average is not None and loss > _FACTOR * self.average + _ALLOWANCE

    def exploded(self, loss: float) -> bool:
        """The same of a step's loss, which is remembered if it has not."""
        if self.explodes(loss):
            return True
        before = loss if self.average is None else self.average
        self.average = _MEMORY * before + (1 - _MEMORY) * loss
        return False


class Extremes:
    """The listener that finds the first value that is not finite, and the largest one."""

    changes = False

    def __init__(self) -> None:
        self.first: str | None = None
        self.largest, self.size = "", 0.0

    def sentence(self) -> str:
        """What was found."""
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


def find_extremes(learner: Learner, parts: Iterable[Batch], *, step: int) -> Extremes:
    """What the batches of a step make of the model, computed once more with the same dropout."""
    extremes = Extremes()
    with torch.no_grad():
        for number, part in enumerate(parts):
            learner.seed(step, number)
            with listen(extremes), learner.narrow():
                learner.module(part.to(learner.team.device))
    return extremes


def explain(learner: Learner, parts: Sequence[Batch], learned: Learned, *, step: int) -> str:
    """One sentence on where it began."""
    extremes = find_extremes(learner, parts, step=step)
    gradient = bad_gradient(learner.module)
    if extremes.first is None and not learned.finite and gradient is not None:
        return (
            f"all inner values are finite, but the gradient of {gradient} is not; "
            f"{extremes.sentence()}"
        )
    return extremes.sentence()


def bad_weight(weights: Mapping[str, Tensor]) -> str | None:
    """The first of these weights that is not finite."""
    for name, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            return name
    return None


def bad_gradient(module: nn.Module) -> str | None:
    """The first parameter whose gradient is not finite."""
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return name.removeprefix("module.").removeprefix("model.")
    return None
