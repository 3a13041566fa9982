"""Callbacks of a training run, and what they are called with.

A callback is an object with any of the methods of `Callback`; derive from it and override what you
need:

    class PrintLoss(Callback):
        def on_step(self, info):
            print(info.position.step, info.result.loss)

    regard.train("dates", "runs/dates", callbacks=[PrintLoss()])

Callbacks run in the main process only. The progress bar on a terminal is one of them.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.flop_counter import FlopCounterMode

from regard.errors import translate
from regard.figures.captions import cell_len, text_pattern, truncate
from regard.hardware import peak_memory
from regard.training.loader import BatchLoader, batches_of_rank
from regard.training.step import StepResult, TrainStep

if TYPE_CHECKING:
    from regard.training.run import TrainingResult


@dataclass(frozen=True)
class RunPosition:
    """Progress of a run."""

    step: int
    epochs: float
    seconds: float


@dataclass(frozen=True)
class RunInfo:
    """Facts known before the first step."""

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


_INDENT = "    "


def estimate(train_step: TrainStep, loader: BatchLoader) -> RunInfo:
    """Measure time, memory and operations with passes that do not change the weights."""
    batches = list(islice(loader.numbers.all(0), 200))
    sizes = [sum(len(one) * int(s[one].max()) for s in loader.make.lengths) for one in batches]
    by_size = sorted(range(len(batches)), key=sizes.__getitem__)
    with FlopCounterMode(display=False) as counter:
        n_targets = _dry_run(train_step, loader, [batches[by_size[len(by_size) // 2]]])
    flops = counter.get_total_flops() / max(1, n_targets)
    _dry_run(train_step, loader, [batches[by_size[-1]]])  # warms up, and reaches the memory peak
    timed = [number * len(batches) // 3 for number in range(3)]
    start = time.perf_counter()
    _dry_run(train_step, loader, [batches[number] for number in timed])
    share = sum(sizes[number] for number in timed) / sum(sizes)
    seconds = (time.perf_counter() - start) / share * loader.numbers.count() / len(batches)
    parameters = list(train_step.module.parameters())
    moments = 2 * sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
    memory = peak_memory(train_step.world.device) + moments
    return RunInfo(sum(p.numel() for p in parameters), seconds, memory, flops)


def _dry_run(train_step: TrainStep, loader: BatchLoader, group: Sequence[list[int]]) -> int:
    """Compute and discard the gradients of these batches; return their number of targets."""
    rank, size = train_step.world.rank, train_step.world.size
    batches = list(batches_of_rank(group, loader.make, epoch=0, rank=rank, world_size=size))
    n_targets = sum(batch.n_targets() for batch in batches)
    train_step.compute_gradients(batches, step=0, n_targets=n_targets)
    train_step.optimizer.zero_grad(set_to_none=True)
    return n_targets


def format_seconds(seconds: float) -> str:
    """Format a duration: "9.5 s", "1:30 min", "2 h 5 min"."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def format_bytes(size: int) -> str:
    """Format a number of bytes: "250 MB", "1.23 GB"."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Format metrics in one line: "loss 1.2346  bleu 41.13"."""
    forms = {"accuracy": "{:.2%}", "exact": "{:.2%}", "bleu": "{:.2f}", "chrf": "{:.2f}"}
    return "  ".join(
        f"{name} {forms.get(name, '{:.4f}').format(value)}" for name, value in metrics.items()
    )


def step_summary(info: StepInfo, averages: StepAverages, run: RunInfo | None = None) -> str:
    """Return loss, perplexity, speed, share of the hardware's peak and time left."""
    (loss, nll), speed = averages.loss(), averages.speed()
    # With label smoothing, what is minimized is not the loss that validation measures.
    smoothed = abs(loss - nll) > 1e-9
    shown = translate(f"smoothed loss {loss:.3f}" if smoothed else f"loss {loss:.3f}", short=True)
    parts = [shown, translate(f"perplexity {exp(min(nll, 50)):,.2f}")]
    if speed:
        parts.append(translate(f"{speed:,.0f} tokens/s"))
    if speed and run is not None and run.peak_flops and run.flops_per_target:
        share = 100 * speed * run.flops_per_target / run.peak_flops
        parts.append(translate(f"{share:.0f} % of peak", short=True))
    if info.progress:
        left = info.position.seconds * (1 - info.progress) / info.progress
        duration = translate(format_seconds(left), short=True)
        parts.append(translate(f"{duration} left", short=True))
    return "  ".join(parts)


def sample_lines(result: ValidationResult, columns: int = 0) -> list[str]:
    """Return samples as indented lines; alignments are drawn if they fit into the columns."""
    lines: list[str] = []
    for sample in result.samples:
        lines += [f"{name}: {value}" for name, value in sample.items() if isinstance(value, str)]
        if "alignment" in sample:
            drawn = _draw_alignment(sample["alignment"], columns - len(_INDENT))
            line = _alignment_line(sample["alignment"])
            width = columns - len(_INDENT) if columns else None
            lines += drawn or [line if width is None else truncate(line, width, measure=cell_len)]
    return [_INDENT + line for line in lines]


def _alignment_line(alignment: Mapping[str, Any]) -> str:
    """Return every target word with the source word that it attends to most."""
    sources, links = alignment["source_words"], (x.split("-") for x in alignment["hard"].split())
    linked = {int(target): sources[int(source)] for source, target in links}
    pairs = [f"{word}←{linked.get(i, '')}" for i, word in enumerate(alignment["target_words"])]
    return f"alignment: {' '.join(pairs)}"


def _draw_alignment(alignment: Mapping[str, Any], columns: int) -> list[str]:
    """Draw target words (rows) by source words (columns); nothing if it does not fit."""
    sources, targets = alignment["source_words"], alignment["target_words"]
    weights = np.zeros((len(targets), len(sources)))
    for source, target, weight in alignment["soft"]:
        weights[target, source] = weight
    lines = text_pattern(weights.tolist(), targets, sources).lines
    if max(map(cell_len, lines), default=0) > columns:
        return []
    return ["alignment (rows: the model's output; columns: the source):", *lines]


class ConsoleProgress(Callback):
    """Shows a run on standard error: a progress bar on a terminal, plain lines in a pipe.

    Args:
        write: writes a line; to standard error by default.
        terminal: show a bar; by default if standard error is a terminal.
        pause: seconds between plain lines.
    """

    def __init__(
        self,
        write: Callable[[str], None] | None = None,
        *,
        terminal: bool | None = None,
        console: Any = None,
        pause: float = 10.0,
    ) -> None:
        self._write = write or (lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._console, self._pause = console, pause
        self._run: RunInfo | None = None
        self._averages = StepAverages(30)
        self._bar: Any = None
        self._last = time.monotonic()

    def on_lines_read(self, count: int) -> None:
        if self._terminal and time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            sys.stderr.write(f"\r{translate(f'{count:,} lines read')}\x1b[K\r")
            sys.stderr.flush()

    def on_start(self, info: RunInfo) -> None:
        self._run = info
        self._last = time.monotonic()
        if not self._terminal:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn(translate("step {task.fields[step]:,}")),
            BarColumn(bar_width=12),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[summary]}", markup=False),
            console=self._console or Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("train", total=1.0, step=0, summary="")
        self._bar.start()

    def on_step(self, info: StepInfo) -> None:
        self._averages.add(info)
        position, summary = info.position, step_summary(info, self._averages, self._run)
        if self._bar is not None:
            self._bar.update(
                self._task, completed=info.progress, step=position.step, summary=summary
            )
        elif time.monotonic() - self._last >= self._pause:
            self._last = time.monotonic()
            self.on_message(f"step {position.step:,}  epoch {position.epochs:.2f}  {summary}")

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        self._averages.pause()
        metrics = format_metrics(result.metrics)
        if best:
            self.on_message(f"step {step:,}  validation: {metrics}  (best)")
        else:
            self.on_message(f"step {step:,}  validation: {metrics}")
        columns = self._bar.console.width if self._bar is not None else 0
        for line in sample_lines(result, columns):
            self.on_message(line)

    def on_message(self, text: str) -> None:
        text = translate(text)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._write(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
