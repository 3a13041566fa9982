"""Folders that are made once, whole or not at all, and found again by what they were made from."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import FileError, RegardError


def key_of(parts: dict[str, Any]) -> str:
    """A name for whatever is made from these parts and from nothing else."""
    described = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made by `make` if it is not there yet.

    `make` works in a temporary folder that takes the name when it is complete. Several processes
    may ask at once: one makes it, the others wait.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / ".lock"):
            if not folder.is_dir():
                _make(folder, make)
    except OSError as error:
        if isinstance(error, RegardError):
            raise
        raise FileError(f"{folder} cannot be written: {error.strerror or error}.") from error
    return folder


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # somebody was stopped while making it
    unfinished.mkdir()
    try:
        make(unfinished)
        for path in unfinished.iterdir():
            with path.open("rb") as written:
                os.fsync(written.fileno())
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes that lock the same path; a process that dies lets go of it."""
    import fcntl

    with path.open("w") as handle:  # closing it unlocks it
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
