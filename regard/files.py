"""Files of text, packed or plain, read line by line; files written whole or not at all."""

import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import FileError, InputError

STANDARD_INPUT = "-"
LONGEST_LINE = 16 * 2**20
"""Bytes of a line beyond which the file is taken for something else than text."""

_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
_CHUNK = 2**18


class _Borrowed(io.RawIOBase):
    """Another stream's bytes; closing it leaves the other open."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        taken = self._stream.read1(len(buffer))  # what is there, without waiting for more
        buffer[: len(taken)] = taken
        return len(taken)


class _GzipStream(gzip.GzipFile):
    """The bytes of a .gz stream; unlike gzip's own reader it closes the packed one too."""

    def __init__(self, packed: io.BufferedIOBase):
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self):
        super().close()
        self._packed.close()


class _ZstdStream(io.RawIOBase):
    """The bytes of a .zst stream; unlike zstandard's own reader it notices a missing end."""

    def __init__(self, packed: io.BufferedIOBase):
        import zstandard

        self._packed = packed
        self._context = zstandard.ZstdDecompressor()
        self._frame = self._context.decompressobj()
        self._begun = False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._refill():
            pass
        taken = self._ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self._ready = self._ready[len(taken) :]
        return len(taken)

    def _refill(self) -> bool:
        """Whether there may be more bytes."""
        left = self._frame.unused_data if self._frame.eof else b""
        packed = left or self._packed.read(_CHUNK)
        if self._frame.eof and packed:  # another frame follows
            self._frame = self._context.decompressobj()
            self._begun = False
        if not packed:
            if self._begun and not self._frame.eof:
                raise EOFError("the last frame has no end")
            return False
        self._begun = True
        self._ready = self._frame.decompress(packed)
        return True

    def close(self):
        self._packed.close()
        super().close()


def open_bytes(path: str | Path) -> io.BufferedIOBase:
    """The unpacked bytes of a plain, .gz or .zst file, or of standard input for "-".

    What a file holds decides, not its name; but a file called .gz that is not one is refused.
    """
    name = str(path)
    if name == STANDARD_INPUT:
        raw = io.BufferedReader(_Borrowed(sys.stdin.buffer), _CHUNK)
    else:
        try:
            raw = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
        except OSError as error:
            raise FileError(f"{name} cannot be read: {error.strerror}.") from error
    head = raw.peek(4)[:4]
    for suffix, magic in _MAGIC.items():
        if head.startswith(magic):
            return _unpacked(raw, suffix)
        if name.endswith(suffix):
            raw.close()
            what = "is empty" if not head else "holds something else"
            raise FileError(
                f"{name} is called {suffix} but {what}: fetch or pack it again, or rename it."
            )
    return raw


def _unpacked(raw: io.BufferedIOBase, suffix: str) -> io.BufferedIOBase:
    if suffix == ".zst":
        return io.BufferedReader(_ZstdStream(raw), _CHUNK)
    return _GzipStream(raw)


@contextmanager
def damage_named(path: str | Path, lines: list[int] | None = None) -> Iterator[None]:
    """Turn the errors of a broken stream into one sentence that says where it broke."""
    import zstandard

    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        where = f" after line {lines[0]:,}" if lines else ""
        raise FileError(
            f"{path} is damaged or cut off{where} ({error}): fetch it again."
        ) from error
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_lines(path: str | Path) -> Iterator[bytes]:
    r"""The lines of a file without their ends, one at a time; only \n and \r\n end a line."""
    lines = [0]
    with damage_named(path, lines), open_bytes(path) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            lines[0] += 1
            if len(line) > LONGEST_LINE:
                raise InputError(
                    f"Line {lines[0]:,} of {path} is longer than {LONGEST_LINE:,} bytes; "
                    "is this a text file with one sentence to a line?"
                )
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def copy_unpacked(path: str | Path, copy: Path) -> None:
    """Write the unpacked bytes of a file, or of standard input for "-", to another one."""
    called = "standard input" if str(path) == STANDARD_INPUT else path
    with damage_named(called), open_bytes(path) as given, copy.open("wb") as stream:
        shutil.copyfileobj(given, stream)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    final = Path(path)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.", suffix=".tmp")
        os.close(handle)
    except OSError as error:
        raise FileError(f"{final} cannot be written: {error.strerror}.") from error
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(usual_rights())  # mkstemp gives nobody else the right to read
        temporary.replace(final)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{final} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def usual_rights() -> int:
    """Who may read and write a new file, by the rules of this process."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write a file that is, at every moment, either the old one or the new one."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
