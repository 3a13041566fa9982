"""Models and training runs that a server offers; no request can name another file.

A training run can be replayed if its recipe names texts to take snapshots of. Its folder is read
again on each request because training may still be in progress.
"""

import io
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image, ImageDraw
from pydantic import BaseModel

from regard.errors import FileError, InputError, nearest
from regard.interop.model_names import ZOO, bundled, find_model, named
from regard.model import Model, load
from regard.model_folder import (
    EXAMPLES,
    Description,
    is_transformers_folder,
    read_description,
)
from regard.server.error_codes import ApiError
from regard.server.jobs import ModelWorker
from regard.trace.trace import Trace

EXAMPLE_TEXTS = {
    "translation": ["The dog is sleeping.", "A man is reading a book.", "Where is the station?"],
    "language": ["Once upon a time", "The dog"],
    "masked": ["The dog is {mask} in the garden.", "Paris is the {mask} of France."],
    "classification": ["What a wonderful day!"],
    "embedding": ["The dog is sleeping in the garden."],
}
"""Inputs to try on a model that has no examples."""
BUNDLED_EXAMPLES = ZOO / "examples.json"
"""Inputs to try on the bundled models, each with the answer that a test expects."""


class ExampleInfo(BaseModel):
    """An input to try on a model: a text, or an image of the model's folder."""

    text: str | None = None
    target: str | None = None
    image: str | None = None
    name: str | None = None
    answer: str | None = None
    """The right answer, which the model gives; for a language model, how the text continues."""
    shows: str | None = None
    """"negation", "reordering", "distance" or "antecedent", if it is chosen to show one of them."""
    looks: tuple[str, str] | None = None
    """The word that shows it and the word that it looks at: the page opens with this connection."""


class ModelInfo(BaseModel):
    """A model of the server."""

    name: str
    family: str
    task: str
    reads: str
    bundled: bool
    named: bool  # when the server was started
    examples: list[ExampleInfo]


class Checkpoint(BaseModel):
    """A step of a training run that has a snapshot, with the last metrics up to then."""

    step: int
    epoch: float | None
    loss: float | None  # training loss of the last batches
    score: float | None  # the run's metric on the validation data
    scores: dict[str, Any]


_NOT_IN_CONFIG = ("preset", "start_from", "family")


class ReplayInfo(BaseModel):
    """A training run: the texts of its snapshots, and its checkpoints so far."""

    name: str
    models: list[str]  # models of the server that this run trained
    texts: list[str]
    metric: str
    checkpoints: list[Checkpoint]


@dataclass
class ModelEntry:
    """A model folder, its description and worker thread; the model is loaded on first use."""

    name: str
    folder: Path
    description: Description
    bundled: bool
    worker: ModelWorker
    named: bool = False  # when the server was started
    _model: Model | None = None
    _lock: Lock = field(default_factory=Lock)

    def model(self) -> Model:
        """Return the model, loading it on the first call."""
        with self._lock:
            if self._model is None:
                self._model = load(self.folder)
                self._model.module.eval()
            return self._model

    @property
    def reads(self) -> str:
        """The kind of input: "text" or "image"."""
        return "image" if self.description.family == "vision" else "text"

    def examples(self) -> list[ExampleInfo]:
        checked = bundled_examples().get(self.name, []) if self.bundled else []
        if self.reads == "image":
            answers = {one["image"]: one["answer"] for one in checked}
            images = [
                ExampleInfo(image=f"example:{i}", name=path.stem, answer=answers.get(path.name))
                for i, path in enumerate(self._images())
                if not answers or path.name in answers
            ]
            return images or [ExampleInfo(image="example:0", name="ring")]
        task = self.description.task
        given = checked or self.description.extras.get(EXAMPLES) or EXAMPLE_TEXTS[task]
        mask = (self.description.tokenizer or {}).get("mask", "[MASK]")
        texts = [{"text": one} if isinstance(one, str) else one for one in given]
        return [
            ExampleInfo(**{**one, "text": one["text"].replace("{mask}", mask)}) for one in texts
        ]

    def _images(self) -> list[Path]:
        folder = self.folder / EXAMPLES
        suffixes = (".png", ".jpg", ".jpeg", ".webp")
        return sorted(path for path in folder.glob("*") if path.suffix.lower() in suffixes)

    def image(self, number: int | str) -> bytes:
        """Return the file of an example image; without any, a drawn one."""
        found = self._images()
        if not found and self.reads == "image" and str(number) == "0":
            return draw_ring()
        if not str(number).isdecimal() or int(number) >= len(found):
            raise ApiError("unknown_example", name=self.name, number=number, count=len(found))
        return found[int(number)].read_bytes()

    def describe(self) -> ModelInfo:
        return ModelInfo(
            name=self.name,
            family=self.description.family,
            task=self.description.task,
            reads=self.reads,
            bundled=self.bundled,
            named=self.named,
            examples=self.examples(),
        )


@cache
def draw_ring() -> bytes:
    """Return the PNG file of a white ring on black, for vision models that have no images."""
    image, file = Image.new("L", (224, 224)), io.BytesIO()
    ImageDraw.Draw(image).ellipse((56, 32, 168, 192), outline=255, width=24)
    image.save(file, "PNG")
    return file.getvalue()


@cache
def bundled_examples() -> dict[str, list[dict[str, str]]]:
    """Return the examples of the bundled models by model: a text or an image, and its answer."""
    if not BUNDLED_EXAMPLES.is_file():
        return {}
    return json.loads(BUNDLED_EXAMPLES.read_text("utf-8"))


class Catalog:
    """All models of a server by name: those given by name or folder, then the bundled ones."""

    def __init__(self, given: Iterable[str | Path] = ()) -> None:
        self.entries: dict[str, ModelEntry] = {}
        for one in given:
            folder = find_model(one)
            is_bundled = named().get(str(one)) == folder
            name = str(one) if is_bundled else folder.resolve().name
            self._add(name, folder, is_bundled, is_named=True)
        for name, folder in bundled().items():
            if all(folder != entry.folder for entry in self.entries.values()):
                with suppress(FileError):  # a damaged model must not keep others from being served
                    self._add(name, folder, is_bundled=True)

    def __getitem__(self, name: str) -> ModelEntry:
        if name in self.entries:
            return self.entries[name]
        if not self.entries:
            raise ApiError("no_models", name=name)
        raise ApiError("unknown_model", name=name, hint=nearest(name, self.entries))

    def close(self) -> None:
        for entry in self.entries.values():
            entry.worker.close()

    def _add(self, name: str, folder: Path, is_bundled: bool, *, is_named: bool = False) -> None:
        opened = None
        if is_transformers_folder(folder):  # only the model itself says what it is
            opened = load(folder)
            opened.module.eval()
        description = read_description(folder) if opened is None else opened.describe()
        name = _unique(name, self.entries)
        self.entries[name] = ModelEntry(
            name, folder, description, is_bundled, ModelWorker(name), is_named, opened
        )


def _unique(name: str, taken: Collection[str]) -> str:
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(one for one in names if one not in taken)


@dataclass(frozen=True)
class ReplayRun:
    """A training run with snapshots."""

    name: str
    folder: Path
    texts: tuple[str, ...]
    metric: str
    task: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the model's config that the recipe sets."""

    def trained(self, entry: ModelEntry) -> bool:
        """Return True if this run trained a model: the same folder, or the recipe's settings."""
        if entry.folder.resolve() == self.folder:
            return True
        config, task = entry.description.model, entry.description.task
        same = all(name in config and config[name] == x for name, x in self.settings.items())
        return bool(self.settings) and same and task == self.task

    def steps(self) -> list[int]:
        """Return the steps that have snapshots of all texts, in order."""
        found = (self.folder / "training" / "snapshots").glob("step-*")
        files = [f"{text}.safetensors" for text in range(len(self.texts))]
        return sorted(
            int(path.name[5:])
            for path in found
            if path.name[5:].isdecimal() and all((path / name).is_file() for name in files)
        )

    def describe(self, entries: Iterable[ModelEntry] = ()) -> ReplayInfo:
        return ReplayInfo(
            name=self.name,
            models=[entry.name for entry in entries if self.trained(entry)],
            texts=[text.partition("\t")[0] for text in self.texts],
            metric=self.metric,
            checkpoints=list(self._checkpoints()),
        )

    def trace(self, step: int, text: int) -> Trace:
        """Load the snapshot of a text at a step."""
        steps = self.steps()
        if step not in steps:
            hint = f"it has {len(steps)}, {steps[0]} to {steps[-1]}" if steps else "it has none yet"
            raise ApiError("unknown_step", name=self.name, step=step, hint=hint)
        if text >= len(self.texts):
            raise ApiError("unknown_text", name=self.name, text=text, count=len(self.texts))
        folder = self.folder / "training" / "snapshots" / f"step-{step:08d}"
        return Trace.load(folder / f"{text}.safetensors")

    def _checkpoints(self) -> Iterator[Checkpoint]:
        latest: dict[str, Any] = {"loss": None, "epoch": None, "validation": {}}
        path, lines = self.folder / "training" / "metrics.jsonl", []
        # the file may not exist yet, and its last line may still be being written
        with suppress(FileNotFoundError, ValueError):
            lines.extend(map(json.loads, path.read_text("utf-8").splitlines()))
        for step in self.steps():
            while lines and lines[0].get("step", 0) <= step:
                line = lines.pop(0)
                latest |= {name: line[name] for name in latest if name in line}
            loss, epoch, scores = latest.values()
            score = scores.get(self.metric)
            yield Checkpoint(step=step, epoch=epoch, loss=loss, score=score, scores=scores)


class Runs:
    """The training runs of a server, by name."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.runs: dict[str, ReplayRun] = {}
        for folder in folders:
            run = open_run(folder)
            if all(run.folder != other.folder for other in self.runs.values()):
                name = _unique(run.name, self.runs)
                self.runs[name] = replace(run, name=name)

    def __getitem__(self, name: str) -> ReplayRun:
        if name not in self.runs:
            hint = nearest(name, self.runs) if self.runs else "start it with regard serve --run"
            raise ApiError("unknown_run", name=name, hint=hint)
        return self.runs[name]


def is_run(folder: Path) -> bool:
    """Return True if a folder holds a training run with snapshots."""
    return (folder / "training" / "snapshots").is_dir()


def open_run(folder: Path) -> ReplayRun:
    """Open the training run in a folder."""
    recipe = folder / "training" / "recipe.json"
    if not recipe.is_file():
        raise FileError(
            f"{folder} is not a training run (training/recipe.json is missing): give the folder "
            "that was passed to regard train with -o."
        )
    try:
        given = json.loads(recipe.read_bytes())
        evaluate, settings = given.get("evaluate", {}), given.get("model", {})
        texts, metric = tuple(evaluate.get("snapshots", ())), evaluate.get("metric", "loss")
        chosen = {name: x for name, x in settings.items() if name not in _NOT_IN_CONFIG}
    except (ValueError, AttributeError) as error:
        raise FileError(f"{recipe} cannot be read ({error}): train again.") from error
    if not texts:
        raise InputError(
            f"the run in {folder} has no snapshots: add texts (for images, names of classes) to "
            "[evaluate] snapshots in the recipe and train again."
        )
    place, task = folder.resolve(), given.get("task", "")
    return ReplayRun(place.name, place, texts, metric, task, chosen)
