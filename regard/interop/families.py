"""Kinds of checkpoints: a table of names for each, and what its settings mean here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import FileError, InputError
from regard.models.config import ModelConfig, build_on_meta
from regard.models.weights import read_weights
from regard.text.tokenizer_files import read_json

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


Tensors = dict[str, Tensor]

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}
"""The other system's activations, and ours; the first of several is the one we write."""


def their_activation(ours: str) -> str | None:
    """The other system's name of an activation, if it has it."""
    return next((theirs for theirs, one in ACTIVATIONS.items() if one == ours), None)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How one kind of checkpoint is read and written."""

    name: str
    """For people."""
    model_types: tuple[str, ...]
    """What config.json calls it; the first is what we write."""
    architectures: Mapping[str, str]
    """Its models with their heads, and the task of each."""
    headless: tuple[str, ...] = ()
    """Those of them that have no head, and so no prefix."""
    prefix: str
    """What stands before the names of a model that has a head."""
    names: Mapping[str, str]
    """Parts of our model and theirs; N stands for the number of a layer."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """The same for what stands outside the prefix."""
    outside: tuple[str, ...] = ()
    """Beginnings of names that `pack` makes and that also stand there."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensors in which nothing is that our model needs."""
    biasless: tuple[str, ...] = ()
    """Patterns of biases that theirs may lack: none is the same as one of zeros."""
    read_config: Callable[[Settings], ModelConfig]
    write_config: Callable[[Any], dict[str, Any]] | None = None
    """Their settings for our configuration, "architectures" included; or a refusal."""
    unpack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors
    """Makes tensors of theirs that are laid out in another way like ours."""
    pack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors
    """The other way round."""

    def theirs(self, ours: str) -> str:
        """Their name of one of our tensors, without the prefix."""
        module, _, leaf = ours.rpartition(".")
        table = {**self.names, **self.heads}
        for name, suffix in ((ours, ""), (module, f".{leaf}")):
            numbers = re.findall(r"\.(\d+)(?=\.|$)", name)
            found = table.get(re.sub(r"\.\d+(?=\.|$)", ".N", name))
            if found is not None:
                for number in numbers:
                    found = found.replace(".N", f".{number}", 1)
                return found + suffix
        raise KeyError(f"{self.name} has no name for {ours}")

    def to_ours(self, tensors: Mapping[str, Tensor], config: ModelConfig, source: Path) -> Tensors:
        """Our names and layouts for a checkpoint's tensors; refused if any is lacking or left."""
        given = {self._plain(name): tensor for name, tensor in tensors.items()}
        given = self.unpack(given, config)
        weights: Tensors = {}
        used = set()
        for ours, empty in build_on_meta(config).state_dict().items():
            theirs = self.theirs(ours)
            used.add(theirs)
            if theirs in given:
                weights[ours] = given[theirs]
            elif _matches(theirs, self.biasless):
                weights[ours] = torch.zeros(empty.shape)
            else:
                raise FileError(
                    f"{source} has no tensor {theirs!r}, which a {self.name} of its settings "
                    "needs: fetch the checkpoint again."
                )
        left = [n for n in given if n not in used and not _matches(n, self.ignored)]
        if left:
            raise InputError(
                f"{source} has a tensor {left[0]!r}, which regard's {self.name} does not know: it "
                "computes something else, so it cannot be imported."
            )
        return weights

    def to_theirs(
        self, weights: Mapping[str, Tensor], config: ModelConfig, architecture: str
    ) -> Tensors:
        """Their names and layouts for our tensors."""
        theirs = {self.theirs(ours): tensor for ours, tensor in weights.items()}
        outside = (*self.heads.values(), *self.outside)
        prefix = "" if architecture in self.headless else self.prefix
        return {
            name if name.startswith(outside) else prefix + name: tensor.contiguous()
            for name, tensor in self.pack(theirs, config).items()
        }

    def _plain(self, name: str) -> str:
        """A name without the prefix; norms of old checkpoints call their weights gamma and beta."""
        name = name.removeprefix(self.prefix)
        return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def each_layer(ours: str, theirs: str, parts: Mapping[str, str]) -> dict[str, str]:
    """The names of a layer's parts, for all layers: `ours` and `theirs` come before each."""
    return {f"{ours}.N.{part}": f"{theirs}.N.{name}" for part, name in parts.items()}


def attention(ours: str, names: str) -> dict[str, str]:
    """Names for the four projections of an attention: query, key, value, output."""
    parts = ("to_query", "to_key", "to_value", "to_output")
    return {f"{ours}.inner.{p}": n for p, n in zip(parts, names.split(), strict=True)}


def require(condition: bool, what: str) -> None:
    """Refuse an export of a model that the other system does not have."""
    if not condition:
        raise InputError(f"this model cannot be exported: {what}.")
