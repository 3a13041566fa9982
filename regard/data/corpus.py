"""Tokenized text on disk: written once per set of files and settings, then memory-mapped."""

import json
import operator
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, SupportsIndex

import numpy as np

from regard.data.readers import Rows
from regard.data.text_checks import Checker, Checks, CleaningReport, CleanRow, Progress, open_ledger
from regard.errors import FileError, InputError
from regard.files import cache_key, cached_folder, file_errors, write_atomic
from regard.text.tokenizer import Tokenizer

VERSION = 1  # increased when the same settings result in other files
LABEL, LEDGER, DESCRIPTION = "label", "ledger.tsv", "corpus.json"
_LABEL_TYPE = np.dtype(np.uint32)
_AGAIN = "delete its folder, and it will be made again"


class NoExampleError(InputError):
    """Rows of which none can be used for training."""


def report_lines(report: CleaningReport, ledger: Path) -> list[str]:
    """Format a report, with the path of the ledger if that has any entries."""
    recorded = any(problem.dropped or problem.changed for problem in report.problems.values())
    return report.lines() + [f"  Each line that was dropped or changed: {ledger}"] * recorded


def read_stored(path: Path) -> dict[str, Any]:
    """Read the JSON description of a stored corpus or token stream."""
    try:
        with file_errors(path):
            return json.loads(path.read_bytes())
    except ValueError as error:
        raise FileError(f"{path} is damaged: {_AGAIN}.") from error


def smallest_type(size: int) -> np.dtype:
    """Return the narrowest dtype for ids below `size`."""
    return np.dtype(np.uint16 if size <= 2**16 else np.uint32)


def memory_map(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    """Map a file into memory as a read-only array; its size must match."""
    with file_errors(path):
        size = path.stat().st_size
    if size != count * dtype.itemsize:
        raise FileError(
            f"{path} is damaged: it has {size:,} bytes instead of {count * dtype.itemsize:,}; "
            f"{_AGAIN}."
        )
    if count == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))


def written_once(
    rows: Rows, cache: str | Path, settings: dict[str, Any], write: Callable[[Rows, Path], None]
) -> Path:
    """Return the folder in `cache` for these rows and settings, filled by `write` if it is new."""
    with TemporaryDirectory() as spool:
        rows = rows.with_stdin_saved(Path(spool))
        key = cache_key({"rows": rows.fingerprint(), **settings})
        return cached_folder(Path(cache) / key, lambda folder: write(rows, folder))


def _ragged_paths(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Return the files of ids, offsets and lengths."""
    return folder / f"{name}.ids", folder / f"{name}.offsets", folder / f"{name}.lengths"


class RaggedWriter:
    """Appends lists of ids to files, in constant memory."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype):
        self._dtype, self.total = dtype, 0
        self._streams = [path.open("wb") for path in _ragged_paths(folder, name)]
        self._streams[1].write(np.zeros(1, np.int64).tobytes())

    def append(self, lists: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), self._dtype, int(lengths.sum()))
        arrays = (ids, np.cumsum(lengths) + self.total, lengths.astype(np.uint32))
        for stream, array in zip(self._streams, arrays, strict=True):
            stream.write(array.tobytes())
        self.total += int(lengths.sum())

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


class Ragged:
    """Lists of ids of different lengths, memory-mapped from files of a RaggedWriter."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype, *, count: int, total: int):
        ids, offsets, lengths = _ragged_paths(folder, name)
        self.flat = memory_map(ids, dtype, total)
        self._offsets = memory_map(offsets, np.dtype(np.int64), count + 1)
        self.lengths = memory_map(lengths, np.dtype(np.uint32), count)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"list {number} does not exist; there are {len(self)}.")
        number %= len(self)
        return self.flat[self._offsets[number] : self._offsets[number + 1]]


class CorpusWriter:
    """Checks rows, tokenizes them and writes them, one chunk at a time."""

    def __init__(
        self,
        names: tuple[str, ...],
        tokenizers: Tokenizer | Sequence[Tokenizer],
        *,
        checks: Checks,
        specials: bool,
        classes: Sequence[str] | None,
    ):
        texts = [name for name in names if name != LABEL]
        if isinstance(tokenizers, Tokenizer):
            tokenizers = [tokenizers] * len(texts)
        if len(tokenizers) != len(texts):
            raise InputError(
                f"{' and '.join(texts)} needs {len(texts)} tokenizers or one for all; "
                f"{len(tokenizers)} were given."
            )
        self._names, self._checks, self._specials = names, checks, specials
        self._tokenizers = dict(zip(texts, tokenizers, strict=True))
        self._given = None if classes is None else list(classes)
        self._classes = {name: number for number, name in enumerate(classes or ())}

    def settings(self) -> dict[str, Any]:
        """Return everything except the rows that determines what is written."""
        return {
            "version": VERSION,
            "tokenizers": [tokenizer.fingerprint for tokenizer in self._tokenizers.values()],
            "checks": asdict(self._checks),
            "specials": self._specials,
            "classes": self._given,
        }

    def write(self, progress: Progress | None, rows: Rows, folder: Path) -> None:
        with ExitStack() as stack:
            ledger = stack.enter_context(open_ledger(folder / LEDGER))
            checker = Checker(self._names, self._checks, ledger)
            fields = {
                name: stack.enter_context(closing(RaggedWriter(folder, name, self._type_of(name))))
                for name in self._names
            }
            for chunk in checker.check_all(rows, progress):
                self._append(chunk, checker, fields)
        report = checker.report
        if report.kept == 0:
            details = " ".join(line.strip() for line in report.lines())
            raise NoExampleError(f"There is no example to train on. {details}")
        described = {
            "version": VERSION,
            "names": self._names,
            "count": report.kept,
            "dtypes": [self._type_of(name).name for name in self._names],
            "totals": [fields[name].total for name in self._names],
            "classes": self._sorted_classes(folder) if LABEL in self._names else None,
            "report": asdict(report),
        }
        write_atomic(folder / DESCRIPTION, json.dumps(described, ensure_ascii=False, indent=1))

    def _type_of(self, name: str) -> np.dtype:
        return _LABEL_TYPE if name == LABEL else smallest_type(len(self._tokenizers[name]))

    def _append(
        self, rows: list[CleanRow], checker: Checker, fields: dict[str, RaggedWriter]
    ) -> None:
        sides = enumerate(self._names)
        columns = [self._ids(name, [row.texts[side] for row in rows]) for side, name in sides]
        examples = zip(rows, zip(*columns, strict=True), strict=True)
        kept = [ids for row, ids in examples if not self._refused(row, ids, checker)]
        for side, name in enumerate(self._names):
            fields[name].append([ids[side] for ids in kept])

    def _ids(self, name: str, texts: list[str]) -> list[list[int]]:
        if name != LABEL:
            return self._tokenizers[name].encode_batch(texts, specials=self._specials, literal=True)
        if self._given is None:
            for text in texts:
                self._classes.setdefault(text, len(self._classes))
        return [[self._classes[text]] if text in self._classes else [] for text in texts]

    def _refused(self, row: CleanRow, ids: Sequence[list[int]], checker: Checker) -> bool:
        limit = self._checks.max_tokens
        if limit is not None and max(map(len, ids)) > limit:
            return checker.refuse("tokens", row, late=True)
        if LABEL in self._names and not ids[self._names.index(LABEL)]:
            return checker.refuse("label", row, late=True)
        return False

    def _sorted_classes(self, folder: Path) -> list[str]:
        """Return the given classes, or sort those of the rows by name and renumber the labels."""
        if self._given is not None:
            return self._given
        names = sorted(self._classes)
        labels = np.memmap(_ragged_paths(folder, LABEL)[0], _LABEL_TYPE, mode="r+")
        rank = np.array([names.index(name) for name in self._classes], dtype=_LABEL_TYPE)
        for start in range(0, len(labels), 2**16):
            labels[start : start + 2**16] = rank[labels[start : start + 2**16]]
        labels.flush()
        return names


class Corpus:
    """Tokenized examples in a folder of `build_corpus`; `corpus[i]` has one array per field."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.ledger = self.folder / LEDGER  # the table of dropped and changed rows
        described = read_stored(self.folder / DESCRIPTION)
        self.names: tuple[str, ...] = tuple(described["names"])
        self.report = CleaningReport.from_dict(described["report"])
        classes, count = described["classes"], described["count"]
        self.classes: tuple[str, ...] | None = None if classes is None else tuple(classes)
        stored = zip(self.names, described["dtypes"], described["totals"], strict=True)
        self.fields = tuple(
            Ragged(self.folder, name, np.dtype(dtype), count=count, total=total)
            for name, dtype, total in stored
        )

    def __len__(self) -> int:
        return len(self.fields[0])

    def __getitem__(self, index: SupportsIndex) -> tuple[np.ndarray, ...]:
        return tuple(field[index] for field in self.fields)

    @property
    def lengths(self) -> tuple[np.ndarray, ...]:
        """The number of tokens of each example, for every text field."""
        texts = zip(self.names, self.fields, strict=True)
        return tuple(field.lengths for name, field in texts if name != LABEL)

    @property
    def labels(self) -> np.ndarray:
        if LABEL not in self.names:
            raise InputError("This corpus has no labels.")
        return self.fields[self.names.index(LABEL)].flat


def build_corpus(
    rows: Rows,
    tokenizers: Tokenizer | Sequence[Tokenizer],
    *,
    cache: str | Path,
    checks: Checks | None = None,
    specials: bool = True,
    classes: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Tokenize `rows`, or open the corpus that was built from the same rows and settings before.

    Args:
        tokenizers: one for every text field, or one for all.
        cache: the folder for corpora, each named by the hash of all it depends on.
        specials: add each tokenizer's start and end tokens to every text.
        classes: the labels in the order of their indices; if None, those of the rows, sorted.
    """
    writer = CorpusWriter(
        rows.names, tokenizers, checks=checks or Checks(), specials=specials, classes=classes
    )
    return Corpus(written_once(rows, cache, writer.settings(), partial(writer.write, progress)))
