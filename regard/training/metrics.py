"""The course of a run as a file of JSON lines, one for every few steps and every validation.

Losses are means over the targets of all steps since the line before; `speed` is targets a second
over those steps, without the time of validations; the rest is of the step itself.
"""

import json
from math import exp
from pathlib import Path
from typing import Any

from regard.errors import MissingExtraError
from regard.files import write_atomic
from regard.training.callbacks import Evaluation, Moment, Reporter


class Stretch:
    """The steps since the last entry, added up."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._since: float | None = None
        self._restart()

    def _restart(self) -> None:
        self._loss = self._surprise = 0.0
        self._targets = self._timed = 0

    def pause(self) -> None:
        """Something else takes time now, which is no part of the speed."""
        self._since, self._timed = None, 0

    def add(self, moment: Moment) -> dict[str, Any] | None:
        """Take in a step; every few steps there is an entry."""
        learned, place = moment.learned, moment.place
        self._loss += learned.loss * learned.n_targets
        self._surprise += learned.surprise * learned.n_targets
        self._targets += learned.n_targets
        if self._since is None:
            self._since = place.seconds  # the clock runs from the end of this step
        else:
            self._timed += learned.n_targets
        if place.step % self._every and moment.progress < 1:
            return None
        count, elapsed = max(1, self._targets), place.seconds - self._since
        entry = {
            "step": place.step,
            "epoch": round(place.epochs, 4),
            "seconds": round(place.seconds, 3),
            "loss": self._loss / count,
            "surprise": self._surprise / count,
            "norm": learned.norm,
            "lr": moment.lr,
            "targets": learned.n_targets,
        }
        if self._timed and elapsed > 0:
            entry["speed"] = round(self._timed / elapsed, 1)
        self._since = place.seconds
        self._restart()
        return entry


class MetricsFile(Reporter):
    """Appends what happens to a file; a run that goes on continues it where its checkpoint was."""

    def __init__(self, path: Path, *, every: int = 10, resumed_at: int | None = None) -> None:
        self._path, self._stretch = path, Stretch(every)
        path.parent.mkdir(parents=True, exist_ok=True)
        if resumed_at is not None and path.is_file():
            kept = [line for line in read_metrics(path) if line["step"] <= resumed_at]
            write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept))
        elif resumed_at is None:
            write_atomic(path, "")

    def stepped(self, moment: Moment) -> None:
        entry = self._stretch.add(moment)
        if entry is not None:
            self._write(**entry)

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        numbers = {name: float(value) for name, value in evaluation.numbers.items()}
        samples = [dict(one) for one in evaluation.samples]
        self._stretch.pause()
        self._write(step=step, validation=numbers, best=best, samples=samples)

    def _write(self, **entry: Any) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file; a last line that was cut off is left out."""
    entries = []
    for line in path.read_bytes().split(b"\n"):  # a sample may hold U+2028, or half a letter
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


class TensorBoard(Reporter):
    """The same for TensorBoard, with what the model says as text."""

    def __init__(self, folder: Path, *, every: int = 10, resumed_at: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "TensorBoard is not installed: pip install 'regard[tensorboard]', or train without "
                "--tensorboard."
            ) from error
        # what a run that was killed has written after its last checkpoint is written again
        purge = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)
        self._stretch = Stretch(every)

    def stepped(self, moment: Moment) -> None:
        entry = self._stretch.add(moment)
        if entry is None:
            return
        entry["perplexity"] = exp(min(entry["surprise"], 700.0))
        for name in ("loss", "perplexity", "norm", "lr", "speed", "epoch"):
            if name in entry:
                self._writer.add_scalar(f"train/{name}", entry[name], entry["step"])

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        del best
        self._stretch.pause()
        for name, value in evaluation.numbers.items():
            self._writer.add_scalar(f"validation/{name}", value, step)
        for number, sample in enumerate(evaluation.samples):
            told = (f"**{name}** {text}" for name, text in sample.items() if isinstance(text, str))
            self._writer.add_text(f"sample/{number}", "  \n".join(told), step)
        self._writer.flush()

    def close(self) -> None:
        """Write out what is left."""
        self._writer.close()


class Everybody(Reporter):
    """Tells several reporters."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def stepped(self, moment: Moment) -> None:
        for reporter in self._reporters:
            reporter.stepped(moment)

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        for reporter in self._reporters:
            reporter.validated(step, evaluation, best=best)

    def note(self, text: str) -> None:
        for reporter in self._reporters:
            reporter.note(text)
