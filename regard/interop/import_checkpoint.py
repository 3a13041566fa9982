"""Import checkpoints of other systems: Hugging Face folders, hub names, llama2.c binaries."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.errors import FileError, InputError, MissingExtraError
from regard.interop.bert import BERT, DISTILBERT, read_sentence_modules
from regard.interop.decoders import GPT2, LLAMA
from regard.interop.families import (
    CheckpointFamily,
    CheckpointSettings,
    Tensors,
    read_settings,
    read_tensors,
)
from regard.interop.llama2c import is_llama2c, read_llama2c
from regard.interop.marian import MARIAN, PEGASUS
from regard.interop.sentencepiece import llama_tokenizer, marian_tokenizer, read_vocabulary
from regard.interop.vit import DEIT, VIT, read_preprocessing
from regard.model import Model
from regard.model_folder import WEIGHTS, Card
from regard.models.config import ModelConfig, build_from_weights
from regard.models.decoder import DecoderConfig
from regard.models.encoder import EncoderConfig
from regard.models.vision import VisionConfig
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import read_ids

FAMILIES = (BERT, DISTILBERT, GPT2, LLAMA, VIT, DEIT, MARIAN, PEGASUS)
_BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}
_SUPPORTED = f"{', '.join(_BY_TYPE)} and llama2.c binaries"
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.spm", "*.model", "README.md"]

Tokenizers = tuple[Tokenizer | None, Tokenizer | None]


def import_checkpoint(
    source: str | Path,
    *,
    tokenizer: str | Path | None = None,
    dtype: torch.dtype | None = torch.float32,
) -> Model:
    """Import a checkpoint of another system, with its tokenizer and a model card.

    Args:
        dtype: the type of the weights in memory; None keeps the stored type.
        source: a Hugging Face folder, a hub name or a llama2.c binary.
        tokenizer: a tokenizer file or folder to use instead of the checkpoint's own.
    """
    if not isinstance(source, str | Path):
        raise InputError(f"a {type(source).__name__} is not a checkpoint: give a path or a name.")
    path = Path(source).expanduser()
    given = None if tokenizer is None else Path(tokenizer).expanduser()
    if path.is_file():
        if not is_llama2c(path):
            raise InputError(
                f"{path} is not a llama2.c binary: give the folder of another checkpoint. regard "
                f"imports {_SUPPORTED}, and does not open pickled files."
            )
        model = read_llama2c(path, tokenizer=given)
    else:
        folder = path if path.is_dir() else download(str(source))
        model = _import_folder(folder, given, dtype)
        model.checkpoint = folder if (folder / WEIGHTS).is_file() else None
    origin = {"imported from": path.resolve().name if path.exists() else str(source)}
    model.card = replace(model.card, others={**model.card.others, **origin})
    return model


def download(name: str) -> Path:
    """Download a checkpoint from the Hugging Face hub, unless it is cached; return its folder."""
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", name):
        raise FileError(f"{name} does not exist: check the path.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not a folder; to download it from the Hugging Face hub, install "
            "huggingface_hub: pip install 'regard[interop]'."
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:  # the library and its transport raise many types
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FileError(
            f"{name} is not a folder and cannot be downloaded from the Hugging Face hub "
            f"({why}): check the name and the network, or give a local folder."
        ) from error


def identify(settings: CheckpointSettings) -> tuple[CheckpointFamily, CheckpointSettings]:
    """Return the family of a checkpoint, and its settings with the default architecture added."""
    family = _BY_TYPE.get(settings.model_type)
    if family is None:
        raise InputError(
            f"{settings.file} has the model type {settings.model_type!r}, which regard does not "
            f"import; it imports {_SUPPORTED}."
        )
    if not settings.architecture:
        default = [next(iter(family.architectures))]
        settings = replace(settings, values={**settings.values, "architectures": default})
    if settings.architecture not in family.architectures:
        raise InputError(
            f"{settings.file} has the architecture {settings.architecture}, which regard does not "
            f"import; of {family.name} it imports {', '.join(family.architectures)}."
        )
    return family, settings


def _import_folder(folder: Path, tokenizer: Path | None, dtype: torch.dtype | None) -> Model:
    family, settings = identify(read_settings(folder))
    config = family.read_config(settings)
    tensors = family.rename(read_tensors(folder), settings)
    if isinstance(config, DecoderConfig) and config.tie and family.differing_copy(tensors):
        config = replace(config, tie=False)  # transformers uses the stored projection, too
    if family.architectures[settings.architecture] == "embedding":
        config = _without_missing_pooler(config, tensors)
    weights = family.from_hf(tensors, config, settings)
    settings.check_rest(family.name)
    task = family.architectures[settings.architecture]
    labels = settings.get("id2label") if task == "classification" else None
    if labels is not None:
        labels = tuple(str(labels[id]) for id in sorted(labels, key=int))
    pixels = None
    if isinstance(config, VisionConfig):
        pixels = read_preprocessing(folder, config, family.name)
    source, target = _read_tokenizers(folder, settings)
    if tokenizer is not None:
        source, target = Tokenizer.load(tokenizer), None
    return Model(
        module=build_from_weights(config, weights, dtype=dtype, source=folder),
        task=task,
        tokenizer=source,
        target_tokenizer=target,
        labels=labels,
        pixels=pixels,
        card=read_checkpoint_card(folder),
        extras=sentence_extras(folder),
    )


def _without_missing_pooler(config: ModelConfig, tensors: Tensors) -> ModelConfig:
    """Return the config without a pooler if the checkpoint was saved without one."""
    has_pooler = any(name.startswith("pooler.") for name in tensors)
    if not isinstance(config, EncoderConfig | VisionConfig) or has_pooler:
        return config
    if isinstance(config, VisionConfig):
        config = replace(config, d_pooler=None)
    return replace(config, pooler="none")


def sentence_extras(folder: Path) -> dict[str, Any]:
    """Return what `model.embed` must do after pooling, if the checkpoint says so."""
    found = read_sentence_modules(folder)
    if found is None:
        return {}
    longest = {} if found.longest is None else {"longest_text": found.longest}
    return {"normalize": found.normalize, **longest}


def _read_tokenizers(folder: Path, settings: CheckpointSettings) -> Tokenizers:
    """Read the tokenizer of a folder, and the target's if it has a separate one."""
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.txt").is_file():
        target = folder / "target"  # written by export_huggingface
        return (
            Tokenizer.load(folder),
            Tokenizer.load(target) if (target / "tokenizer.json").is_file() else None,
        )
    if (folder / "source.spm").is_file():
        return _read_marian_tokenizers(folder, settings)
    if (folder / "merges.txt").is_file():
        return Tokenizer.load(folder), None
    if (folder / "tokenizer.model").is_file():
        vocabulary = read_vocabulary(folder / "tokenizer.model")
        return llama_tokenizer(vocabulary.pieces, dummy_prefix=vocabulary.dummy_prefix), None
    return None, None


def _read_marian_tokenizers(folder: Path, settings: CheckpointSettings) -> Tokenizers:
    """Read two SentencePiece vocabularies with one table of ids, or with one for each."""
    target_table = folder / "target_vocab.json"
    ids = read_ids(folder / "vocab.json")
    target_ids = read_ids(target_table) if target_table.is_file() else ids
    names = {id: name for name, id in target_ids.items()}
    start = names.get(settings.get("decoder_start_token_id", settings.get("pad_token_id", -1)))
    end = names.get(settings.get("eos_token_id", 0))
    if start is None or end is None:
        raise FileError(
            f"{settings.file} refers to start and end tokens that {folder / 'vocab.json'} does not "
            "have: download the checkpoint again."
        )
    source, target = (read_vocabulary(folder / f"{side}.spm") for side in ("source", "target"))
    return (
        marian_tokenizer(source, ids, start=None, end=end),
        marian_tokenizer(target, target_ids, start=start, end=end),
    )


def read_checkpoint_card(folder: Path) -> Card:
    """Build a card with the license that the checkpoint's README states."""
    file = folder / "README.md"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    license = re.search(r"^license:\s*(\S+)\s*$", text, re.MULTILINE)
    return Card(license=license.group(1) if license else "", data="see the original checkpoint")
