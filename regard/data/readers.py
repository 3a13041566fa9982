"""Read text files as rows of fields: parallel files, TSV or JSONL."""

import codecs
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

from regard.errors import InputError, check_choice
from regard.files import STANDARD_INPUT, atomic_path, copy_decompressed, read_lines, stream_errors

Format = Literal["lines", "tsv", "jsonl"]
FORMATS = get_args(Format)
SOURCE_TARGET, LABEL_TEXT, TEXT = ("source", "target"), ("label", "text"), ("text",)


@dataclass(frozen=True, slots=True)
class Row:
    """One line as it was read, before any checks."""

    file: str
    line: int
    fields: tuple[bytes | None, ...]
    """The bytes of each field; None where a file has ended before the others."""
    fault: str | None = None  # why the line cannot be read as a row
    files: tuple[str, ...] = ()  # the file of each field, where fields come from separate files
    copies: int = 1  # how often to train on the row

    def file_of(self, side: int) -> str:
        return self.files[side] if self.files else self.file


@runtime_checkable
class Rows(Protocol):
    """A source of rows that can be iterated over repeatedly."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def __iter__(self) -> Iterator[Row]: ...

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the rows."""
        ...

    def with_stdin_saved(self, folder: Path) -> "Rows":
        """Return the same rows with standard input copied to a file in `folder`."""
        ...


@dataclass(frozen=True)
class TextRows:
    """Rows from files of one format."""

    paths: tuple[str, ...]  # one for each field of "lines", otherwise one; "-" is standard input
    names: tuple[str, ...]
    format: Format = "lines"
    columns: tuple[int, ...] = ()  # for "tsv", the column of each field, counted from 1
    keys: tuple[str, ...] = ()  # for "jsonl", the key of each field
    display_names: tuple[str, ...] = ()  # names of the files in messages; their paths by default

    def __post_init__(self):
        check_choice("format", self.format, FORMATS)
        given = {"lines": self.paths, "tsv": self.columns, "jsonl": self.keys}[self.format]
        if len(given) != len(self.names):
            raise InputError(
                f"{self.format} text with {' and '.join(self.names)} needs {len(self.names)} "
                f"{'files' if self.format == 'lines' else 'columns or keys'}, not {len(given)}."
            )
        if any(column < 1 for column in self.columns):
            raise InputError(f"Columns are counted from 1; {min(self.columns)} was given.")
        if self.paths.count(STANDARD_INPUT) > 1:
            raise InputError("Standard input can be read only once; give a file for one side.")

    def __iter__(self) -> Iterator[Row]:
        shown = self.display_names or self.paths
        files = tuple("standard input" if name == STANDARD_INPUT else name for name in shown)
        if self.format == "lines":
            for line, fields in enumerate(zip_longest(*map(read_lines, self.paths)), 1):
                yield Row(files[0], line, fields, files=files)
            return
        for number, line in enumerate(read_lines(self.paths[0]), 1):
            try:
                if self.format == "tsv":
                    fields = fields_of_tsv(line, self.columns)
                else:
                    fields = fields_of_json(line.removeprefix(codecs.BOM_UTF8), self.keys)
                yield Row(files[0], number, fields)
            except ValueError as fault:
                yield Row(files[0], number, (line,), str(fault))

    def fingerprint(self) -> str:
        """Return a hash of the files' (compressed) contents and of how they are read."""
        options = [self.names, self.format, self.columns, self.keys]
        digest = hashlib.sha256(json.dumps(options).encode())
        for path in self.paths:
            with stream_errors(path), Path(path).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").hexdigest().encode())
        return digest.hexdigest()

    def with_stdin_saved(self, folder: Path) -> "TextRows":
        if STANDARD_INPUT not in self.paths:
            return self
        copy = folder / "standard-input"
        with atomic_path(copy) as temporary:
            copy_decompressed(STANDARD_INPUT, temporary)
        paths = tuple(str(copy) if path == STANDARD_INPUT else path for path in self.paths)
        return replace(self, paths=paths, display_names=self.display_names or self.paths)


def fields_of_tsv(line: bytes, columns: Sequence[int]) -> tuple[bytes, ...]:
    """Return the cells of `columns`; a ValueError says what is wrong with the line."""
    cells = line.split(b"\t")
    if len(cells) < max(columns):
        raise ValueError(f"{len(cells)} of {max(columns)} columns")
    return tuple(cells[column - 1] for column in columns)


def fields_of_json(line: bytes, keys: Sequence[str]) -> tuple[bytes, ...]:
    """Return the values of `keys`; a ValueError says what is wrong with the line."""
    try:
        entry = json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")
    fields = []
    for key in keys:
        value = entry.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # labels are often numbers
        if not isinstance(value, str):
            raise ValueError(f"no text under {key!r}")
        fields.append(_encode(value))
    return tuple(fields)


def _encode(text: str) -> bytes:
    """Encode a text as UTF-8; escaped invalid bytes come back unchanged."""
    for errors in ("strict", "surrogateescape"):
        try:
            return text.encode(errors=errors)
        except UnicodeEncodeError:
            pass
    return text.encode(errors="surrogatepass")  # half a pair, written as \ud800: invalid UTF-8 too


@dataclass(frozen=True)
class JoinedRows:
    """The rows of several sources, one after another."""

    parts: tuple[Rows, ...]

    def __post_init__(self):
        if len({part.names for part in self.parts}) != 1:
            raise InputError("Only sources with the same fields can be joined; give at least one.")

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names

    def __iter__(self) -> Iterator[Row]:
        for part in self.parts:
            yield from part

    def fingerprint(self) -> str:
        joined = "".join(part.fingerprint() for part in self.parts)
        return hashlib.sha256(joined.encode()).hexdigest()

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
    """Read pairs of source and target: two files line by line, or one .tsv or .jsonl file."""
    if target is not None:
        return TextRows((str(source), str(target)), SOURCE_TARGET)
    return _single_file(str(source), SOURCE_TARGET, format, columns, keys)


def labeled_text(
    path: str | Path,
    *,
    format: Format | None = None,
    columns: tuple[int, int] = (1, 2),
    keys: tuple[str, str] = LABEL_TEXT,
) -> TextRows:
    """Read texts with their labels from a .tsv (label first) or .jsonl file."""
    return _single_file(str(path), LABEL_TEXT, format, columns, keys)


def plain_text(*paths: str | Path, column: int = 1, key: str = "text") -> JoinedRows:
    """Read the lines of text files, one column of .tsv files and one key of .jsonl files."""
    parts = []
    for path in map(str, paths):
        lines = format_of(path) is None
        parts.append(
            TextRows((path,), TEXT) if lines else _single_file(path, TEXT, None, (column,), (key,))
        )
    return JoinedRows(tuple(parts))


def format_of(path: str) -> Format | None:
    """Return the format that a file's name implies, ignoring .gz and .zst."""
    suffix = Path(path.removesuffix(".gz").removesuffix(".zst")).suffix
    known: dict[str, Format] = {".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    return known.get(suffix)


def _single_file(
    path: str,
    names: tuple[str, ...],
    format: Format | None,
    columns: tuple[int, ...],
    keys: tuple[str, ...],
) -> TextRows:
    format = format or format_of(path) or ("tsv" if path == STANDARD_INPUT else None)
    if format == "tsv":
        return TextRows((path,), names, "tsv", columns=columns)
    if format == "jsonl":
        return TextRows((path,), names, "jsonl", keys=keys)
    raise InputError(
        f"The name {path} does not say how {' and '.join(names)} are separated: "
        "name it .tsv or .jsonl, or set format to 'tsv' or 'jsonl'."
    )
