"""The training loop: steps, validations and checkpoints until a limit is reached."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError

from regard.errors import FileError, InputError
from regard.hardware import release_freed_memory
from regard.training import checkpoint
from regard.training.build import build_seeded
from regard.training.callbacks import RunPosition, StepInfo, ValidationResult
from regard.training.datasets import Datasets
from regard.training.metrics import EVERY
from regard.training.optimizer import MovingAverage, make_schedule, mean_weights
from regard.training.recipe import Recipe
from regard.training.run_folder import check_settings, fixed_settings
from regard.training.step import (
    DivergenceError,
    LossMonitor,
    TrainStep,
    explain_divergence,
    find_extremes,
    first_nonfinite,
)
from regard.training.validation import mean_losses, sum_losses

_STEPS_TO_RELEASE = 50  # freed memory is returned to the system so often
_RESERVE = 2.0
"""Time reserved for the end of a run, in durations of a validation."""


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Record SIGINT and SIGTERM instead of ending the process; a second signal works as usual.

    Only the main thread can handle signals; in other threads nothing is recorded.
    """
    received: list[int] = []
    before: dict[int, Any] = {}

    def handle(number: int, frame: object) -> None:
        del frame
        received.append(number)
        signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handle)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class LoopResult:
    """The end of a run."""

    reason: str
    """"steps", "epochs", "minutes", "patience" or "stopped"."""
    position: RunPosition
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Validation metrics of the final model."""
    signal: int = 0
    """Number of the signal that stopped the run, or 0."""


class Trainer:
    """Trains a model, from the first step or from its last checkpoint.

    Args:
        folder: folder of the checkpoints.
        evaluator: a `RunEvaluator`, which scores and saves models in the main process.
    """

    def __init__(
        self,
        recipe: Recipe,
        datasets: Datasets,
        train_step: TrainStep,
        *,
        folder: Path,
        evaluator: Any,
        callbacks: Any,
    ) -> None:
        settings, tokens = recipe.training, recipe.training.batch_tokens
        self.settings, self.metric = settings, recipe.evaluate.metric
        self.train_step, self.evaluator, self.callbacks = train_step, evaluator, callbacks
        self.world, self.model = train_step.world, train_step.objective.model
        self.loader = datasets.loader(
            batch_tokens=tokens, accumulate=settings.accumulate, seed=settings.seed
        )
        share = {"rank": self.world.rank, "world_size": self.world.size}
        self.validation = partial(datasets.one_epoch, "validation", batch_tokens=tokens, **share)
        self.schedule = make_schedule(settings, self.model.config.d_model)
        self.checkpoints = checkpoint.Checkpoints(folder, keep=max(settings.keep, settings.average))
        self.state = checkpoint.TrainingState(seed=settings.seed, settings=fixed_settings(settings))
        self.average = MovingAverage(self.model, settings.ema) if settings.ema else None
        self._average_weights = self.average.weights if self.average else {}
        self.validate_every = settings.validate_every or self.loader.steps_per_epoch
        self._monitor = LossMonitor()
        self._last_good_step = 0
        self._start = time.monotonic()
        self._reserve = 0.0

    def run(self) -> LoopResult:
        """Train until a limit is reached or a signal is received."""
        try:
            return self._run()
        except FileError:
            raise
        except (OSError, SafetensorError) as error:
            steps = self.checkpoints.steps()
            last = f"the last checkpoint is of step {steps[-1]:,}" if steps else "no checkpoint"
            raise FileError(
                f"a file of the run cannot be written ({getattr(error, 'strerror', None) or error})"
                f"; {last}: free some disk space and continue with --resume."
            ) from error

    def _run(self) -> LoopResult:
        self._resume()
        save_every = self.settings.save_every
        with catch_signals() as received:
            while (reason := self._end_reason()) is None:
                self._step()
                if self.state.step % self.validate_every == 0:
                    self._validate()
                    self._save(scheduled=True)
                elif save_every and self.state.step % save_every == 0:
                    self._save(scheduled=False)
                if self.world.sum(len(received))[0]:  # in any process
                    return self._stop(received[-1] if received else 0)
        return self._finish(reason)

    @property
    def position(self) -> RunPosition:
        return RunPosition(self.state.step, self.loader.epochs, self.state.seconds)

    @property
    def progress(self) -> float:
        """Finished share of the run, from 0 to 1, by the limit that is reached first."""
        return min(1.0, max(self._shares().values(), default=0.0))

    def _shares(self) -> dict[str, float]:
        """Return the finished share of each limit; time is reserved for evaluating and saving."""
        settings, position = self.settings, self.position
        seconds = settings.minutes and max(1.0, 60 * settings.minutes - self._reserve)
        limits = {
            "steps": (position.step, settings.steps),
            "epochs": (position.epochs, settings.epochs),
            "minutes": (position.seconds, seconds),
        }
        return {name: done / limit for name, (done, limit) in limits.items() if limit}

    def _end_reason(self) -> str | None:
        patience = self.settings.patience
        if patience and self.state.n_worse >= patience:
            return "patience"
        return next((name for name, share in self._shares().items() if share >= 1), None)

    def _resume(self) -> None:
        """Continue from the last checkpoint, or write the first one."""
        steps = self.checkpoints.steps()
        self.world.barrier()  # all processes have looked before one of them writes
        if not steps:
            self._save(scheduled=False)
            return
        self.state, tensors = self.checkpoints.load(steps[-1])
        check_settings({"seed": self.state.seed, **self.state.settings}, self.settings)
        self.state = replace(self.state, settings=fixed_settings(self.settings))
        checkpoint.restore(tensors, self.model, self.train_step.optimizer, self._average_weights)
        self.loader.resume(dict(self.state.data))
        self.train_step.scaler.load_state_dict(dict(self.state.scaler))
        self._monitor = LossMonitor(self.state.average_loss)
        good = self.state.last_good_step
        self._last_good_step = self.state.step if good is None else good
        self._start = time.monotonic() - self.state.seconds
        self.callbacks.on_message(f"resuming from step {self.state.step:,}")

    def _step(self) -> None:
        step = self.state.step + 1
        batches = self.loader.next_step(rank=self.world.rank, world_size=self.world.size)
        lr = self.schedule.at(step, self.progress)
        result = self.train_step.run(batches, step=step, lr=lr)
        exploded = self._monitor.update(result.loss)
        if not exploded:  # the loss was computed with the weights of the step before
            self._last_good_step = max(self._last_good_step, step - 1)
        if exploded or self.train_step.failed(result):
            where = explain_divergence(self.train_step, batches, result, step=step)
            self._raise_divergence(f"the loss became {result.loss:.4g} at step {step:,}: {where}")
        if self.average is not None:
            self.average.update(step)
        n_targets = self.state.n_targets + result.n_targets
        recent = [*self.state.recent, astuple(result)] if step % EVERY else []
        self.state = replace(
            self.state, step=step, n_targets=n_targets, recent=recent, seconds=self._seconds()
        )
        if step % _STEPS_TO_RELEASE == 0:
            release_freed_memory()
        self.callbacks.on_step(StepInfo(self.position, self.progress, lr, result))

    def _seconds(self) -> float:
        """Return the training time by the clock of the main process."""
        (seconds,) = self.world.sum(time.monotonic() - self._start if self.world.is_main else 0.0)
        return seconds

    def _validate(self) -> None:
        """Evaluate the current model, and save it if no earlier one was better."""
        start = self._seconds()
        with self.average.applied() if self.average else nullcontext():
            result, score = self._evaluate()
            self._check_validation_loss(result.metrics["loss"])
            before = self.state.best_score
            better = not isnan(score) and (before is None or score > before)
            best = better or score == before  # of equals the later, which has been trained longer
            with self._full_model() as model:
                if model is not None:
                    self.evaluator.save_snapshots(model, self.state.step)
                    if best:
                        self.evaluator.save_model(model, result.metrics)
        self.state = replace(self.state, n_worse=0 if better else self.state.n_worse + 1)
        if best:
            self.state = replace(self.state, best_score=score, best_step=self.state.step)
        self._reserve = _RESERVE * (self._seconds() - start)
        self.callbacks.on_validation(self.state.step, result, best=best)

    def _check_validation_loss(self, loss: float) -> None:
        step = self.state.step
        if not isfinite(loss):
            where = find_extremes(self.train_step, self.validation(), step=step)
            what = f"the validation loss became {loss:.4g} after step {step:,}"
            self._raise_divergence(f"{what}: {where}")
        if self.average is None and not self._monitor.explodes(loss):
            self._last_good_step = step

    def _evaluate(self) -> tuple[ValidationResult, float]:
        """Return the validation result, and the score, for which higher is better."""
        with self.train_step.autocast():
            sums = sum_losses(self.train_step.objective, self.validation())
        metrics = mean_losses(self.train_step.objective, *self.world.sum(*sums))
        result, score = ValidationResult(metrics), 0.0
        if not isfinite(metrics["loss"]):
            return result, -inf
        with self._full_model() as model:
            if model is not None:
                found = self.evaluator.evaluate(model)
                result = ValidationResult(metrics | dict(found.metrics), found.samples)
                if self.metric not in result.metrics:
                    raise InputError(
                        f"evaluate.metric is {self.metric!r}, but this task has "
                        f"{', '.join(result.metrics)}: choose one of these."
                    )
                value = result.metrics[self.metric]
                score = -value if self.metric == "loss" else value
        (score,) = self.world.sum(score)
        return result, score

    @contextmanager
    def _full_model(self) -> Iterator[Any]:
        """Give the main process the unsharded model in evaluation mode, and None to the others."""
        model = self.model
        if self.settings.shard:
            weights = checkpoint.gather_tensors(model.state_dict(), keep=self.world.is_main)
            if self.world.is_main:
                model = build_seeded(model.config, self.settings.seed)
                model.load_state_dict(weights)
        model.eval()
        with torch.no_grad():
            yield model if self.world.is_main else None
        model.train()
        self.world.barrier()

    def _save(self, *, scheduled: bool) -> None:
        optimizer, is_main = self.train_step.optimizer, self.world.is_main
        tensors = checkpoint.gather(self.model, optimizer, self._average_weights, keep=is_main)
        names = [name for name, _ in self.model.named_parameters() if name in tensors.weights]
        bad = first_nonfinite({name: tensors.weights[name] for name in names})
        if self.world.sum(float(bad is not None))[0]:  # never save such weights
            step = self.state.step
            self._raise_divergence(f"the update of step {step:,} made {bad} non-finite")
        self.state = replace(
            self.state,
            data=self.loader.state(),
            scaler=self.train_step.scaler.state_dict(),
            average_loss=self._monitor.average,
            last_good_step=self._last_good_step,
            scheduled=scheduled,
        )
        if is_main:
            self.checkpoints.save(self.state, tensors)
        self.world.barrier()

    def _finish(self, reason: str) -> LoopResult:
        """Choose the final weights, evaluate and save them."""
        if self.state.step not in self.checkpoints.steps() or not self.state.scheduled:
            self._validate()
            self._save(scheduled=True)
        result = self._choose_weights()
        with self._full_model() as model:
            if model is not None:
                self.evaluator.save_model(model, result.metrics)
        self.callbacks.on_validation(self.state.step, result, best=False)
        self.state = replace(self.state, seconds=self._seconds())
        return LoopResult(reason, self.position, result.metrics)

    def _choose_weights(self) -> ValidationResult:
        """Load the mean of the last weights, or the best weights if those are better."""
        best = [self.state.step if self.state.best_score is None else self.state.best_step]
        count = self.settings.average
        recent = self.checkpoints.scheduled_steps()[-count:] if count else []
        for steps in (recent or best, best):
            checkpoint.load_weights(
                mean_weights([self.checkpoints.load_weights(step) for step in steps]), self.model
            )
            listed = ", ".join(f"{step:,}" for step in steps)
            result, score = self._evaluate()
            if steps == best or self.state.best_score is None or score >= self.state.best_score:
                break
            self.callbacks.on_message(
                f"the mean of the weights of steps {listed} is worse than step {best[0]:,} alone"
            )
        what = "the weights of step" if len(steps) == 1 else "the mean of the weights of steps"
        self.callbacks.on_message(f"the final model has {what} {listed}")
        return result

    def _stop(self, number: int) -> LoopResult:
        step = self.state.step
        if step not in self.checkpoints.steps():
            self._save(scheduled=False)
        self.callbacks.on_message(f"stopped and saved at step {step:,}: continue with --resume")
        return LoopResult("stopped", self.position, signal=number)

    def _raise_divergence(self, what: str) -> NoReturn:
        """Delete all checkpoints after the last good one and raise an error."""
        good = [step for step in self.checkpoints.steps() if step <= self._last_good_step]
        if not good:
            raise DivergenceError(
                f"{what}. No checkpoint is known to be good: start again with a lower training.lr "
                "or a higher training.warmup."
            )
        if self.world.is_main:
            self.checkpoints.delete(step for step in self.checkpoints.steps() if step > good[-1])
        raise DivergenceError(
            f"{what}. The checkpoint of step {good[-1]:,} is good: lower training.lr or raise "
            "training.warmup, and continue from it with --resume."
        )
