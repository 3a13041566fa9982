"""An output file that grows record by record, and with which an interrupted run can go on.

What is in the file decides where a run goes on, so nothing is lost or doubled however it ended. A
small file beside it remembers how the run was begun, so that no other run goes on with it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from regard.engine.stream import Reading
from regard.errors import FileError, InputError
from regard.text.files import write_whole

_CHUNK = 2**20


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
            write_whole(self.notes, json.dumps(self.settings, ensure_ascii=False))

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
    same neighbours as in a run without interruption.
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
    while chunk := stream.read(_CHUNK):
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
