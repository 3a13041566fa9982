"""Families of Hugging Face checkpoints: tables of tensor names and settings for each."""

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
"""Hugging Face's activations and ours; of several names for one, the first is written."""
REQUIRED = object()
"""The default of a setting that a checkpoint must state."""
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_AGAIN = "download the checkpoint again"

Tensors = dict[str, Tensor]
Fields = Mapping[str, tuple[str, Any]]
"""For fields of our config: the name in config.json, and its default there or REQUIRED."""


@dataclass(frozen=True)
class CheckpointSettings:
    """The settings in a checkpoint's config.json."""

    file: Path
    values: Mapping[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default where it is missing or null."""
        value = self.values.get(name)
        if value is None and default is REQUIRED:
            raise FileError(f"{self.file} has no {name!r}: {_AGAIN}.")
        return default if value is None else value

    def read(self, fields: Fields) -> dict[str, Any]:
        """Return the fields of our config that a table maps to settings."""
        return {ours: self.get(name, default) for ours, (name, default) in fields.items()}

    def check(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse a checkpoint in which a setting has a value that is not allowed."""
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise InputError(f"{self.file} has {name} = {value!r}, {why}.")

    def choice(self, name: str, table: Mapping[Any, str], default: Any) -> str:
        """Return our name for a setting's value."""
        value = self.get(name, default)
        if value not in table:
            raise InputError(
                f"{self.file} has {name} = {value!r}, which regard does not support; it can be "
                f"{', '.join(map(str, table))}."
            )
        return table[value]

    @property
    def model_type(self) -> str:
        """The name of the family in config.json."""
        return str(self.get("model_type", ""))

    @property
    def architecture(self) -> str:
        """The class name of the model, which includes its head."""
        named = self.get("architectures", [])
        return str(named[0]) if isinstance(named, list) and named else ""


def write_fields(config: Any, fields: Fields) -> dict[str, Any]:
    """Return the settings of config.json for the fields of our config in a table."""
    return {name: getattr(config, ours) for ours, (name, _) in fields.items()}


def read_settings(folder: Path) -> CheckpointSettings:
    """Read a folder's config.json."""
    file = folder / CONFIG
    if not file.is_file():
        raise FileError(
            f"{folder} has no {CONFIG}, so it is not a Hugging Face folder: give one, a hub name "
            "or a llama2.c .bin file."
        )
    return CheckpointSettings(file, read_json(file))


def read_tensors(folder: Path) -> Tensors:
    """Read all tensors of a folder, from one file or from the shards that an index lists."""
    if (folder / WEIGHTS).is_file():
        return read_weights(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        raise FileError(_why_no_weights(folder))
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise FileError(f"{folder / INDEX} has no 'weight_map': {_AGAIN}.")
    tensors: Tensors = {}
    for name in sorted({str(part) for part in index.values()}):
        if Path(name).name != name:
            raise FileError(f"{folder / INDEX} lists {name!r}, which is outside of its folder.")
        if not (folder / name).is_file():
            raise FileError(f"{folder / name} does not exist, but {INDEX} lists it: {_AGAIN}.")
        tensors |= read_weights(folder / name)
    missing = sorted(set(index) - set(tensors))
    if missing:
        raise FileError(
            f"{folder / INDEX} lists {missing[0]!r}, which is in none of its files: {_AGAIN}."
        )
    return tensors


def _why_no_weights(folder: Path) -> str:
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLED)
    if pickled:
        return (
            f"{folder} has its weights in {pickled[0]}, a pickle, which can run arbitrary code, so "
            f"regard does not open it: get {WEIGHTS}, or convert it where you trust it."
        )
    return f"{folder} has no {WEIGHTS}: {_AGAIN}."


def hf_activation(name: str, family: str) -> str:
    """Return Hugging Face's name of an activation; refuse those it does not have."""
    found = next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)
    require(found is not None, f"{family} has no activation {name}")
    return str(found)


@dataclass(frozen=True, kw_only=True)
class CheckpointFamily:
    """Rules for reading and writing one family of checkpoints."""

    name: str
    """The name in messages."""
    model_types: tuple[str, ...]
    """Values of model_type in config.json; the first is written."""
    architectures: Mapping[str, str]
    """Class names, and the task of each."""
    headless: tuple[str, ...] = ()
    """Class names of models without a head, whose tensors have no prefix."""
    prefix: str
    """The prefix of tensor names in a model with a head."""
    names: Mapping[str, str]
    """Our module and tensor names, and theirs; N is the index of a layer."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """The same for names without the prefix."""
    outside: tuple[str, ...] = ()
    """Starts of names that `pack` adds and that have no prefix either."""
    ignored: tuple[str, ...] = ()
    """Patterns of tensors that our model does not need."""
    biasless: tuple[str, ...] = ()
    """Patterns of biases that may be missing, which means zeros."""
    read_config: Callable[[CheckpointSettings], ModelConfig]
    write_config: Callable[[Any], dict[str, Any]]
    """Return their settings, including "architectures", or refuse our config."""
    unpack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors
    """Convert tensors with a different layout to ours."""
    pack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors
    """The inverse of `unpack`."""

    def hf_name(self, ours: str) -> str:
        """Return their name of one of our tensors, without the prefix."""
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

    def from_hf(self, tensors: Mapping[str, Tensor], config: ModelConfig, source: Path) -> Tensors:
        """Convert a checkpoint's tensors to ours; refuse missing and unknown ones."""
        given = {self._without_prefix(name): tensor for name, tensor in tensors.items()}
        given = self.unpack(given, config)
        weights: Tensors = {}
        used = set()
        for ours, empty in build_on_meta(config).state_dict().items():
            theirs = self.hf_name(ours)
            used.add(theirs)
            if theirs in given:
                weights[ours] = given[theirs]
            elif _matches(theirs, self.biasless):
                weights[ours] = torch.zeros(empty.shape)
            else:
                raise FileError(
                    f"{source} has no tensor {theirs!r}, which a {self.name} with its settings "
                    f"needs: {_AGAIN}."
                )
        unknown = [n for n in given if n not in used and not _matches(n, self.ignored)]
        if unknown:
            raise InputError(
                f"{source} has a tensor {unknown[0]!r}, which regard's {self.name} does not have, "
                "so the model cannot be imported."
            )
        return weights

    def to_hf(
        self, weights: Mapping[str, Tensor], config: ModelConfig, architecture: str
    ) -> Tensors:
        """Convert our tensors to theirs."""
        theirs = {self.hf_name(ours): tensor for ours, tensor in weights.items()}
        outside = (*self.heads.values(), *self.outside)
        prefix = "" if architecture in self.headless else self.prefix
        return {
            name if name.startswith(outside) else prefix + name: tensor.contiguous()
            for name, tensor in self.pack(theirs, config).items()
        }

    def _without_prefix(self, name: str) -> str:
        """Remove the prefix, and rename gamma and beta of norms in old checkpoints."""
        name = name.removeprefix(self.prefix)
        return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def each_layer(ours: str, theirs: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Return the names of a layer's parts, with a prefix and N for the index of the layer."""
    return {f"{ours}.N.{part}": f"{theirs}.N.{name}" for part, name in parts.items()}


def attention_names(ours: str, names: str) -> dict[str, str]:
    """Return the names of an attention's projections: query, key, value, output."""
    parts = ("to_query", "to_key", "to_value", "to_output")
    return {f"{ours}.inner.{p}": n for p, n in zip(parts, names.split(), strict=True)}


def require(condition: bool, what: str) -> None:
    """Refuse to export a model unless a condition holds."""
    if not condition:
        raise InputError(f"this model cannot be exported: {what}.")
