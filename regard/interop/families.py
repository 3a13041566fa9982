"""Families of Hugging Face checkpoints: tables of tensor names and settings for each."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import FileError, InputError
from regard.model_folder import CONFIG, WEIGHTS, weights_file
from regard.models.config import ModelConfig, build_on_meta, read_weights
from regard.text.tokenizer_files import read_json

INDEX = "model.safetensors.index.json"
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
REQUIRED = object()  # the default of a setting that a checkpoint must state
_AGAIN = "download the checkpoint again"
_NO_EFFECT = (
    "architectures attention_dropout attention_probs_dropout_prob attn_implementation "
    "attn_pdrop bad_words_ids bos_token_id chunk_size_feed_forward classif_dropout "
    "classifier_dropout decoder_layerdrop decoder_start_token_id do_sample dtype early_stopping "
    "embd_pdrop encoder_layerdrop encoder_stride eos_token_id finetuning_task "
    "forced_bos_token_id forced_eos_token_id gradient_checkpointing hidden_dropout_prob "
    "id2label init_std initializer_factor initializer_range is_encoder_decoder label2id "
    "language length_penalty max_length max_window_layers min_length model_type n_ctx "
    "no_repeat_ngram_size num_beams num_labels output_attentions output_hidden_states "
    "output_past pooler_act pooler_output_size pretraining_tp problem_type qa_dropout "
    "reorder_and_upcast_attn repetition_penalty resid_pdrop return_dict sep_token_id "
    "seq_classif_dropout sinusoidal_pos_embds task_specific_params temperature tokenizer_class "
    "top_k top_p torch_dtype transformers_version use_cache "
)
HARMLESS = frozenset(_NO_EFFECT.split())
"""Settings that change no result: of training, search, the library, and heads we do not have."""
_LAYER = (
    *(f"self_attention.inner.to_{name}" for name in ("query", "key", "value", "output")),
    *("self_attention.norm", "feed_forward.inner.to_hidden", "feed_forward.inner.to_output"),
    "feed_forward.norm",
)

Tensors = dict[str, Tensor]
Fields = Mapping[str, tuple[str, Any]]
"""For fields of our config: the name in config.json, and its default there or REQUIRED."""
SIZES: Fields = {
    "n_layers": ("num_hidden_layers", REQUIRED),
    "d_model": ("hidden_size", REQUIRED),
    "n_heads": ("num_attention_heads", REQUIRED),
    "d_ff": ("intermediate_size", REQUIRED),
}
"""The names that most families share."""


@dataclass(frozen=True)
class CheckpointSettings:
    """The settings in a checkpoint's config.json."""

    file: Path
    values: Mapping[str, Any]
    used: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting of the default's type, or the default where it is missing or null."""
        self.used.add(name)
        value = self.values.get(name)
        if value is None and default is REQUIRED:
            raise FileError(f"{self.file} has no {name!r}: {_AGAIN}.")
        if value is None:
            return default
        kind = int if default is REQUIRED else type(default)  # what is required are sizes
        if default is not None and not _is_a(kind, value):
            raise InputError(
                f"{self.file} has {name} = {value!r:.60}, which must be of type {kind.__name__}: "
                f"{_AGAIN}."
            )
        return value

    def read(self, fields: Fields) -> dict[str, Any]:
        """Return the fields of our config that a table maps to settings."""
        return {ours: self.get(name, default) for ours, (name, default) in fields.items()}

    def check(self, **needed: Any) -> None:
        """Refuse a checkpoint that states other values for these settings."""
        for name, value in needed.items():
            given = self.get(name)
            if given is not None and given != value:
                raise InputError(
                    f"{self.file} has {name} = {given!r}, but regard can import this checkpoint "
                    f"only with {value!r}."
                )

    def check_rest(self, family: str) -> None:
        """Refuse a setting that was not read, unless it is off or changes no result."""
        for name, value in self.values.items():
            known = name in self.used or name in HARMLESS or name.startswith(("_", "summary_"))
            if not known and value not in (None, False, 0, "", [], {}):
                raise InputError(
                    f"{self.file} has {name} = {value!r}, which regard's {family} does not know, "
                    "so it could compute something else: remove the setting if it changes nothing."
                )

    def choice(self, name: str, table: Mapping[Any, str], default: Any) -> str:
        """Return our name for a setting's value."""
        value = self.get(name, default)
        if isinstance(value, list | dict) or value not in table:
            raise InputError(
                f"{self.file} has {name} = {value!r}, which regard does not support; it can be "
                f"{', '.join(map(str, table))}."
            )
        return table[value]

    @property
    def model_type(self) -> str:
        return str(self.get("model_type", ""))

    @property
    def architecture(self) -> str:
        """The class name of the model, which includes its head."""
        named = self.get("architectures", [])
        return str(named[0]) if isinstance(named, list) and named else ""


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, kind) or (
        kind is float and isinstance(value, int) and abs(value) < 1e308
    )


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
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return read_weights(weights_file(folder))
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
    if missing := sorted(set(index) - set(tensors)):
        what = f"{missing[0]!r}, which is in none of its files"
        raise FileError(f"{folder / INDEX} lists {what}: {_AGAIN}.")
    return tensors


def hf_activation(name: str, family: str) -> str:
    """Return Hugging Face's name of an activation; refuse those it does not have."""
    found = next((theirs for theirs, ours in ACTIVATIONS.items() if ours == name), None)
    require(found is not None, f"{family} has no activation {name}")
    return str(found)


@dataclass(frozen=True, kw_only=True)
class CheckpointFamily:
    """Rules for reading and writing one family of checkpoints."""

    name: str
    model_types: tuple[str, ...]  # values of model_type in config.json; the first is written
    architectures: Mapping[str, str]  # class names, and the task of each
    prefix: str
    """The prefix of tensor names, except in models without a head, whose task is embedding."""
    names: Mapping[str, str]  # our module and tensor names, and theirs; N is the index of a layer
    heads: Mapping[str, str] = field(default_factory=dict)  # the same for names without the prefix
    outside: tuple[str, ...] = ()  # starts of names that `pack` adds and that have no prefix either
    ignored: tuple[str, ...] = ()  # patterns of tensors that our model does not need
    copies: Mapping[str, str] = field(default_factory=dict)
    """Tensors that a tied model stores a second time, and the tensor that each must equal."""
    biasless: tuple[str, ...] = ()  # patterns of biases that may be missing, which means zeros
    bias_setting: str = ""  # if given, those biases exist exactly where this setting is true
    read_config: Callable[[CheckpointSettings], ModelConfig]
    write_config: Callable[[Any], dict[str, Any]]
    """Return their settings, including "architectures", or refuse our config."""
    unpack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors
    """Convert tensors with a different layout to ours."""
    pack: Callable[[Tensors, Any], Tensors] = lambda tensors, _: tensors  # the inverse of `unpack`

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

    def rename(self, tensors: Mapping[str, Tensor], settings: CheckpointSettings) -> Tensors:
        """Return the tensors without prefix and old names, and without biases that are not used."""
        given: Tensors = {}
        for name, tensor in tensors.items():
            name = re.sub(r"\.beta$", ".bias", name.removeprefix(self.prefix))
            given[re.sub(r"\.gamma$", ".weight", name)] = tensor  # norms of old checkpoints
        if self.bias_setting and not settings.get(self.bias_setting, True):
            given = {n: t for n, t in given.items() if not _matches(n, self.biasless)}
        return given

    def differing_copy(self, given: Tensors) -> str | None:
        """Return the name of a tensor that is stored twice with different values, if any."""
        for copy, original in self.copies.items():
            if (
                copy in given
                and original in given
                and not torch.equal(given[copy], given[original])
            ):
                return copy
        return None

    def from_hf(self, given: Tensors, config: ModelConfig, settings: CheckpointSettings) -> Tensors:
        """Convert renamed tensors to ours; refuse missing and unknown ones."""
        source = settings.file.parent
        tied = getattr(config, "tie", True) not in (False, "none")
        if tied and (copy := self.differing_copy(given)):
            raise InputError(
                f"{source} has {copy!r} and {self.copies[copy]!r} with different values, but "
                f"regard's {self.name} has one tensor for both, so the model cannot be imported."
            )
        given = self.unpack(given, config)
        absent = not self.bias_setting or not settings.get(self.bias_setting, True)
        biasless = self.biasless if absent else ()
        weights: Tensors = {}
        used = set()
        for ours, empty in build_on_meta(config).state_dict().items():
            theirs = self.hf_name(ours)
            used.add(theirs)
            if theirs in given:
                weights[ours] = given[theirs]
            elif _matches(theirs, biasless):
                weights[ours] = torch.zeros(empty.shape, dtype=next(iter(given.values())).dtype)
            else:
                needed = f"{theirs!r}, which a {self.name} with its settings needs"
                raise FileError(f"{source} has no tensor {needed}: {_AGAIN}.")
        unknown = [n for n in given if n not in used and not _matches(n, self.ignored)]
        if unknown:
            raise InputError(
                f"{source} has a tensor {unknown[0]!r}, which regard's {self.name} does not have, "
                "so the model cannot be imported."
            )
        return weights

    def to_hf(self, weights: Tensors, config: ModelConfig, architecture: str) -> Tensors:
        theirs = {self.hf_name(ours): tensor for ours, tensor in weights.items()}
        outside = (*self.heads.values(), *self.outside)
        prefix = "" if self.architectures[architecture] == "embedding" else self.prefix
        return {
            name if name.startswith(outside) else prefix + name: tensor.contiguous()
            for name, tensor in self.pack(theirs, config).items()
        }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def layer_names(ours: str, theirs: str, names: str) -> dict[str, str]:
    """Return our and their names of a layer's parts, in the order of `_LAYER`."""
    parts = zip(_LAYER, names.split(), strict=True)
    return {f"{ours}.layers.N.{part}": f"{theirs}.N.{name}" for part, name in parts}


def require(condition: bool, what: str) -> None:
    """Refuse to export a model unless a condition holds."""
    if not condition:
        raise InputError(f"this model cannot be exported: {what}.")


def require_fields(family: str, config: Any, **needed: Any) -> None:
    """Refuse to export a model whose config has other values in these fields."""
    for name, value in needed.items():
        given = getattr(config, name)
        require(given == value, f"{family} has {name} = {value!r}, not {given!r}")
