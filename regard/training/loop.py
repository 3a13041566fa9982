"""The training loop: learn, validate, save, until it is time to stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError

from regard.errors import FileError, InputError
from regard.training.batch import Batch
from regard.training.callbacks import Callbacks, Evaluation, Limits, Moment, Place
from regard.training.checkpoint import (
    Checkpoints,
    State,
    Tensors,
    gather,
    gathered,
    put_weights,
    restore,
)
from regard.training.divergence import (
    DivergenceError,
    LossWatch,
    bad_weight,
    explain,
    find_extremes,
)
from regard.training.loader import Feed
from regard.training.optimizer import MovingAverage, Schedule, mean_of
from regard.training.recipe import Training
from regard.training.run_folder import check_settings, fixed_settings
from regard.training.step import Learner
from regard.training.validation import mean_losses, summed_losses


@dataclass
class Request:
    """Whether somebody has asked to stop, and by which signal."""

    signal: int = 0


@contextmanager
def stop_requests() -> Iterator[Request]:
    """Note Ctrl-C and SIGTERM instead of dying of them; a second one works as usual.

    In a thread that is not the main one there are no signals, and nothing is noted.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        del frame
        request.signal = number
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


LOWER_IS_BETTER = ("loss",)
_ENDING = 2.0
"""How many times the duration of a validation the end of a run needs for itself."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    why: str
    """"steps", "epochs", "minutes", "patience" or "stopped"."""
    place: Place
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The scores of the final model."""
    signal: int = 0
    """The signal that stopped it, if one did."""


class Trainer:
    """A model on its way from its first weights to its last."""

    def __init__(
        self,
        learner: Learner,
        feed: Feed,
        validation: Callable[[], Iterable[Batch]],
        settings: Training,
        *,
        schedule: Schedule,
        folder: Path,
        callbacks: Callbacks,
        metric: str = "loss",
    ) -> None:
        self.learner, self.feed, self.validation = learner, feed, validation
        self.settings, self.schedule = settings, schedule
        self.callbacks, self.metric = callbacks, metric
        self.team, self.model = learner.team, learner.objective.model
        self.limits = Limits(settings.steps, settings.epochs, settings.minutes)
        self.checkpoints = Checkpoints(folder, keep=max(settings.keep, settings.average))
        self.state = State(seed=settings.seed, settings=fixed_settings(settings))
        self.average = MovingAverage(self.model, settings.ema) if settings.ema else None
        self.every = settings.validate_every or feed.steps_per_epoch
        self._watch = LossWatch()
        self._sound = 0
        self._began = time.monotonic()
        self._reserve = 0.0

    def run(self) -> Outcome:
        """Train to the end, or until somebody stops it."""
        with self._full_disk_told():
            return self._run()

    def _run(self) -> Outcome:
        self._begin()
        with stop_requests() as request:
            while (why := self._over()) is None:
                self._learn()
                if self.state.step % self.every == 0:
                    self._validate()
                    self._save(regular=True)
                elif self.settings.save_every and self.state.step % self.settings.save_every == 0:
                    self._save(regular=False)
                if self._stopped(request):
                    return self._leave(request)
        return self._finish(why)

    @contextmanager
    def _full_disk_told(self) -> Iterator[None]:
        """Say in one sentence what a file that could not be written leaves behind."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            if isinstance(error, FileError):
                raise
            kept = self.checkpoints.steps()
            step = f"step {kept[-1]:,}" if kept else "no step"
            reason = getattr(error, "strerror", None) or error
            raise FileError(
                f"a file of the run cannot be written ({reason}); the last whole checkpoint is of "
                f"{step}: make room and go on with --resume."
            ) from error

    @property
    def place(self) -> Place:
        """How far it has come."""
        return Place(self.state.step, self.feed.epochs, self.state.seconds)

    def _over(self) -> str | None:
        """Why training is over, if it is."""
        patience = self.settings.patience
        if patience and self.state.waited >= patience:
            return "patience"
        return self.limits.reached(self.place, reserve=self._reserve)

    def _begin(self) -> None:
        """Go on from the last checkpoint, or make the first one."""
        steps = self.checkpoints.steps()
        self.team.wait()  # all have looked before one of them writes
        if not steps:
            self._save(regular=False)
            return
        self.state, tensors = self.checkpoints.load(steps[-1])
        check_settings({"seed": self.state.seed, **self.state.settings}, self.settings)
        self.state = replace(self.state, settings=fixed_settings(self.settings))
        restore(tensors, self.model, self.learner.optimizer, self._averages())
        self.feed.resume(dict(self.state.data))
        self.learner.scaler.load_state_dict(dict(self.state.scaler))
        self._watch = LossWatch(self.state.average_loss)
        self._sound = self.state.step if self.state.sound is None else self.state.sound
        self._began = time.monotonic() - self.state.seconds
        self.callbacks.reporter.note(f"going on from step {self.state.step:,}")

    def _learn(self) -> None:
        """Take one step."""
        step = self.state.step + 1
        parts = self.feed.take(rank=self.team.rank, ranks=self.team.ranks)
        lr = self.schedule.at(step, self.limits.progress(self.place, reserve=self._reserve))
        learned = self.learner.learn(parts, step=step, lr=lr)
        exploded = self._watch.exploded(learned.loss)
        if not exploded:
            self._sound = max(self._sound, step - 1)  # whose weights this loss is of
        if exploded or self.learner.failed(learned):
            where = explain(self.learner, parts, learned, step=step)
            self._diverged(f"the loss became {learned.loss:.4g} at step {step:,}: {where}")
        if self.average is not None:
            self.average.follow(step)
        n_targets = self.state.n_targets + learned.n_targets
        self.state = replace(self.state, step=step, n_targets=n_targets, seconds=self._clock())
        progress = self.limits.progress(self.place, reserve=self._reserve)
        self.callbacks.reporter.stepped(Moment(self.place, progress, lr, learned))

    def _clock(self) -> float:
        """Seconds of training; the leading process's clock is everybody's."""
        (seconds,) = self.team.total(time.monotonic() - self._began if self.team.leads else 0.0)
        return seconds

    def _validate(self) -> None:
        """Evaluate the model as it is; keep it if none before was better."""
        begin = self._clock()
        with self.average.in_place() if self.average else nullcontext():
            evaluation, score = self._evaluate()
            self._check_validation(evaluation.numbers["loss"])
            before = self.state.best_score
            better = not isnan(score) and (before is None or score > before)
            best = better or score == before  # of equals the later one, which has learned longer
            with self._whole_model() as model:
                if model is not None:
                    self.callbacks.snapshot(model, self.state.step)
                    if best:
                        self.callbacks.save_model(model, evaluation.numbers)
        self.state = replace(self.state, waited=0 if better else self.state.waited + 1)
        if best:
            self.state = replace(self.state, best_score=score, best_step=self.state.step)
        self._reserve = _ENDING * (self._clock() - begin)
        self.callbacks.reporter.validated(self.state.step, evaluation, best=best)

    def _check_validation(self, loss: float) -> None:
        """Stop where the validation loss is not finite; a good one speaks for the weights."""
        step = self.state.step
        if not isfinite(loss):
            where = find_extremes(self.learner, self.validation(), step=step).sentence()
            self._diverged(f"the validation loss became {loss:.4g} after step {step:,}: {where}")
        if self.average is None and not self._watch.explodes(loss):
            self._sound = step

    def _evaluate(self) -> tuple[Evaluation, float]:
        """What the model is worth, and its score, in which more is better."""
        numbers = self._losses()
        evaluation, score = Evaluation(numbers), 0.0
        if not isfinite(numbers["loss"]):
            return evaluation, -inf
        with self._whole_model() as model:
            if model is not None:
                found = self.callbacks.evaluate(model)
                evaluation = Evaluation(numbers | dict(found.numbers), found.samples)
                value = self._measured(evaluation.numbers)
                score = -value if self.metric in LOWER_IS_BETTER else value
        (score,) = self.team.total(score)
        return evaluation, score

    def _measured(self, numbers: Mapping[str, float]) -> float:
        if self.metric not in numbers:
            raise InputError(
                f"evaluate.metric is {self.metric!r}, but this task measures "
                f"{', '.join(numbers)}: choose one of those."
            )
        return numbers[self.metric]

    def _losses(self) -> dict[str, float]:
        """Loss, perplexity and, where there are classes, accuracy on the validation data."""
        with self.learner.narrow():
            sums = summed_losses(self.learner.objective, self.validation())
        return mean_losses(self.learner.objective, *self.team.total(*sums))

    @contextmanager
    def _whole_model(self) -> Iterator[Any]:
        """The model with all its weights for the leading process, None for the others."""
        model = self.model
        if self.settings.shard:
            weights = gathered(model.state_dict(), keep=self.team.leads)
            assert self.callbacks.build is not None
            if self.team.leads:
                model = self.callbacks.build()
                model.load_state_dict(weights)
        model.eval()
        with torch.no_grad():
            yield model if self.team.leads else None
        model.train()
        self.team.wait()

    def _averages(self) -> Mapping[str, torch.Tensor]:
        return self.average.weights if self.average else {}

    def _save(self, *, regular: bool) -> None:
        """Write a checkpoint."""
        optimizer, leads = self.learner.optimizer, self.team.leads
        tensors = gather(self.model, optimizer, self._averages(), keep=leads)
        self._check_weights(tensors)
        self.state = replace(
            self.state,
            data=self.feed.state(),
            scaler=self.learner.scaler.state_dict(),
            average_loss=self._watch.average,
            sound=self._sound,
            regular=regular,
        )
        if leads:
            self.checkpoints.save(self.state, tensors)
        self.team.wait()

    def _check_weights(self, tensors: Tensors) -> None:
        """Stop before weights are saved that are not finite."""
        learned = {name: tensors.weights.get(name) for name, _ in self.model.named_parameters()}
        bad = bad_weight({name: one for name, one in learned.items() if one is not None})
        (wrecked,) = self.team.total(float(bad is not None))
        if wrecked:
            step = self.state.step
            self._diverged(f"the update of step {step:,} has left {bad} with weights not finite")

    def _finish(self, why: str) -> Outcome:
        """Average or choose weights, then evaluate and save the model that is left."""
        if self.state.step not in self.checkpoints.steps() or not self.state.regular:
            self._validate()
            self._save(regular=True)
        evaluation = self._choose_weights()
        with self._whole_model() as model:
            if model is not None:
                self.callbacks.save_model(model, evaluation.numbers)
        self.callbacks.reporter.validated(self.state.step, evaluation, best=False)
        self.state = replace(self.state, seconds=self._clock())
        return Outcome(why, self.place, evaluation.numbers)

    def _choose_weights(self) -> Evaluation:
        """Give the model the mean of the last weights, or the best of all if those are better."""
        best = [self.state.step if self.state.best_score is None else self.state.best_step]
        averaged = self.settings.average and self.checkpoints.last_regular(self.settings.average)
        for steps in (averaged or best, best):
            weights = [self.checkpoints.load_weights(step) for step in steps]
            put_weights(mean_of(weights), self.model)
            listed = ", ".join(f"{step:,}" for step in steps)
            evaluation, score = self._evaluate()
            if steps == best or self.state.best_score is None or score >= self.state.best_score:
                break
            self.callbacks.reporter.note(
                f"the mean of the weights of steps {listed} is worse than step {best[0]:,} alone"
            )
        what = "the weights of step" if len(steps) == 1 else "the mean of the weights of steps"
        self.callbacks.reporter.note(f"the final model has {what} {listed}")
        return evaluation

    def _stopped(self, request: Request) -> bool:
        """Whether a signal has reached any process."""
        (signalled,) = self.team.total(float(request.signal))
        return signalled > 0

    def _leave(self, request: Request) -> Outcome:
        """Save, because somebody wants it to stop."""
        if self.state.step not in self.checkpoints.steps():
            self._save(regular=False)
        self.callbacks.reporter.note(
            f"stopped at step {self.state.step:,}, which is saved: go on with --resume"
        )
        return Outcome("stopped", self.place, signal=request.signal)

    def _diverged(self, what: str) -> NoReturn:
        """Stop, and leave no checkpoint after the last one that is known to be good."""
        good = [step for step in self.checkpoints.steps() if step <= self._sound]
        if not good:
            raise DivergenceError(
                f"{what}. No checkpoint is known to be good: begin again, with a lower training.lr "
                "or a higher training.warmup."
            )
        if self.team.leads:
            self.checkpoints.remove_after(good[-1])
        raise DivergenceError(
            f"{what}. The checkpoint of step {good[-1]:,} is good: lower training.lr or raise "
            "training.warmup, and go on from it with --resume."
        )
