"""The models that a server has: those that come with regard, and folders named when it started.

Only names that are listed here are ever opened: no request can name a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.interop.model_names import bundled, find_model, named
from regard.model import Model, load
from regard.model_folder import Description, read_description
from regard.server.jobs import Worker

EXAMPLES = {
    "translation": ["The dog is sleeping.", "A man is reading a book.", "Where is the station?"],
    "language": ["Once upon a time", "The dog"],
    "masked": ["The dog is {mask} in the garden.", "Paris is the {mask} of France."],
    "classification": ["What a wonderful day!"],
    "embedding": ["The dog is sleeping in the garden."],
}
"""What to try on a model whose folder suggests nothing: extras.examples in config.json does."""
_PICTURES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass
class Entry:
    """One model: what is known without loading it, its thread, and the model once it is needed."""

    name: str
    folder: Path
    described: Description
    bundled: bool
    worker: Worker
    _model: Model | None = None
    _lock: Lock = field(default_factory=Lock)

    def model(self) -> Model:
        """The model, loaded the first time somebody needs it."""
        with self._lock:
            if self._model is None:
                self._model = load(self.folder)
                self._model.module.eval()
            return self._model

    @property
    def reads(self) -> str:
        """What it runs on: "text" or "image"."""
        return "image" if self.described.family == "vision" else "text"

    def examples(self) -> list[dict[str, Any]]:
        """What to try on it: {"text": …} or {"image": "example:N", "name": …}."""
        if self.reads == "image":
            names = enumerate(path.stem for path in self.pictures())
            return [{"image": f"example:{i}", "name": name} for i, name in names]
        given = self.described.extras.get("examples") or EXAMPLES[self.described.task]
        mask = (self.described.tokenizer or {}).get("mask", "[MASK]")
        texts = [{"text": one} if isinstance(one, str) else dict(one) for one in given]
        return [{**one, "text": one["text"].replace("{mask}", mask)} for one in texts]

    def pictures(self) -> list[Path]:
        """The pictures in the folder `examples` of a model that reads images."""
        folder = self.folder / "examples"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in found if path.suffix.lower() in _PICTURES)

    def picture(self, number: int) -> Path:
        """One of those pictures."""
        found = self.pictures()
        if number >= len(found):
            raise InputError(f"{self.name} has no example {number}; it has {len(found)} pictures.")
        return found[number]

    def describe(self) -> dict[str, Any]:
        """The entry as JSON."""
        return {
            "name": self.name,
            "family": self.described.family,
            "task": self.described.task,
            "reads": self.reads,
            "bundled": self.bundled,
            "examples": self.examples(),
        }


class Catalog:
    """All models of a server, by name.

    Args:
        given: names of bundled models, or folders. The first of them is opened first.
    """

    def __init__(self, given: Iterable[str | Path] = ()) -> None:
        self.entries: dict[str, Entry] = {}
        for one in given:
            folder = find_model(one)
            own = named().get(str(one)) != folder
            self._add(folder.resolve().name if own else str(one), folder, bundled=not own)
        for name, folder in bundled().items():
            if all(folder != entry.folder for entry in self.entries.values()):
                self._add(name, folder, bundled=True)

    def __getitem__(self, name: str) -> Entry:
        if name not in self.entries:
            if not self.entries:
                raise UnknownNameError(
                    f"there is no model {name!r}: this server has none. Start it with the folder "
                    "of one: regard serve FOLDER."
                )
            raise UnknownNameError(f"there is no model {name!r}; {nearest(name, self.entries)}.")
        return self.entries[name]

    def close(self) -> None:
        """End all threads."""
        for entry in self.entries.values():
            entry.worker.close()

    def _add(self, name: str, folder: Path, *, bundled: bool) -> None:
        unique, number = name, 2
        while unique in self.entries:
            unique, number = f"{name}-{number}", number + 1
        try:
            described = read_description(folder)
        except FileError:
            if not bundled:
                raise
            return  # one that is damaged does not keep the others from being served
        self.entries[unique] = Entry(unique, folder, described, bundled, Worker(unique))
