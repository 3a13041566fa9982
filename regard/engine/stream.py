"""Lines of a file or a pipe in windows: of fixed size, or as they arrive where somebody waits."""

import select
import sys
from collections.abc import Iterable, Iterator

from regard.errors import InputError
from regard.text.files import LONGEST_LINE, STANDARD_INPUT, damage_named, open_bytes, read_lines

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
        with damage_named("standard input"):
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
