"""The ledger: a table of every row that was dropped or changed on the way from file to corpus."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from regard.text.files import replacing

HEADER = ("file", "line", "action", "problem", "text")


class Ledger:
    """Writes one line for each row that was dropped or changed."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._stream.write("\t".join(HEADER) + "\n")

    def write(
        self, file: str, line: int, action: str, problem: str, texts: Iterable[object]
    ) -> None:
        """Note what was done to the row at a line of a file, with the row as it was."""
        cells = [file, str(line), action, problem, *map(_cell, texts)]
        self._stream.write("\t".join(cells) + "\n")


def _cell(value: object) -> str:
    """A field on one line of a table: tabs, line ends and unreadable bytes are spelt out."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    else:
        value = str(value).replace("\\", "\\\\")
    return value.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def ledger_at(path: str | Path) -> Iterator[Ledger]:
    """A ledger that appears at `path` when all is done, and not at all when something fails."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        yield Ledger(stream)
