"""Checkpoints from the Hugging Face hub, for those who are online."""

import re
from pathlib import Path

from regard.errors import FileError, MissingExtraError

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
