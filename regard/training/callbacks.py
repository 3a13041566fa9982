"""Callbacks of a training run, and what they are called with.

A callback is an object with any of the methods of `Callback`; derive from it and override what you
need:

    class PrintLoss(Callback):
        def on_step(self, info):
            print(info.position.step, info.result.loss)

    regard.train("dates", "runs/dates", callbacks=[PrintLoss()])

Callbacks run in the main process only.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.training.step import StepResult

if TYPE_CHECKING:
    from regard.training.run import TrainingResult


@dataclass(frozen=True)
class RunPosition:
    """How far a run has progressed."""

    step: int
    epochs: float
    seconds: float


@dataclass(frozen=True)
class RunInfo:
    """What is known before the first step."""

    n_parameters: int
    seconds_per_epoch: float
    memory: int
    """Expected peak in bytes."""
    flops_per_target: float
    """Floating-point operations per target, forward and backward, in matrix products."""
    peak_flops: float = 0.0
    """Operations per second of a large matrix product, all processes together."""
    resumed_at: int | None = None
    """Step of the checkpoint that the run resumes from."""


@dataclass(frozen=True)
class StepInfo:
    """A step that has just been taken."""

    position: RunPosition
    progress: float
    """Finished share of the run, from 0 to 1."""
    lr: float
    result: StepResult


@dataclass(frozen=True)
class ValidationResult:
    """Metrics by name, and a few outputs of the model."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()


class Callback:
    """Base class of callbacks; every method does nothing."""

    def on_lines_read(self, count: int) -> None:
        """Called every few thousand lines while data are read, with the number so far."""

    def on_start(self, info: RunInfo) -> None:
        """Called before the first step."""

    def on_step(self, info: StepInfo) -> None:
        """Called after every step."""

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        """Called after every validation; `best` if no earlier model was better."""

    def on_message(self, text: str) -> None:
        """Called with a sentence about anything else that happened."""

    def on_end(self, result: "TrainingResult") -> None:
        """Called when the run has ended without an error, also when it was interrupted."""

    def close(self) -> None:
        """Called last, also after an error."""


class CallbackList:
    """Calls the same method of several callbacks, in order, if they have it."""

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        self.callbacks = list(callbacks)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not hasattr(Callback, name):
            raise AttributeError(name)

        def call(*given: Any, **options: Any) -> None:
            for callback in self.callbacks:
                if hasattr(callback, name):
                    getattr(callback, name)(*given, **options)

        return call


class StepAverages:
    """Mean loss and speed of the last `size` steps, or of all since the last `clear`."""

    def __init__(self, size: int | None = None) -> None:
        self._results: deque[StepResult] = deque(maxlen=size)
        self._times: deque[tuple[int, float]] = deque(maxlen=size)
        self._last: float | None = None

    def restore(self, results: Iterable[StepResult]) -> None:
        """Add the losses of steps before a run was resumed; how long they took is unknown."""
        self._results.extend(results)

    def add(self, info: StepInfo) -> None:
        seconds = info.position.seconds
        self._results.append(info.result)
        if self._last is not None:
            self._times.append((info.result.n_targets, seconds - self._last))
        self._last = seconds

    def pause(self) -> None:
        """Leave the time until the end of the next step out of the speed."""
        self._last = None

    def clear(self) -> None:
        self._results.clear()
        self._times.clear()

    def loss(self) -> tuple[float, float]:
        """Return the mean loss and -log p per target."""
        count = max(1, sum(one.n_targets for one in self._results))
        loss = sum(one.loss * one.n_targets for one in self._results) / count
        return loss, sum(one.nll * one.n_targets for one in self._results) / count

    def speed(self) -> float:
        """Return targets per second; 0 if unknown."""
        seconds = sum(one for _, one in self._times)
        return sum(count for count, _ in self._times) / seconds if seconds > 0 else 0.0
