"""The course of a run as a file of JSON lines, one for every few steps and every validation."""

import json
from pathlib import Path
from typing import Any

from regard.errors import MissingExtraError
from regard.text.files import write_whole
from regard.training.callbacks import Evaluation, Moment, Reporter


class MetricsFile(Reporter):
    """Appends what happens to a file; a run that goes on continues it where its checkpoint was."""

    def __init__(self, path: Path, *, every: int = 10, resumed_at: int | None = None) -> None:
        self._path, self._every = path, every
        path.parent.mkdir(parents=True, exist_ok=True)
        if resumed_at is not None and path.is_file():
            kept = [line for line in read_metrics(path) if line["step"] <= resumed_at]
            write_whole(path, "".join(json.dumps(line) + "\n" for line in kept))
        elif resumed_at is None:
            write_whole(path, "")

    def stepped(self, moment: Moment) -> None:
        learnt, place = moment.learnt, moment.place
        if place.step % self._every and moment.progress < 1:
            return
        self._write(
            step=place.step,
            epoch=round(place.epochs, 4),
            seconds=round(place.seconds, 3),
            loss=learnt.loss,
            surprise=learnt.surprise,
            norm=learnt.norm,
            lr=moment.lr,
            targets=learnt.n_targets,
        )

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        numbers = {name: float(value) for name, value in evaluation.numbers.items()}
        samples = [dict(one) for one in evaluation.samples]
        self._write(step=step, validation=numbers, best=best, samples=samples)

    def _write(self, **entry: Any) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file; a last line that was cut off is left out."""
    entries = []
    for line in path.read_text("utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


class TensorBoard(Reporter):
    """The same for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "TensorBoard is not installed: pip install 'regard[tensorboard]'."
            ) from error
        self._writer = SummaryWriter(str(folder))

    def stepped(self, moment: Moment) -> None:
        step = moment.place.step
        self._writer.add_scalar("train/loss", moment.learnt.loss, step)
        self._writer.add_scalar("train/norm", moment.learnt.norm, step)
        self._writer.add_scalar("train/lr", moment.lr, step)

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        del best
        for name, value in evaluation.numbers.items():
            self._writer.add_scalar(f"validation/{name}", value, step)
        self._writer.flush()


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
