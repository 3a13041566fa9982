"""Export models as folders that `transformers` loads."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from regard.errors import InputError
from regard.files import atomic_folder, write_atomic
from regard.interop.bert import BERT, DISTILBERT
from regard.interop.decoders import GPT2, LLAMA
from regard.interop.families import CheckpointFamily
from regard.interop.marian import MARIAN, PEGASUS
from regard.interop.vit import DEIT, PREPROCESSOR, VIT, write_preprocessing
from regard.model import Model
from regard.model_folder import CONFIG, TOKENIZER, WEIGHTS, write_tokenizer
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import ROLE_KEYS

_GENERATION = "generation_config.json"
_TOKENIZER_CONFIG, _TARGET = "tokenizer_config.json", "target"
_MODULES, _POOLING = "modules.json", "1_Pooling"
_TEXT = (_GENERATION, TOKENIZER, _TOKENIZER_CONFIG, _TARGET, _MODULES, _POOLING)


def export_huggingface(model: Model, folder: str | Path) -> str:
    """Write a Hugging Face folder; return the name of its model class."""
    family, config = _family_of(model), model.config
    settings = {
        "model_type": family.model_types[0],
        "dtype": "float32",
        **_special_ids(model),
        **_classes(model),
        **family.write_config(config),
    }
    architecture = settings["architectures"][0]
    tensors = family.to_hf(model.module.state_dict(), config, architecture)
    with atomic_folder(folder, names=(WEIGHTS, CONFIG, PREPROCESSOR, *_TEXT)) as fresh:
        save_file(tensors, fresh / WEIGHTS, metadata={"format": "pt"})
        _write_json(fresh / CONFIG, settings)
        if model.task in ("language", "translation"):
            _write_json(fresh / _GENERATION, _generation(model))
        if model.family == "vision":
            _write_json(fresh / PREPROCESSOR, write_preprocessing(config, model.pixels))
        if model.family == "encoder" and config.pool == "mean":
            _write_pooling(fresh, config.d_model)
        if model.tokenizer is not None:
            _write_tokenizer(fresh, model.tokenizer)
        if model.target_tokenizer is not None and model.target_tokenizer is not model.tokenizer:
            (fresh / _TARGET).mkdir()
            _write_tokenizer(fresh / _TARGET, model.target_tokenizer)
    return architecture


def _family_of(model: Model) -> CheckpointFamily:
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
        f"this model cannot be exported: transformers has no family like {family}; it has encoder, "
        "decoder, vision and transformer models."
    )


def _classes(model: Model) -> dict[str, Any]:
    n_classes = getattr(model.config, "n_classes", None)
    if n_classes is None:
        return {}
    labels = model.labels or tuple(f"LABEL_{i}" for i in range(n_classes))
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def _special_ids(model: Model) -> dict[str, int | None]:
    if model.family == "vision":
        return {}
    tokenizer, pad_id, start_id, end_id = model.target_tokenizer, model.config.pad_id, None, None
    if tokenizer is not None:
        start_id, end_id = tokenizer.start_id, tokenizer.end_id
    ids = {"pad_token_id": pad_id, "bos_token_id": start_id, "eos_token_id": end_id}
    if model.family == "transformer":
        ids["decoder_start_token_id"] = pad_id if start_id is None else start_id
        ids["forced_eos_token_id"] = end_id
    return ids


def _generation(model: Model) -> dict[str, Any]:
    """Return the generation settings, which suppress padding and the start token."""
    ids = _special_ids(model)
    if model.family != "transformer":
        return ids
    suppressed = {ids["pad_token_id"], ids["decoder_start_token_id"]} - {ids["eos_token_id"]}
    return {**ids, "suppress_tokens": [id for id in suppressed if id is not None]}


def _write_pooling(folder: Path, d_model: int) -> None:
    """Write the files that make sentence-transformers use the mean of all token vectors."""
    classes = {"": "Transformer", _POOLING: "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(classes.items())
    ]
    (folder / _POOLING).mkdir()
    _write_json(folder / _MODULES, modules)
    pooling = {"word_embedding_dimension": d_model, "pooling_mode_mean_tokens": True}
    _write_json(folder / _POOLING / CONFIG, pooling | {"pooling_mode_cls_token": False})


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    write_tokenizer(folder / TOKENIZER, tokenizer)
    tokens = {key: token for role, token in tokenizer.roles.items() for key in ROLE_KEYS[role]}
    described = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    _write_json(folder / _TOKENIZER_CONFIG, described)


def _write_json(file: Path, contents: Any) -> None:
    write_atomic(file, json.dumps(contents, indent=1, ensure_ascii=False) + "\n")
