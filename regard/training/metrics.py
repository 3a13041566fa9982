"""The metrics file of a run (JSON lines), TensorBoard, and the picture of the curves.

Losses are means over the targets of all steps since the previous line; `speed` is targets per
second over those steps, without the time of validations; the rest belongs to the step itself.
"""

import json
from math import exp
from pathlib import Path
from typing import Any

from regard.errors import MissingExtraError
from regard.figures.curves import draw_curves
from regard.figures.formats import Figure
from regard.files import write_atomic
from regard.training.callbacks import Callback, StepAverages, StepInfo, ValidationResult
from regard.training.checkpoint import TrainingState
from regard.training.step import StepResult

METRICS, CURVES = "metrics.jsonl", "curves.svg"
EVERY = 10
"""Steps that an entry of the metrics file is the mean of."""


class MetricsCallback(Callback):
    """Base class that averages steps and writes an entry every few steps and at the end."""

    def __init__(self, every: int, resumed: TrainingState | None) -> None:
        self._every, self._averages = every, StepAverages()
        if resumed is not None:
            results = (StepResult(*one) for one in resumed.recent)  # type: ignore[arg-type]
            self._averages.restore(results)

    def write(self, entry: dict[str, Any]) -> None:
        """Write an entry of metrics.jsonl."""
        raise NotImplementedError

    def on_step(self, info: StepInfo) -> None:
        self._averages.add(info)
        position, result = info.position, info.result
        if position.step % self._every and info.progress < 1:
            return
        (loss, nll), speed = self._averages.loss(), self._averages.speed()
        entry = {
            "step": position.step,
            "epoch": round(position.epochs, 4),
            "seconds": round(position.seconds, 3),
            "loss": loss,
            "surprise": nll,
            "norm": result.norm,
            "lr": info.lr,
            "targets": result.n_targets,
        }
        self._averages.clear()
        self.write(entry | ({"speed": round(speed, 1)} if speed else {}))

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        del step, result, best
        self._averages.pause()


class MetricsFile(MetricsCallback):
    """Appends to metrics.jsonl; a resumed run continues it at its checkpoint."""

    def __init__(
        self, path: Path, *, every: int = EVERY, resumed: TrainingState | None = None
    ) -> None:
        super().__init__(every, resumed)
        self._path = path
        kept = []
        if resumed is not None and path.is_file():
            kept = _entries_until(resumed, read_metrics(path))
        write_atomic(path, "".join(_line(entry) for entry in kept))

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        super().on_validation(step, result, best=best)
        metrics = {name: float(value) for name, value in result.metrics.items()}
        samples = [dict(one) for one in result.samples]
        self.write({"step": step, "validation": metrics, "best": best, "samples": samples})

    def write(self, entry: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(_line(entry))


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def _entries_until(state: TrainingState, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries that were written before the checkpoint of this state.

    Of the checkpoint's step, those are the losses and, if the checkpoint is on schedule, one
    validation; the validation of the final model comes after it.
    """
    kept, n_validations = [], int(state.scheduled)
    for entry in entries:
        if entry["step"] == state.step and "validation" in entry:
            n_validations -= 1
            if n_validations < 0:
                break
        if entry["step"] <= state.step:
            kept.append(entry)
    return kept


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a metrics file, without a last line that was cut off."""
    entries = []
    for line in path.read_bytes().split(b"\n"):  # a sample may hold U+2028, or half a character
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


class CurvesFile(Callback):
    """Draws the metrics file, which has to be updated first, at each validation."""

    def __init__(self, folder: Path, *, title: str = "") -> None:
        self._folder, self._title = folder, title

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        del step, result, best
        entries = read_metrics(self._folder / METRICS)
        Figure(draw_curves(entries, title=self._title)).save(self._folder / CURVES)


class TensorBoard(MetricsCallback):
    """Writes the same metrics for TensorBoard, with samples as text."""

    def __init__(
        self, folder: Path, *, every: int = EVERY, resumed: TrainingState | None = None
    ) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "TensorBoard is not installed: pip install 'regard[tensorboard]', or train without "
                "--tensorboard."
            ) from error
        super().__init__(every, resumed)
        # a killed run may have written steps after its last checkpoint, which come again
        purge = None if resumed is None else resumed.step + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def write(self, entry: dict[str, Any]) -> None:
        entry["perplexity"] = exp(min(entry["surprise"], 700.0))
        for name in ("loss", "perplexity", "norm", "lr", "speed", "epoch"):
            if name in entry:
                self._writer.add_scalar(f"train/{name}", entry[name], entry["step"])

    def on_validation(self, step: int, result: ValidationResult, *, best: bool) -> None:
        super().on_validation(step, result, best=best)
        for name, value in result.metrics.items():
            self._writer.add_scalar(f"validation/{name}", value, step)
        for number, sample in enumerate(result.samples):
            texts = (f"**{name}** {text}" for name, text in sample.items() if isinstance(text, str))
            self._writer.add_text(f"sample/{number}", "  \n".join(texts), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
