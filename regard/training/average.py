"""Averages of weights: over all steps with the recent ones weighing more, and over checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_EARLY = 10
"""In early steps the average follows closely, because the first weights say nothing."""


class MovingAverage:
    """The exponential moving average of a module's parameters (EMA).

    After each step: average = decay · average + (1 - decay) · weights.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._module = module
        self.weights = {name: one.detach().clone() for name, one in module.named_parameters()}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Take in the weights that a step, counted from 1, has led to."""
        decay = min(self.decay, (1 + step) / (_EARLY + step))
        for name, parameter in self._module.named_parameters():
            self.weights[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the averages as its parameters; afterwards with its own again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._module.named_parameters():
            own = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(own)


def mean_of(many: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over several sets of weights, added up in double precision."""
    return {
        name: torch.stack([one[name].double() for one in many]).mean(dim=0).to(first.dtype)
        for name, first in many[0].items()
    }
