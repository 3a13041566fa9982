"""What the training loop asks of those above it, which know bundles, decoding and terminals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.training.limits import Place
from regard.training.step import Learnt


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
    learnt: Learnt


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
