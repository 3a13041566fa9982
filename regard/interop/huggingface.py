"""A bundle as a folder that `transformers` loads, with the same results."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from regard.errors import InputError
from regard.files import atomic_folder, write_atomic
from regard.interop.bert import BERT, DISTILBERT
from regard.interop.families import CONFIG, WEIGHTS, Kind
from regard.interop.gpt2 import GPT2
from regard.interop.llama import LLAMA
from regard.interop.marian import MARIAN, PEGASUS
from regard.interop.vit import DEIT, VIT
from regard.model import Model
from regard.text.tokenizer import Tokenizer

_GENERATION, _PIXELS = "generation_config.json", "preprocessor_config.json"
_TOKENIZER, _TOKENIZER_CONFIG, _TARGET = "tokenizer.json", "tokenizer_config.json", "target"
_MODULES, _POOLING = "modules.json", "1_Pooling"
_NAMES = (
    *(WEIGHTS, CONFIG, _GENERATION, _PIXELS, _TOKENIZER, _TOKENIZER_CONFIG, _TARGET),
    *(_MODULES, _POOLING),
)
_ROLES = {
    "pad": ("pad_token",),
    "start": ("bos_token", "cls_token"),
    "end": ("eos_token", "sep_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}


def export_huggingface(model: Model, folder: str | Path) -> str:
    """Write a Hugging Face folder; what comes back is the name of the model's class there."""
    kind = _kind_for(model)
    config = model.config
    assert kind.write_config is not None
    settings = {"model_type": kind.model_types[0], **_common(model), **kind.write_config(config)}
    architecture = settings["architectures"][0]
    tensors = kind.to_theirs(model.module.state_dict(), config, architecture)
    with atomic_folder(folder, names=_NAMES) as fresh:
        save_file(tensors, fresh / WEIGHTS, metadata={"format": "pt"})
        _write_json(fresh / CONFIG, settings)
        if model.task in ("language", "translation"):
            _write_json(fresh / _GENERATION, _generation(model))
        if model.family == "vision":
            _write_json(fresh / _PIXELS, _pixels(model))
        if model.family == "encoder" and config.pool == "mean":
            _write_pooling(fresh, config.d_model)
        if model.tokenizer is not None:
            _write_tokenizer(fresh, model.tokenizer)
        if model.target_tokenizer is not None and model.target_tokenizer is not model.tokenizer:
            (fresh / _TARGET).mkdir()
            _write_tokenizer(fresh / _TARGET, model.target_tokenizer)
    return architecture


def _kind_for(model: Model) -> Kind:
    """The kind of model that is most like this one."""
    config, family = model.config, model.family
    if family == "encoder":
        return BERT if config.n_token_types else DISTILBERT
    if family == "decoder":
        return GPT2 if config.positions == "learned" else LLAMA
    if family == "vision":
        return VIT if config.distillation == "none" else DEIT
    if family == "transformer":
        return MARIAN if config.norm == "post" else PEGASUS
    raise InputError(
        f"this model cannot be exported: transformers has no family like {family}; encoder, "
        "decoder, vision and transformer models can be exported."
    )


def _common(model: Model) -> dict[str, Any]:
    """Settings that all kinds have."""
    common: dict[str, Any] = {"dtype": "float32"}
    if model.family == "vision":
        common |= {} if model.config.n_classes is None else _named_classes(model)
        return common
    common |= {"vocab_size": model.config.n_vocab, **_ids(model)}
    if getattr(model.config, "n_classes", None) is not None:
        common |= _named_classes(model)
    return common


def _named_classes(model: Model) -> dict[str, Any]:
    labels = model.labels or tuple(f"LABEL_{i}" for i in range(model.config.n_classes))
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _ids(model: Model) -> dict[str, int | None]:
    """The ids of the tokens that stand at the ends of texts."""
    tokenizer, pad_id = model.target_tokenizer, model.config.pad_id
    start_id = None if tokenizer is None else tokenizer.start_id
    end_id = None if tokenizer is None else tokenizer.end_id
    ids = {"pad_token_id": pad_id, "bos_token_id": start_id, "eos_token_id": end_id}
    if model.family == "transformer":
        ids["decoder_start_token_id"] = pad_id if start_id is None else start_id
        ids["forced_eos_token_id"] = end_id
    return ids


def _generation(model: Model) -> dict[str, Any]:
    """How text is written: the start token and padding are never written again."""
    ids = _ids(model)
    if model.family != "transformer":
        return ids
    never = {ids["pad_token_id"], ids["decoder_start_token_id"]} - {ids["eos_token_id"]}
    return {**ids, "suppress_tokens": [id for id in never if id is not None]}


def _pixels(model: Model) -> dict[str, Any]:
    """How images are read: brought to the model's size and normalized."""
    config, scale = model.config, model.pixels
    half = [0.5] * config.n_channels
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": config.image_size, "width": config.image_size},
        "resample": 3,  # bicubic
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": half if scale is None else list(scale.mean),
        "image_std": half if scale is None else list(scale.deviation),
    }


def _write_pooling(folder: Path, d_model: int) -> None:
    """Tell sentence-transformers that the mean of all vectors stands for a text."""
    kinds = {"": "Transformer", _POOLING: "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / _POOLING).mkdir()
    _write_json(folder / _MODULES, modules)
    pooling = {"word_embedding_dimension": d_model, "pooling_mode_mean_tokens": True}
    _write_json(folder / _POOLING / CONFIG, pooling | {"pooling_mode_cls_token": False})


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    write_atomic(folder / _TOKENIZER, tokenizer.backend.to_str(pretty=True))
    tokens = {key: token for role, token in tokenizer.roles.items() for key in _ROLES[role]}
    _write_json(
        folder / _TOKENIZER_CONFIG,
        {"tokenizer_class": "PreTrainedTokenizerFast", **tokens},
    )


def _write_json(file: Path, contents: Any) -> None:
    write_atomic(file, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")
