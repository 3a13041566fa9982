"""Training runs that can be replayed: what their models saw in fixed texts at each checkpoint.

    FOLDER/training/recipe.json                    evaluate.snapshots: the texts
    FOLDER/training/snapshots/step-00000300/0.safetensors   a trace of the first of them
    FOLDER/training/metrics.jsonl                  losses, and what validations found

A run may still be going on: its folder is looked at anew each time somebody asks.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.analysis.site_json import plain
from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.server.trace_store import Kept, Store
from regard.trace.trace import Trace

_TRAINING = "training"
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Run:
    """One run: its folder, the texts it keeps looking at, and what its models are judged by."""

    name: str
    folder: Path
    texts: tuple[str, ...]
    metric: str

    def steps(self) -> list[int]:
        """The steps of which there are snapshots of all texts, in order."""
        folder = self.folder / _TRAINING / "snapshots"
        found = folder.iterdir() if folder.is_dir() else ()
        places = {place: _STEP.fullmatch(place.name) for place in found}
        whole = (
            int(named[1])
            for place, named in places.items()
            if named and all(_file(place, text).is_file() for text in range(len(self.texts)))
        )
        return sorted(whole)

    def describe(self) -> dict[str, Any]:
        """The run as JSON."""
        return {
            "name": self.name,
            "texts": [text.partition("\t")[0] for text in self.texts],
            "metric": self.metric,
            "checkpoints": self._checkpoints(),
        }

    def trace(self, step: int, text: int) -> Trace:
        """What the model saw in a text at a step."""
        steps = self.steps()
        if step not in steps:
            raise UnknownNameError(
                f"the run {self.name} has no snapshot of step {step}; {_some(steps)}."
            )
        if text >= len(self.texts):
            raise UnknownNameError(
                f"the run {self.name} has no text {text}; it has {len(self.texts)}, counted from 0."
            )
        folder = self.folder / _TRAINING / "snapshots" / f"step-{step:08d}"
        return Trace.load(_file(folder, text))

    def _checkpoints(self) -> list[dict[str, Any]]:
        """Each snapshot's step, with the last loss and validation up to then."""
        known = {"loss": None, "epoch": None, "scores": {}}
        found, lines = [], list(self._metrics())
        for step in self.steps():
            while lines and lines[0].get("step", 0) <= step:
                line = lines.pop(0)
                known = {
                    "loss": line.get("loss", known["loss"]),
                    "epoch": line.get("epoch", known["epoch"]),
                    "scores": line.get("validation", known["scores"]),
                }
            found.append({"step": step, **known, "score": known["scores"].get(self.metric)})
        return found

    def _metrics(self) -> Iterator[dict[str, Any]]:
        path = self.folder / _TRAINING / "metrics.jsonl"
        if not path.is_file():
            return
        for line in path.read_text("utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return  # the last line of a run that is writing it right now


class Runs:
    """The runs of a server, by name."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.runs: dict[str, Run] = {}
        for folder in folders:
            run = open_run(folder)
            if all(run.folder != other.folder for other in self.runs.values()):
                unique, number = run.name, 2
                while unique in self.runs:
                    unique, number = f"{run.name}-{number}", number + 1
                self.runs[unique] = Run(unique, run.folder, run.texts, run.metric)

    def __getitem__(self, name: str) -> Run:
        if name not in self.runs:
            said = nearest(name, self.runs) if self.runs else "start it with regard serve --run"
            raise UnknownNameError(f"this server has no run {name!r}; {said}.")
        return self.runs[name]

    def snapshot(self, store: Store, name: str, step: int, text: int) -> Kept:
        """The trace of a text at a step, kept like any other."""
        run = self[name]
        id = store.id_of({"run": name, "step": step, "text": text})
        kept = store.get(id)
        if kept is None:
            trace = run.trace(step, text)
            kept = Kept(id, {}, trace, {"kind": "none", "output": plain(trace.output)})
            store.put(kept)
        return kept


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run with snapshots."""
    return (folder / _TRAINING / "snapshots").is_dir()


def open_run(folder: Path) -> Run:
    """The run in a folder."""
    recipe = folder / _TRAINING / "recipe.json"
    if not recipe.is_file():
        raise FileError(
            f"{folder} holds no training run (there is no {_TRAINING}/recipe.json): give the "
            "folder that regard train was given with -o."
        )
    try:
        given = json.loads(recipe.read_bytes()).get("evaluate", {})
        texts, metric = tuple(given.get("snapshots", ())), given.get("metric", "loss")
    except (ValueError, AttributeError) as error:
        raise FileError(f"{recipe} cannot be read ({error}): train again.") from error
    if not texts:
        raise InputError(
            f"the run in {folder} keeps no snapshots: name texts in the recipe's "
            "[evaluate] snapshots and train again."
        )
    return Run(folder.resolve().name, folder.resolve(), texts, metric)


def _file(folder: Path, text: int) -> Path:
    return folder / f"{text}.safetensors"


def _some(steps: list[int]) -> str:
    if not steps:
        return "it has none yet"
    return f"it has {len(steps)}, from {steps[0]} to {steps[-1]}"
