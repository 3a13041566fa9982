"""What the training loop asks of those above it, which know bundles, decoding and terminals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.training.step import Learned


@dataclass(frozen=True)
class Place:
    """How far a run has come."""

    step: int
    epochs: float
    seconds: float


@dataclass(frozen=True)
class Limits:
    """How far a run may go; whatever comes first ends it."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None

    def _shares(self, place: Place, reserve: float) -> dict[str, float]:
        """How much of each limit is used up."""
        shares = {}
        if self.steps is not None:
            shares["steps"] = place.step / self.steps
        if self.epochs is not None:
            shares["epochs"] = place.epochs / self.epochs
        if self.minutes is not None:
            shares["minutes"] = place.seconds / max(1.0, 60 * self.minutes - reserve)
        return shares

    def progress(self, place: Place, *, reserve: float = 0.0) -> float:
        """How much of the training is over, from 0 to 1.

        Args:
            reserve: seconds that the end needs for itself: evaluating and saving.
        """
        return min(1.0, max(self._shares(place, reserve).values(), default=0.0))

    def reached(self, place: Place, *, reserve: float = 0.0) -> str | None:
        """The limit that ends the run now, if one does."""
        done = [name for name, share in self._shares(place, reserve).items() if share >= 1]
        return done[0] if done else None


@dataclass(frozen=True)
class Evaluation:
    """How good a model is: numbers by name, and a few things it says."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Moment:
    """A step that was just taken."""

    place: Place
    progress: float
    lr: float
    learned: Learned


class Reporter:
    """Whoever shows progress; this one shows nothing."""

    def stepped(self, moment: Moment) -> None:
        """A step was taken."""

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """The model was evaluated."""

    def note(self, text: str) -> None:
        """Something else happened."""


def _no_evaluation(model: nn.Module) -> Evaluation:
    del model
    return Evaluation()


def _no_snapshot(model: nn.Module, step: int) -> None:
    del model, step


@dataclass(frozen=True)
class Callbacks:
    """What the loop asks others to do; only the leading process does."""

    save_model: Callable[[nn.Module, Mapping[str, float]], None]
    """Write the model folder, with the scores of the model."""
    evaluate: Callable[[nn.Module], Evaluation] = _no_evaluation
    snapshot: Callable[[nn.Module, int], None] = _no_snapshot
    build: Callable[[], nn.Module] | None = None
    """A fresh model, to gather one into that several processes hold parts of."""
    reporter: Reporter = field(default_factory=Reporter)
