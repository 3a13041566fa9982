"""One claim about a model, measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Proof:
    """How far two ways to compute the same are apart."""

    name: str
    claim: str
    measured: str
    """What the difference is a difference of; why there is none, where there is none."""
    difference: float | None = None
    """The largest; None where the claim does not apply to the model."""
    bound: float = 0.0

    @property
    def applies(self) -> bool:
        """Whether there was something to measure."""
        return self.difference is not None

    @property
    def holds(self) -> bool:
        """Whether the difference is within its bound; what does not apply cannot fail."""
        return self.difference is None or self.difference <= self.bound  # NaN is not


def largest(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """The largest difference between two lists of tensors."""
    pairs = zip(left, right, strict=True)
    return float(torch.stack([(a - b).abs().max().double() for a, b in pairs]).max())  # NaN stays
