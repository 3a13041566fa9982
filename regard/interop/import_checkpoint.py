"""Checkpoints of other systems become bundles: local folders, hub names, llama2.c binaries."""

import re
from dataclasses import replace
from pathlib import Path

from regard.data.images import Normalization, parse_normalization
from regard.errors import FileError, InputError, MissingExtraError
from regard.interop.bert import BERT, DISTILBERT
from regard.interop.families import Kind, Settings, read_settings, read_tensors
from regard.interop.gpt2 import GPT2
from regard.interop.llama import LLAMA
from regard.interop.llama2c import is_llama2c, read_llama2c
from regard.interop.marian import MARIAN, PEGASUS
from regard.interop.sentencepiece import llama_tokenizer, marian_tokenizer, read_vocabulary
from regard.interop.vit import DEIT, VIT
from regard.model import Model
from regard.model_folder import Card
from regard.models.weights import build_from_weights
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_files import read_json

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ["*.json", "*.safetensors", "*.txt", "*.spm", "*.model", "README.md"]


def fetch(name: str) -> Path:
    """The folder of a checkpoint that the hub has, fetched if it is not here yet."""
    if not _NAME.fullmatch(name) or name.startswith((".", "/")):
        raise FileError(f"there is no file or folder {name}: check the path.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtraError(
            f"there is no folder {name}; if it is the name of a checkpoint on the Hugging Face hub,"
            " fetching it needs huggingface_hub: pip install 'regard[interop]'."
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # the library and its transport raise many kinds
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FileError(
            f"there is no folder {name}, and the Hugging Face hub did not give a checkpoint of "
            f"this name ({why}): check the name and the network, or name a local folder."
        ) from error


KINDS: tuple[Kind, ...] = (BERT, DISTILBERT, GPT2, LLAMA, VIT, DEIT, MARIAN, PEGASUS)


def spoken_kinds() -> str:
    """All kinds that can be imported, for the end of a sentence."""
    types = ", ".join(model_type for kind in KINDS for model_type in kind.model_types)
    return f"{types} and llama2.c binaries"


def identify(settings: Settings) -> tuple[Kind, Settings]:
    """The kind of a checkpoint, or a refusal that lists those there are.

    Settings that do not name the head get that of the kind's plainest model.
    """
    kinds = {model_type: kind for kind in KINDS for model_type in kind.model_types}
    if settings.kind not in kinds:
        raise InputError(
            f"{settings.file} describes a model of the kind {settings.kind!r}, which regard does "
            f"not import; it imports {spoken_kinds()}."
        )
    kind = kinds[settings.kind]
    if not settings.architecture:
        plainest = [next(iter(kind.architectures))]
        settings = replace(settings, values={**settings.values, "architectures": plainest})
    if settings.architecture not in kind.architectures:
        raise InputError(
            f"{settings.file} describes a {settings.architecture}, whose head regard does not "
            f"have; of {kind.name} it imports {', '.join(kind.architectures)}."
        )
    return kind, settings


Tokenizers = tuple[Tokenizer | None, Tokenizer | None]


def import_checkpoint(source: str | Path, *, tokenizer: str | Path | None = None) -> Model:
    """The model in a checkpoint of another system, with its tokenizer and a card.

    Args:
        source: a Hugging Face folder, a hub name or a llama2.c binary.
        tokenizer: a file or folder to take the tokenizer from, if not from the checkpoint.
    """
    path = Path(source).expanduser()
    own = None if tokenizer is None else Path(tokenizer).expanduser()
    if path.is_file():
        model = _import_file(path, own)
    else:
        model = _import_folder(path if path.is_dir() else fetch(str(source)), own)
    origin = {"imported from": path.resolve().name if path.exists() else str(source)}
    model.card = replace(model.card, others={**model.card.others, **origin})
    return model


def _import_file(file: Path, tokenizer: Path | None) -> Model:
    if not is_llama2c(file):
        raise InputError(
            f"{file} is no llama2.c binary, and other checkpoints are folders: name the folder. "
            f"regard imports {spoken_kinds()}, and never opens pickled files."
        )
    return read_llama2c(file, tokenizer=tokenizer)


def _import_folder(folder: Path, tokenizer: Path | None) -> Model:
    kind, settings = identify(read_settings(folder))
    config = kind.read_config(settings)
    weights = kind.to_ours(read_tensors(folder), config, folder)
    task = kind.architectures[settings.architecture]
    source, target = _read_tokenizers(folder, settings)
    if tokenizer is not None:
        source, target = Tokenizer.load(tokenizer), None
    return Model(
        module=build_from_weights(config, weights, source=folder),
        task=task,
        tokenizer=source,
        target_tokenizer=target,
        labels=_labels(settings) if task == "classification" else None,
        pixels=_read_normalization(folder),
        card=_read_card(folder),
    )


def _read_tokenizers(folder: Path, settings: Settings) -> Tokenizers:
    """The tokenizer of a folder, and the target's where it has one of its own."""
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.txt").is_file():
        target = folder / "target"  # where we write it
        return (
            Tokenizer.load(folder),
            Tokenizer.load(target) if (target / "tokenizer.json").is_file() else None,
        )
    if (folder / "source.spm").is_file():
        return _read_marian(folder, settings)
    if (folder / "merges.txt").is_file():
        return Tokenizer.load(folder), None
    if (folder / "tokenizer.model").is_file():
        vocabulary = read_vocabulary(folder / "tokenizer.model")
        return llama_tokenizer(vocabulary.pieces, dummy_prefix=vocabulary.dummy_prefix), None
    return None, None


def _read_marian(folder: Path, settings: Settings) -> Tokenizers:
    """Two vocabularies of pieces with one table of ids, or one for each."""
    own_table = folder / "target_vocab.json"
    ids = read_json(folder / "vocab.json")
    target_ids = read_json(own_table) if own_table.is_file() else ids
    names = {id: name for name, id in target_ids.items()}
    start = names.get(settings.get("decoder_start_token_id", settings.get("pad_token_id")))
    end = names.get(settings.get("eos_token_id", 0))
    if start is None or end is None:
        raise FileError(
            f"{settings.file} names start and end tokens that {folder / 'vocab.json'} does not "
            "have: fetch the checkpoint again."
        )
    source, target = (read_vocabulary(folder / f"{side}.spm") for side in ("source", "target"))
    return (
        marian_tokenizer(source, ids, start=None, end=end),
        marian_tokenizer(target, target_ids, start=start, end=end),
    )


def _labels(settings: Settings) -> tuple[str, ...] | None:
    """The names of the classes, in the order of their numbers."""
    table = settings.get("id2label")
    return None if table is None else tuple(str(table[id]) for id in sorted(table, key=int))


def _read_normalization(folder: Path) -> Normalization | None:
    """How pixels are scaled before the model reads them."""
    file = folder / "preprocessor_config.json"
    stated = read_json(file) if file.is_file() else {}
    if not stated.get("do_normalize", True) or "image_mean" not in stated:
        return None
    return parse_normalization(
        {"mean": stated["image_mean"], "deviation": stated.get("image_std", [])}
    )


def _read_card(folder: Path) -> Card:
    """A card with the license that the checkpoint's own one states."""
    file = folder / "README.md"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    license = re.search(r"^license:\s*(\S+)\s*$", text, re.MULTILINE)
    return Card(license=license.group(1) if license else "", data="see the original checkpoint")
