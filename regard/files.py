"""Read text line by line and map tensors; write files and folders atomically."""

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import FileError, InputError, make_parent
from regard.locks import hold_lock, remove_leftovers, temporary_folder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    import numpy as np

Item = TypeVar("Item")
STANDARD_INPUT = "-"
LONGEST_LINE = 16 * 2**20
"""Maximum bytes of a line; a file with a longer one is not treated as text."""

_COMPRESSED: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".zst": (b"\x28\xb5\x2f\xfd", zstd.open),
}
"""The first bytes of compressed files, and how to open them."""
_CHUNK = 2**18
_TEXT_FILES = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".md", ".en", ".de", ".ko", *_COMPRESSED)


@contextmanager
def file_errors(path: str | Path, action: str = "read") -> Iterator[None]:
    """Turn an OSError into a FileError that says that `path` cannot be read (or written)."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be {action}: {error.strerror or error}.") from error
    except Exception as error:
        # Not imported for every command: what safetensors raises when a disk is full.
        if action == "written" and type(error).__name__ == "SafetensorError":
            raise FileError(f"{path} cannot be {action}: {error}.") from error
        raise


def cache_folder() -> Path:
    """Return the folder for cached files: $REGARD_CACHE, or the user's cache directory."""
    from platformdirs import user_cache_path

    given = os.environ.get("REGARD_CACHE")
    return Path(given) if given else user_cache_path("regard", appauthor=False)


class _Borrowed(io.RawIOBase):
    """The bytes of another stream, which stays open when this one is closed."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))  # what is available, without waiting for more
        buffer[: len(data)] = data
        return len(data)


def _size(path: str | Path) -> int:
    with file_errors(path):
        return Path(path).stat().st_size


class _Bounded(io.RawIOBase):
    """A decompressed stream that is refused when it grows beyond all proportion."""

    def __init__(self, stream: Any, name: str, n_bytes: int):
        self._stream, self._name, self._rest = stream, name, n_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._rest -= count
        if self._rest < 0:
            raise FileError(
                f"{self._name} unpacks to more than {_MAX_RATIO} times its size, which text does "
                "not: unpack it yourself if you trust it."
            )
        return count


_MAX_RATIO, _ALWAYS_ALLOWED = 500, 2**28


@contextmanager
def open_bytes(path: str | Path) -> Iterator[io.BufferedIOBase]:
    """Open a plain, .gz or .zst file, or standard input for "-", as decompressed bytes.

    The contents decide, not the name; but a file named .gz that is not gzip is refused.
    """
    name = str(path)
    with file_errors(path):
        is_input = name == STANDARD_INPUT
        raw = _Borrowed(sys.stdin.buffer) if is_input else io.FileIO(path)
    with io.BufferedReader(raw, _CHUNK) as buffered:
        head = buffered.peek(4)[:4]
        for suffix, (magic, decompress) in _COMPRESSED.items():
            if head.startswith(magic):
                size = sys.maxsize if is_input else max(_ALWAYS_ALLOWED, _size(path) * _MAX_RATIO)
                with decompress(buffered) as stream:
                    yield io.BufferedReader(_Bounded(stream, name, size), _CHUNK)
                return
            if name.endswith(suffix):
                what = "has other contents" if head else "is empty"
                raise FileError(f"{name} is named {suffix} but {what}: download or rename it.")
        yield buffered


def is_text(given: str) -> bool:
    """Return True if `given` is a text; False for a file that exists and for "-", the input.

    Words without spaces that look like the path of a file, which does not exist, are refused.
    """
    if given == STANDARD_INPUT:
        return False
    try:
        there = Path(given).exists()
    except (OSError, ValueError):  # longer than a path can be
        there = False
    looks = os.sep in given or Path(given).suffix in _TEXT_FILES
    if not there and looks and not any(map(str.isspace, given)):
        raise FileError(
            f"{given} cannot be read because there is no such file: check the path; a text without "
            "spaces can be piped in."
        )
    return not there


@contextmanager
def stream_errors(path: str | Path, lines: list[int] | None = None) -> Iterator[None]:
    """Turn the errors of a broken stream into a FileError that says where it broke."""
    with file_errors(path):
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
            where = f"truncated after line {lines[0]:,}" if lines else "truncated"
            raise FileError(
                f"{path} is damaged or {where} ({error}): download it again."
            ) from error


def read_lines(path: str | Path) -> Iterator[bytes]:
    r"""Yield the lines of a file without their ends; only \n and \r\n end a line."""
    lines = [0]
    with stream_errors(path, lines), open_bytes(path) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            lines[0] += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"Line {lines[0]:,} of {path} is longer than {LONGEST_LINE:,} bytes; "
                    "is this a text file with one sentence per line?"
                )
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def chunks(
    items: Iterable[Item], size: int = 4096, *, first: int | None = None
) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`; with `first`, lists are that small first and double."""
    stream, now = iter(items), first or size
    while chunk := list(islice(stream, now)):
        yield chunk
        now = min(2 * now, size)


def map_tensors(file: Path) -> "dict[str, tuple[str, np.ndarray]]":
    """Map the tensors of a safetensors file: the stored type of each, and an array.

    Pages are read when they are used, and a tensor that is dropped needs no memory. Arrays can be
    written to without changing the file. Types that NumPy lacks are arrays of bytes.
    """
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        with file_errors(file), safe_open(file, "np"), file.open("rb") as stream:  # is checked
            n_header = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(n_header))
    except SafetensorError as error:
        what = "damaged, truncated or of another kind" if file.stat().st_size else "empty"
        raise FileError(f"{file} is {what} ({error}): download or save it again.") from error
    found, _ = {}, header.pop("__metadata__", None)
    for name, about in header.items():
        (start, end), kind = about["data_offsets"], about["dtype"]
        shape = about["shape"] if kind in _STORED_TYPES else [end - start]
        dtype, place = np.dtype(_STORED_TYPES.get(kind, "u1")), 8 + n_header + start
        mapped = np.memmap(file, dtype, "c", place, tuple(shape)) if start < end else []
        array = np.asarray(mapped, dtype).reshape(shape)
        stays = array.flags.aligned and array.nbytes >= 2**20  # smaller ones are read as fast
        found[name] = kind, array if stays else array.copy()
    return found


_STORED_TYPES = dict(F64="<f8", F32="<f4", F16="<f2", BF16="<u2", BOOL="?", U8="u1")  # noqa: C408
_STORED_TYPES |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}


def copy_decompressed(path: str | Path, copy: Path) -> None:
    """Write the decompressed bytes of a file, or of standard input for "-", to `copy`."""
    name = "standard input" if str(path) == STANDARD_INPUT else path
    with stream_errors(name), open_bytes(path) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)


def _finish(path: Path) -> None:
    """Set the default permissions of written files and wait until they are on the disk."""
    os.umask(mask := os.umask(0))
    for file in [*path.rglob("*"), path]:
        if file.is_file():  # mkstemp and safetensors write files that only the owner can read
            file.chmod(0o666 & ~mask)
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path that replaces `path` when the block ends without an error."""
    final = Path(path)
    with file_errors(final, "written"):
        _make_parent(final)
        remove_leftovers(final.parent)
        # A folder, because libraries write temporary files of their own next to a file.
        folder = temporary_folder(final)
        temporary = folder / final.name
        try:
            temporary.touch()
            yield temporary
            _finish(temporary)
            temporary.replace(final)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; refuse if another process writes the same folder.

    The lock is a file next to the folder, which is removed; a killed process keeps no lock.
    """
    file = folder.with_name(f".{folder.name}.lock")
    _make_parent(file)
    with hold_lock(file, folder):
        yield


def _make_parent(path: Path) -> None:
    make_parent(path, quiet=path.is_relative_to(cache_folder()))


def write_atomic(path: str | Path, data: str | bytes) -> None:
    """Write a file so that, at every moment, either the old or the new one is complete."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def atomic_folder(folder: str | Path, *, names: Collection[str] = ()) -> Iterator[Path]:
    """Give an empty folder that replaces `folder` when the block ends without an error.

    After a crash, the old or the new folder is complete: under its name or, between two renames,
    under the hidden name that `existing_folder` knows.

    Args:
        names: files and subfolders that the block writes; all others of the old folder are kept.
    """
    final = Path(folder).expanduser().resolve()
    fresh, old = (final.with_name(f".{final.name}.{end}") for end in ("new", "old"))
    with file_errors(final, "written"), writing(final):
        _finish_replacing(final, old, names)
        shutil.rmtree(fresh, ignore_errors=True)  # left by a process that was killed
        remove_leftovers(final.parent)
        fresh.mkdir()
        try:
            yield fresh
            _finish(fresh)
            if final.exists():
                final.rename(old)
            fresh.rename(final)
            _finish_replacing(final, old, names)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _finish_replacing(final: Path, old: Path, names: Collection[str]) -> None:
    """Complete an interrupted replacement: keep the files of `old` not in `names`, delete it."""
    if not old.exists():
        return
    if not final.exists():
        old.rename(final)
        return
    for path in list(old.iterdir()):
        if path.name not in names and not (final / path.name).exists():
            path.rename(final / path.name)
    shutil.rmtree(old)


def existing_folder(folder: str | Path) -> Path | None:
    """Return the folder, or the one that an interrupted `atomic_folder` left, or None."""
    path = Path(folder).expanduser()
    if path.is_dir():
        return path
    aside = path.with_name(f".{path.name}.old") if path.name else path
    return aside if aside.is_dir() else None


def cache_key(parts: dict[str, Any]) -> str:
    """Return a name that depends on these JSON values and nothing else."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def cached_folder(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, first filled by `make` in a temporary folder if it does not exist.

    Of several processes that ask at once, one runs `make` and the others wait for it.
    """
    if folder.is_dir():
        return folder
    with file_errors(folder, "written"):
        _make_parent(folder)
        with hold_lock(folder.parent / ".lock", folder, wait=True):
            if not folder.is_dir():
                with atomic_folder(folder) as fresh:
                    make(fresh)
    return folder
