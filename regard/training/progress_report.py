"""Progress for people: a bar on a terminal, plain lines in a pipe."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from regard.hardware import peak_memory
from regard.training.callbacks import Evaluation, Moment, Reporter
from regard.training.loader import Feed, shares
from regard.training.step import Learner

_LOOKED_AT = 200
"""Batches among which the largest is looked for."""
_TIMED = 3


@dataclass(frozen=True)
class Estimate:
    """What an epoch takes."""

    seconds: float
    memory: int
    """Bytes at the peak."""
    flops: float
    """Floating-point operations for one target, forward and backward, in matrix products."""

    def __str__(self) -> str:
        return f"about {spoken_time(self.seconds)} per epoch and {spoken_size(self.memory)} at most"


def estimate(learner: Learner, feed: Feed) -> Estimate:
    """Time, memory and operations, from forward and backward passes that change nothing."""
    every = list(islice(feed.numbers.all(0), _LOOKED_AT))
    by_size = sorted(every, key=lambda batch: _size(feed, batch))
    middle = by_size[len(by_size) // 2]
    with FlopCounterMode(display=False) as counter:
        targets = _try(learner, feed, [middle])
    flops = counter.get_total_flops() / max(1, targets)
    _try(learner, feed, [by_size[-1]])  # also warms up, and reaches the peak of memory
    spread = [every[number * len(every) // _TIMED] for number in range(_TIMED)]
    begin = time.perf_counter()
    _try(learner, feed, spread)
    taken = time.perf_counter() - begin
    share = sum(_size(feed, batch) for batch in spread) / sum(_size(feed, one) for one in every)
    epoch = feed.numbers.count() / len(every)
    parameters = [one for one in learner.module.parameters() if one.requires_grad]
    moments = 2 * sum(one.numel() * one.element_size() for one in parameters)
    memory = peak_memory(learner.team.device) + moments
    return Estimate(taken / share * epoch, memory, flops)


def _try(learner: Learner, feed: Feed, group: Sequence[list[int]]) -> int:
    """Compute the gradients of these batches and forget them; how many targets they have."""
    rank, ranks = learner.team.rank, learner.team.ranks
    parts = list(shares(group, feed.make, epoch=0, rank=rank, ranks=ranks))
    n_targets = sum(part.n_targets() for part in parts)
    learner.gradients(parts, step=0, n_targets=n_targets)
    learner.optimizer.zero_grad(set_to_none=True)
    return n_targets


def _size(feed: Feed, batch: list[int]) -> int:
    """How many places a batch has, with padding, on all sides."""
    return sum(len(batch) * int(side[batch].max()) for side in feed.make.lengths)


def spoken_time(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def spoken_size(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


_RECENT = 30
"""Steps over which speed and loss are averaged."""


@dataclass(frozen=True)
class Machine:
    """What the share of the machine's peak is told from."""

    peak: float = 0.0
    """Floating-point operations a second of a large matrix product, of all processes together."""
    flops: float = 0.0
    """Operations for one target."""


class Pace:
    """Loss and speed of the last few steps."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._recent: deque[Moment] = deque(maxlen=_RECENT)

    def add(self, moment: Moment) -> None:
        """Take in a step."""
        self._recent.append(moment)

    def pause(self) -> None:
        """Begin anew, so that the time of a validation is no part of the speed."""
        self._recent.clear()

    def speed(self) -> float:
        """Targets a second."""
        if len(self._recent) < 2:
            return 0.0
        first, *rest = self._recent
        elapsed = rest[-1].place.seconds - first.place.seconds
        return sum(one.learned.n_targets for one in rest) / elapsed if elapsed > 0 else 0.0

    def loss(self) -> tuple[float, float]:
        """The loss of one target, and its -log p."""
        count = max(1, sum(one.learned.n_targets for one in self._recent))
        loss = sum(one.learned.loss * one.learned.n_targets for one in self._recent) / count
        surprise = sum(one.learned.surprise * one.learned.n_targets for one in self._recent) / count
        return loss, surprise

    def facts(self) -> str:
        """Loss, perplexity, speed, share of the machine's peak and time left, as far as known."""
        loss, surprise = self.loss()
        speed, machine = self.speed(), self._machine
        facts = [f"loss {loss:.3f}", f"perplexity {exp(min(surprise, 50)):,.2f}"]
        if speed:
            facts.append(f"{speed:,.0f} tokens/s")
            if machine.peak and machine.flops:
                facts.append(f"{100 * speed * machine.flops / machine.peak:.0f} % of peak")
        return "  ".join(fact for fact in (*facts, self.left()) if fact)

    def left(self) -> str:
        """How long it still takes."""
        moment = self._recent[-1]
        if not moment.progress:
            return ""
        return spoken_time(moment.place.seconds * (1 - moment.progress) / moment.progress) + " left"


def told_numbers(numbers: Mapping[str, float]) -> str:
    """The numbers of an evaluation in one line."""
    forms = {"accuracy": "{:.2%}", "exact": "{:.2%}", "bleu": "{:.2f}", "chrf": "{:.2f}"}
    return "  ".join(
        f"{name} {forms.get(name, '{:.4f}').format(value)}" for name, value in numbers.items()
    )


def sample_lines(evaluation: Evaluation) -> list[str]:
    """What the model says, each on a few lines; only texts are told."""
    told = [item for one in evaluation.samples for item in one.items()]
    return [f"    {name}: {value}" for name, value in told if isinstance(value, str)]


Draw = Callable[[Evaluation], list[str]]
"""From an evaluation to the lines that show its samples."""


class Lines(Reporter):
    """Plain lines, every few seconds."""

    def __init__(
        self,
        write: Callable[[str], None],
        machine: Machine | None = None,
        *,
        pause: float = 10.0,
        draw: Draw = sample_lines,
    ) -> None:
        self._write, self._pause, self._draw = write, pause, draw
        self._pace = Pace(machine or Machine())
        self._last = time.monotonic()

    def stepped(self, moment: Moment) -> None:
        self._pace.add(moment)
        if time.monotonic() - self._last < self._pause:
            return
        self._last = time.monotonic()
        place = moment.place
        self._write(f"step {place.step:,}  epoch {place.epochs:.2f}  {self._pace.facts()}")

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        self._pace.pause()
        mark = "  (best)" if best else ""
        self._write(f"step {step:,}  validation: {told_numbers(evaluation.numbers)}{mark}")
        for line in self._draw(evaluation):
            self._write(line)

    def note(self, text: str) -> None:
        self._write(text)


class Bar(Reporter):
    """A progress bar with what matters beside it; validations stay above it."""

    def __init__(
        self, console: Any, machine: Machine | None = None, *, draw: Draw = sample_lines
    ) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._draw = draw
        self._pace = Pace(machine or Machine())
        self._progress = Progress(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(bar_width=12),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[facts]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("train", total=1.0, step=0, facts="")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def stepped(self, moment: Moment) -> None:
        self._pace.add(moment)
        self._progress.update(
            self._task,
            completed=moment.progress,
            step=moment.place.step,
            facts=self._pace.facts(),
        )

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        self._pace.pause()
        mark = "  ★" if best else ""
        self.note(f"step {step:,}  {told_numbers(evaluation.numbers)}{mark}")
        for line in self._draw(evaluation):
            self.note(line)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)
