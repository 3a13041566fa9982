"""Open a folder of the library transformers, imported if possible, otherwise as it is.

Code of a checkpoint is never run, and pickled weights are never read.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import FileError, InputError, MissingExtraError
from regard.interop.any_model import KNOWN, adapt, convert_tokenizer, first_line
from regard.interop.bert import read_sentence_modules
from regard.interop.families import read_settings
from regard.interop.import_checkpoint import (
    identify,
    import_checkpoint,
    read_checkpoint_card,
    sentence_extras,
)
from regard.model import Model
from regard.model_folder import weights_file
from regard.text.tokenizer import Tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "merges.txt")


def open_folder(folder: Path, *, tokenizer: Any = None, processor: Any = None) -> Model:
    """Open a folder of the library transformers: imported if possible, otherwise as it is."""
    if _has_importer(folder) and processor is None:
        if tokenizer is None or isinstance(tokenizer, str | Path):
            return import_checkpoint(folder, tokenizer=tokenizer)
        model = import_checkpoint(folder)
        return replace(model, tokenizer=convert_tokenizer(tokenizer), target_tokenizer=None)
    module = load_module(folder)
    given = _read_tokenizer(folder) if tokenizer is None else tokenizer
    model = adapt(module, tokenizer=given, processor=processor or _read_processor(folder))
    origin = {"opened from": folder.resolve().name}
    model.card = replace(read_checkpoint_card(folder), others=origin)
    if (sentences := read_sentence_modules(folder)) is not None:
        model.module.config = replace(model.config, pool=sentences.pool)
        model.extras |= sentence_extras(folder)
    return model


def _has_importer(folder: Path) -> bool:
    try:
        family, settings = identify(read_settings(folder))
        family.read_config(settings)
    except InputError:  # another family, or settings that only the original honors
        return False
    return True


def load_module(folder: Path, *, attention: str | None = None) -> nn.Module:
    """Build the class that config.json names, with all of its weights.

    Args:
        attention: an implementation of transformers, such as "eager"; its own choice by default.
    """
    transformers = _import_transformers()
    settings = read_settings(folder)
    kind = getattr(transformers, settings.architecture, None)
    if kind is None or not hasattr(kind, "from_pretrained"):
        raise InputError(
            f"{settings.file} has the architecture {settings.architecture or 'of no name'}, which "
            "the installed transformers does not have, and regard never runs code of a checkpoint: "
            f"give a model of an architecture of transformers ({KNOWN})."
        )
    if not any(folder.glob("*.safetensors")):
        weights_file(folder)  # says what is wrong
    try:
        with _quiet(transformers):
            module, info = kind.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                dtype=torch.float32,
                attn_implementation=attention,
            )
    except Exception as error:  # the library raises many types
        raise FileError(
            f"{folder} cannot be opened by transformers: {first_line(error)}."
        ) from error
    _check_weights(folder, module, info)
    return module.eval()


def _check_weights(folder: Path, module: nn.Module, info: Mapping[str, Any]) -> None:
    """Refuse weights that config.json does not describe."""
    known = {re.sub(r"\d+", "#", name) for name in module.state_dict()}
    extra = [name for name in info["unexpected_keys"] if re.sub(r"\d+", "#", name) in known]
    lost = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    if lost or extra:
        what = f"no fitting {lost[0]}" if lost else f"{min(extra)}, which is too much"
        raise FileError(
            f"the weights of {folder} do not match its config.json: they have {what} "
            f"({len(lost) + len(extra)} such tensors): download the checkpoint again."
        )


def _read_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a folder; None if it has none."""
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return Tokenizer.load(folder)
    if not any(folder.glob("*.model")) and not any(folder.glob("*vocab*")):
        return None
    transformers = _import_transformers()
    try:
        with _quiet(transformers):
            found = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise FileError(
            f"the tokenizer of {folder} cannot be read: {first_line(error)}."
        ) from error
    return convert_tokenizer(found)


def _read_processor(folder: Path) -> Any:
    """Return the image processor of a folder; None if it has none."""
    if not (folder / "preprocessor_config.json").is_file():
        return None
    transformers = _import_transformers()
    try:
        with _quiet(transformers):
            return transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise FileError(
            f"{folder / 'preprocessor_config.json'} cannot be used: {first_line(error)}."
        ) from error


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            "to open this model, install transformers: pip install 'regard[interop]'."
        ) from error
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from printing progress and advice."""
    log = transformers.utils.logging
    level, shown = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if shown:
            log.enable_progress_bar()
