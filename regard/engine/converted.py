"""Models as CTranslate2 reads them, converted once and kept in the user's cache."""

import hashlib
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from regard.bundle.cache import cache_folder
from regard.bundle.folder import (
    CONFIG,
    TARGET_TOKENIZER,
    TOKENIZER,
    read_description,
    read_tokenizers,
    weights_file,
)
from regard.engine.vocabulary import never_written
from regard.errors import FileError
from regard.text.files import write_whole

MODEL, VOCABULARY_MAP = "model.bin", "vmap.txt"
_VERSION = "2"
"""Changes when the same folder is converted differently."""


def converted(folder: Path, *, int8: bool, vocabulary_map: str | None = None) -> Path:
    """The model of a folder as CTranslate2 reads it, converted now if it was not before.

    Args:
        vocabulary_map: a shortlist to put beside it.
    """
    kind = "int8" if int8 else "float32"
    if vocabulary_map is not None:
        kind += "-" + hashlib.sha256(vocabulary_map.encode()).hexdigest()[:16]
    place = cache_folder() / "ctranslate2" / f"{fingerprint(folder)}-{kind}"
    if (place / MODEL).is_file():
        return place
    from regard.interop.ctranslate2 import convert

    # Of several processes that convert at once, each has a folder of its own; one of them stays.
    fresh = _room_beside(place)
    try:
        convert(
            folder,
            fresh / "model",
            quantization="int8" if int8 else "float32",
            never=_never(folder),
        )
        if vocabulary_map is not None:
            write_whole(fresh / "model" / VOCABULARY_MAP, vocabulary_map)
        (fresh / "model").rename(place)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        if not (place / MODEL).is_file():  # and nobody else has put it there
            raise FileError(f"{place} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


def _never(folder: Path) -> list[int]:
    """What no translation holds; engines are slower if they must be told each time."""
    described = read_description(folder)
    own, theirs = read_tokenizers(folder, described)
    target = theirs or own
    return [] if target is None else never_written(target, int(described.model["n_vocab"]))


def fingerprint(folder: Path) -> str:
    """A name that changes with the weights, the configuration or a tokenizer.

    Large files are read once: afterwards their size and time tell whether they are the same.
    """
    files = [folder / CONFIG, weights_file(folder), folder / TOKENIZER, folder / TARGET_TOKENIZER]
    there = [file.resolve() for file in files if file.is_file()]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in there]
    stamp = cache_folder() / "seen" / hashlib.sha256(repr((_VERSION, stats)).encode()).hexdigest()
    try:
        return stamp.read_text("ascii")
    except OSError:
        name = _contents(there)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(stamp, name)
    return name


def _contents(files: list[Path]) -> str:
    digest = hashlib.sha256(_VERSION.encode())
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]


def _room_beside(place: Path) -> Path:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=place.parent, prefix=".making-"))
    except OSError as error:
        raise FileError(
            f"{place.parent} cannot be written ({error.strerror}), and converted models are kept "
            "there: name another place in the environment as REGARD_CACHE."
        ) from error
