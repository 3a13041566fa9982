"""A checkpoint as another system left it: its settings and its tensors, read but not understood."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.bundle.weights import read_weights
from regard.errors import FileError, InputError
from regard.text.formats import read_json

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class Settings:
    """The settings in a config.json, by the names that the other system gives them."""

    file: Path
    values: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        """A setting, or what the other system takes where it is not stated."""
        value = self.values.get(name)
        return default if value is None else value

    def need(self, name: str) -> Any:
        """A setting that must be there."""
        if self.values.get(name) is None:
            raise FileError(f"{self.file} does not say {name!r}: fetch the checkpoint again.")
        return self.values[name]

    def only(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse a checkpoint in which a setting that is stated is none of these."""
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise InputError(f"{self.file} says {name} = {value!r}, {why}.")

    def choice(self, name: str, table: Mapping[Any, str], default: Any) -> str:
        """Our word for a setting."""
        value = self.get(name, default)
        if value not in table:
            raise InputError(
                f"{self.file} says {name} = {value!r}, which regard does not compute; it can be "
                f"{', '.join(map(str, table))}."
            )
        return table[value]

    @property
    def kind(self) -> str:
        """The other system's name for this kind of model."""
        return str(self.get("model_type", ""))

    @property
    def architecture(self) -> str:
        """The other system's name for the model with its head."""
        named = self.get("architectures", [])
        return str(named[0]) if isinstance(named, list) and named else ""


def read_settings(folder: Path) -> Settings:
    """The settings of a folder's config.json."""
    file = folder / CONFIG
    if not file.is_file():
        raise FileError(
            f"{folder} holds no {CONFIG}, so it is no Hugging Face folder: name one, a hub name "
            "or a llama2.c .bin file."
        )
    return Settings(file, read_json(file))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, from one file or from the parts that an index lists."""
    if (folder / WEIGHTS).is_file():
        return read_weights(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        raise FileError(_why_no_weights(folder))
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise FileError(f"{folder / INDEX} has no 'weight_map': fetch the checkpoint again.")
    tensors: dict[str, Tensor] = {}
    for name in sorted({str(part) for part in index.values()}):
        if Path(name).name != name:  # a part elsewhere is none of this checkpoint
            raise FileError(
                f"{folder / INDEX} names the part {name!r}, which is no file beside it."
            )
        if not (folder / name).is_file():
            raise FileError(f"{folder / name} is not there, but {INDEX} lists it: fetch it again.")
        tensors |= read_weights(folder / name)
    lost = sorted(set(index) - set(tensors))
    if lost:
        raise FileError(
            f"{folder / INDEX} lists {lost[0]!r}, which none of its files has: fetch them again."
        )
    return tensors


def _why_no_weights(folder: Path) -> str:
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLED)
    if pickled:
        return (
            f"{folder} has its weights in {pickled[0]}, a pickle, which can run any code when it "
            f"is opened, so regard never does: ask for {WEIGHTS}, or convert it where you trust it."
        )
    return f"{folder} holds no {WEIGHTS}: fetch the checkpoint again."
