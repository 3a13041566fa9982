"""An output file that grows record by record, and with which an interrupted run can go on.

What is in the file decides where a run goes on, so nothing is lost or doubled however it ended. A
small file beside it remembers how the run was begun, so that no other run goes on with it.
"""

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import FileError, InputError
from regard.files import (
    LONGEST_LINE,
    STANDARD_INPUT,
    open_bytes,
    read_lines,
    stream_errors,
    write_atomic,
)

_ROOM = 4_000_000
"""Characters that a window holds at most, unless one line alone has more."""
_PATIENCE = 10
"""Milliseconds without a further line after which those at hand are translated."""
_CHUNK = 2**18


class Reading:
    """Lines read from a file, - for standard input, and what has been seen of it.

    Bytes that are no UTF-8 become U+FFFD, so that one damaged line does not end a long run.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.n_bytes = 0
        """How many bytes the lines had so far, without their ends."""
        self.damaged: list[int] = []
        """The numbers of the first few lines that were no UTF-8 …"""
        self.n_damaged = 0
        """… and how many there were."""
        self._line = 0

    def windows(self, size: int) -> Iterator[list[str]]:
        """Windows of `size` lines, fewer where lines are long; always the same for a file."""
        return windows_of_text((self._text(line) for line in read_lines(self.path)), size)

    def windows_as_they_come(self, size: int) -> Iterator[list[str]]:
        """Windows of the lines that are at hand; an empty one before it has to wait for more."""
        if self.path != STANDARD_INPUT or not _can_wait(sys.stdin):
            yield from self.windows(size)
            return
        gathered: list[str] = []
        room = _ROOM
        with stream_errors("standard input"):
            for lines in lines_as_they_come(sys.stdin.fileno()):
                gathered += map(self._text, lines)
                room -= sum(map(len, lines))
                if not lines or len(gathered) >= size or room <= 0:
                    yield from windows_of_text(gathered, size)
                    gathered, room = [], _ROOM
                if not lines:
                    yield []
            yield from windows_of_text(gathered, size)

    def _text(self, line: bytes) -> str:
        self._line += 1
        self.n_bytes += len(line)
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.n_damaged += 1
            self.damaged += [self._line] if len(self.damaged) < 5 else []
            return line.decode(errors="replace")


def windows_of_text(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of at most `size` lines and, unless one line alone has more, `_ROOM` characters."""
    window: list[str] = []
    room = _ROOM
    for line in lines:
        if window and (len(window) == size or len(line) > room):
            yield window
            window, room = [], _ROOM
        window.append(line)
        room -= len(line)
    if window:
        yield window


def lines_as_they_come(handle: int) -> Iterator[list[bytes]]:
    """Lines of standard input as soon as they are whole; an empty list before it has to wait."""
    unfinished: list[bytes] = []
    with open_bytes(STANDARD_INPUT) as stream:
        while data := stream.read1(_CHUNK):
            first, *lines = data.split(b"\n")
            unfinished.append(first)
            if lines:
                *whole, rest = lines
                yield [line.removesuffix(b"\r") for line in (b"".join(unfinished), *whole)]
                unfinished = [rest]
            elif sum(map(len, unfinished)) > LONGEST_LINE:
                raise InputError(
                    f"A line of the input is longer than {LONGEST_LINE:,} bytes; is this text with "
                    "one sentence to a line?"
                )
            if not _at_hand(handle):
                yield []
    if last := b"".join(unfinished):
        yield [last.removesuffix(b"\r")]


def _at_hand(handle: int) -> bool:
    waiting = select.poll()
    waiting.register(handle, select.POLLIN | select.POLLHUP)
    return bool(waiting.poll(_PATIENCE))


def _can_wait(stream: object) -> bool:
    """Whether the system can tell if there is more to read, without reading it."""
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
    return hasattr(select, "poll")


_READ_BYTES = 2**20


@dataclass(frozen=True)
class Begun:
    """How far an earlier run came."""

    records: int
    """Lines of the input whose output is whole."""
    n_bytes: int
    """How much of the file they take; what comes after is torn."""


class Output:
    """A file that is written from the beginning, or from where an earlier run stopped.

    Args:
        numbered: whether a record has several lines that begin with its number, as n-best lists.
        settings: what must be the same for a run to go on with the file.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, numbered: bool = False) -> None:
        self.path, self.settings, self.numbered = path, dict(settings), numbered
        self.notes = path.with_name(f".{path.name}.run")
        """Where the settings of an unfinished run stand."""

    def begun(self) -> Begun:
        """How far the earlier run came; refused if it was begun with other settings."""
        if not self.path.exists():
            return Begun(0, 0)
        self._check_settings()
        with _blamed(self.path), self.path.open("rb") as stream:
            return _last_number(stream) if self.numbered else _whole_lines(stream)

    @contextmanager
    def written_from(self, begun: Begun) -> Iterator["Output"]:
        """The output, open for what comes after; the notes go when the block ends without error."""
        with _blamed(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer, so that what was written is never half in memory.
            self._stream = self.path.open("r+b" if self.path.exists() else "xb", buffering=0)
        plain = self.path.is_file()  # and no pipe or device
        with self._stream:
            if plain:
                _lock(self._stream, self.path)
                self.note()
                self._stream.truncate(begun.n_bytes)
                self._stream.seek(begun.n_bytes)
            yield self
            if plain:
                os.fsync(self._stream.fileno())
                self.notes.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        """Write whole records."""
        left = memoryview(text.encode())
        with _blamed(self.path):
            while left:
                left = left[self._stream.write(left) :]

    def note(self, **settings: Any) -> None:
        """Write down the settings, and further ones that were found on the way."""
        self.settings |= settings
        if self.path.is_file():
            write_atomic(self.notes, json.dumps(self.settings, ensure_ascii=False))

    def noted(self) -> dict[str, Any]:
        """The settings of the run that was interrupted; none if nobody knows them."""
        with suppress(OSError, ValueError):
            noted = json.loads(self.notes.read_bytes())
            return noted if isinstance(noted, dict) else {}
        return {}

    def _check_settings(self) -> None:
        for name, before in self.noted().items():
            now = self.settings.get(name)
            if name in self.settings and before != now:
                raise InputError(
                    f"{self.path} was begun with {name} {before}, and now {name} is {now}: go on "
                    "with the same, or start again without --resume."
                )


class Remaining:
    """What of the input is still to be translated.

    A window that was written in part is translated again as a whole, so that sentences have the
    same neighbors as in a run without interruption.
    """

    def __init__(self, records: int, reading: Reading) -> None:
        self.records, self.reading = records, reading
        self.number = 0
        """The number of the first line of the window that is written next."""
        self.skipped_bytes = 0
        self._read = 0

    @property
    def skip(self) -> int:
        """How many records of that window are written already."""
        return max(self.records - self.number, 0)

    def windows(self, size: int) -> Iterator[list[str]]:
        """The windows in which something is missing."""
        for window in self.reading.windows(size):
            self._read += len(window)
            if self._read <= self.records:
                self.number = self._read
                self.skipped_bytes = self.reading.n_bytes
            else:
                yield window

    def advance(self, lines: int) -> None:
        """So many lines are written, or were before."""
        self.number += lines

    def check(self, path: Path) -> None:
        """Refuse an output that has more records than the input has lines."""
        if self._read < self.records:
            raise InputError(
                f"{path} has {self.records:,} lines, but the input has only {self._read:,}: they "
                "do not belong together."
            )


def _whole_lines(stream: BinaryIO) -> Begun:
    """Every line that has an end is a record."""
    lines = n_bytes = whole = 0
    while chunk := stream.read(_READ_BYTES):
        lines += chunk.count(b"\n")
        if b"\n" in chunk:
            whole = n_bytes + chunk.rindex(b"\n") + 1
        n_bytes += len(chunk)
    return Begun(lines, whole)


def _last_number(stream: BinaryIO) -> Begun:
    """All records before the last, which may lack some of its lines."""
    records = n_bytes = start = 0
    for line in stream:
        number, found, _ = line.partition(b" ")
        if line.endswith(b"\n") and found and number.isdigit() and int(number) != records:
            records, start = int(number), n_bytes
        n_bytes += len(line)
    return Begun(records, start)


def _lock(stream: Any, path: Path) -> None:
    """Refuse a file that another process is writing."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(
            f"{path} is being written by another process: wait until it ends."
        ) from error
    except OSError:
        pass  # a file system without locks


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error
