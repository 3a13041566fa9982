"""Text from files as rows of fields: files side by side, TSV or JSONL."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from regard.errors import InputError, UnknownNameError, nearest
from regard.files import (
    STANDARD_INPUT,
    atomic_path,
    copy_decompressed,
    read_lines,
    stream_errors,
)

Format = Literal["lines", "tsv", "jsonl"]
FORMATS = ("lines", "tsv", "jsonl")
SOURCE_TARGET = ("source", "target")
LABEL_TEXT = ("label", "text")
TEXT = ("text",)


@dataclass(frozen=True, slots=True)
class Row:
    """One line as it was read, before anybody has looked at it."""

    file: str
    line: int
    fields: tuple[bytes | None, ...]
    """The bytes of each field; None where a file has ended before the others."""
    fault: str | None = None
    """Why the line cannot be read as a row."""
    files: tuple[str, ...] = ()
    """The file of each field, where they have files of their own."""

    def file_of(self, side: int) -> str:
        """The file in which a field stands."""
        return self.files[side] if self.files else self.file


@runtime_checkable
class Rows(Protocol):
    """Where rows come from; they can be gone through again and again."""

    @property
    def names(self) -> tuple[str, ...]:
        """What each field holds."""
        ...

    def __iter__(self) -> Iterator[Row]: ...

    def fingerprint(self) -> str:
        """A hash of everything that decides what the rows are."""
        ...

    def with_stdin_saved(self, folder: Path) -> "Rows":
        """The same rows, with standard input kept in a file in `folder`."""
        ...


@dataclass(frozen=True)
class TextRows:
    """Rows from files of one format.

    Args:
        paths: one file for each field for "lines", otherwise one file; "-" is standard input.
        columns: for "tsv", which column holds each field, counted from 1.
        keys: for "jsonl", which key holds each field.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...]
    format: Format = "lines"
    columns: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    """What to call the files; their paths if nothing is given."""

    def __post_init__(self):
        if self.format not in FORMATS:
            raise UnknownNameError(
                f"There is no text format {self.format!r}; {nearest(self.format, FORMATS)}."
            )
        places = {"lines": self.paths, "tsv": self.columns, "jsonl": self.keys}[self.format]
        if len(places) != len(self.names):
            raise InputError(
                f"{self.format} text with {' and '.join(self.names)} needs {len(self.names)} "
                f"{'files' if self.format == 'lines' else 'columns or keys'}, not {len(places)}."
            )
        if any(column < 1 for column in self.columns):
            raise InputError(f"Columns are counted from 1; {min(self.columns)} was given.")
        if self.paths.count(STANDARD_INPUT) > 1:
            raise InputError(
                "Standard input can be read only once; give a file for the other side."
            )

    def __iter__(self) -> Iterator[Row]:
        if self.format == "lines":
            return self._line_rows()
        return self._tsv_rows() if self.format == "tsv" else self._json_rows()

    def _names_of_files(self) -> list[str]:
        shown = self.called or self.paths
        return ["standard input" if name == STANDARD_INPUT else name for name in shown]

    def _line_rows(self) -> Iterator[Row]:
        files = tuple(self._names_of_files())
        for line, fields in enumerate(zip_longest(*map(read_lines, self.paths)), 1):
            yield Row(files[0], line, fields, files=files)

    def _tsv_rows(self) -> Iterator[Row]:
        (file,) = self._names_of_files()
        needed = max(self.columns)
        for number, line in enumerate(read_lines(self.paths[0]), 1):
            cells = line.split(b"\t")
            if len(cells) < needed:
                fault = f"{len(cells)} of {needed} columns"
                yield Row(file, number, (line,), fault)
            else:
                yield Row(file, number, tuple(cells[column - 1] for column in self.columns))

    def _json_rows(self) -> Iterator[Row]:
        (file,) = self._names_of_files()
        for number, line in enumerate(read_lines(self.paths[0]), 1):
            try:
                yield Row(file, number, fields_of_json(line.removeprefix(_MARK), self.keys))
            except ValueError as fault:
                yield Row(file, number, (line,), str(fault))

    def fingerprint(self) -> str:
        """A hash of the files' contents, as packed as they are, and of how they are read."""
        how = [self.names, self.format, self.columns, self.keys]
        found = hashlib.sha256(json.dumps(how).encode())
        for path in self.paths:
            found.update(file_hash(path).encode())
        return found.hexdigest()

    def with_stdin_saved(self, folder: Path) -> "TextRows":
        """The same rows, with standard input kept in a file in `folder`, to be read again."""
        if STANDARD_INPUT not in self.paths:
            return self
        kept = folder / "standard-input"
        with atomic_path(kept) as temporary:
            copy_decompressed(STANDARD_INPUT, temporary)
        paths = tuple(str(kept) if path == STANDARD_INPUT else path for path in self.paths)
        return replace(self, paths=paths, called=self.called or self.paths)


_MARK = b"\xef\xbb\xbf"


def fields_of_json(line: bytes, keys: Sequence[str]) -> tuple[bytes, ...]:
    """The values of `keys` in a line of JSON; a ValueError says what is wrong with it."""
    try:
        entry = json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
    if not isinstance(entry, dict):
        raise ValueError("no JSON object")
    fields = []
    for key in keys:
        value = entry.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # labels are often numbers
        if not isinstance(value, str):
            raise ValueError(f"no text under {key!r}")
        fields.append(_bytes_of(value))
    return tuple(fields)


def _bytes_of(text: str) -> bytes:
    """The bytes of a text; bytes that were no UTF-8 come back as they were."""
    for errors in ("strict", "surrogateescape"):
        try:
            return text.encode(errors=errors)
        except UnicodeEncodeError:
            pass
    return text.encode(errors="surrogatepass")  # half a pair, written as \ud800: not UTF-8 either


@dataclass(frozen=True)
class JoinedRows:
    """The rows of several sources, one after another."""

    parts: tuple[Rows, ...]

    def __post_init__(self):
        if len({part.names for part in self.parts}) != 1:
            raise InputError(
                "Only sources with the same fields can be joined, and there must be one."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names

    def __iter__(self) -> Iterator[Row]:
        for part in self.parts:
            yield from part

    def fingerprint(self) -> str:
        found = "".join(part.fingerprint() for part in self.parts)
        return hashlib.sha256(found.encode()).hexdigest()

    def with_stdin_saved(self, folder: Path) -> "JoinedRows":
        return JoinedRows(tuple(part.with_stdin_saved(folder) for part in self.parts))


def parallel_text(
    source: str | Path,
    target: str | Path | None = None,
    *,
    format: Format | None = None,
    columns: tuple[int, int] = (1, 2),
    keys: tuple[str, str] = SOURCE_TARGET,
) -> TextRows:
    """Pairs of source and target: two files line by line, or one .tsv or .jsonl file."""
    if target is not None:
        return TextRows((str(source), str(target)), SOURCE_TARGET)
    return _one_file(str(source), SOURCE_TARGET, format, columns, keys)


def labeled_text(
    path: str | Path,
    *,
    format: Format | None = None,
    columns: tuple[int, int] = (1, 2),
    keys: tuple[str, str] = LABEL_TEXT,
) -> TextRows:
    """Texts with their labels from a .tsv (label first) or .jsonl file."""
    return _one_file(str(path), LABEL_TEXT, format, columns, keys)


def plain_text(*paths: str | Path) -> JoinedRows:
    """The lines of one or more text files."""
    return JoinedRows(tuple(TextRows((str(path),), TEXT) for path in paths))


def format_of(path: str) -> Format | None:
    """The format that a file's name tells, behind .gz and .zst."""
    ending = Path(path.removesuffix(".gz").removesuffix(".zst")).suffix
    known: dict[str, Format] = {".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    return known.get(ending)


def _one_file(
    path: str,
    names: tuple[str, ...],
    format: Format | None,
    columns: tuple[int, ...],
    keys: tuple[str, ...],
) -> TextRows:
    format = format or format_of(path) or ("tsv" if path == STANDARD_INPUT else None)
    if format not in ("tsv", "jsonl"):
        raise InputError(
            f"{path} does not tell how {' and '.join(names)} are separated: "
            "call it .tsv or .jsonl, or say format='tsv' or 'jsonl'."
        )
    if format == "tsv":
        return TextRows((path,), names, "tsv", columns=columns)
    return TextRows((path,), names, "jsonl", keys=keys)


def file_hash(path: str | Path) -> str:
    """The SHA-256 of a file as it lies on the disk."""
    with stream_errors(path), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
