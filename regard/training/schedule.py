"""How the learning rate rises and falls while a model learns."""

from dataclasses import dataclass
from math import cos, pi, sqrt

from regard.errors import InputError, UnknownNameError, nearest

SCHEDULES = ("paper", "cosine", "linear", "constant")


@dataclass(frozen=True)
class Schedule:
    """The learning rate at every step: a straight rise to `lr` in `warmup` steps, then `kind`.

    paper      falls with 1/sqrt(step) (Vaswani et al. 2017, section 5.3)
    cosine     falls to `final` times lr along half a wave (Loshchilov and Hutter 2017)
    linear     falls to `final` times lr along a line
    constant   stays
    """

    kind: str
    lr: float
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise UnknownNameError(
                f"there is no schedule {self.kind!r}; {nearest(self.kind, SCHEDULES)}."
            )
        if not self.lr > 0:
            raise InputError(f"the learning rate is {self.lr}; it must be above 0.")
        if self.warmup < 0 or (self.kind == "paper" and self.warmup < 1):
            least = 1 if self.kind == "paper" else 0
            raise InputError(f"warmup is {self.warmup} steps; it must be {least} or more.")
        if not 0 <= self.final <= 1:
            raise InputError(f"final is {self.final}; it is a share of lr, from 0 to 1.")

    def at(self, step: int, progress: float = 0.0) -> float:
        """The learning rate of a step, counted from 1.

        Args:
            progress: how much of the training is over, from 0 to 1, by steps or by the clock.
        """
        if step < self.warmup:
            return self.lr * step / self.warmup
        if self.kind == "constant":
            return self.lr
        if self.kind == "paper":
            return self.lr * sqrt(self.warmup / step)
        warm = progress * self.warmup / step  # the progress there was when warm-up ended
        left = 1.0 if warm >= 1 else 1 - (min(progress, 1.0) - warm) / (1 - warm)
        share = left if self.kind == "linear" else (1 - cos(pi * left)) / 2
        return self.lr * (self.final + (1 - self.final) * share)


def paper_rate(d_model: int, warmup: int) -> float:
    """The peak of the paper's own schedule: 1/sqrt(d_model · warmup)."""
    return (d_model * warmup) ** -0.5
