"""The files of a recipe, and their division into training, validation and test data."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from regard.data.dates import LOCALES, Dates
from regard.data.readers import (
    LABEL_TEXT,
    SOURCE_TARGET,
    JoinedRows,
    Row,
    Rows,
    labeled_text,
    parallel_text,
    plain_text,
)
from regard.data.text_checks import Checks, read_checked
from regard.data.token_stream import RUNNING_TEXT
from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.training.recipe import SPLITS, ParallelFiles, Recipe, Source

_HELD_OUT_DATES = 2000


def find_data(path: str, root: str | None = None) -> Path:
    """Return the file or folder that a recipe means by a path.

    It is searched in `data.root` if the recipe has one, otherwise in $REGARD_DATA and then in the
    current folder. Absolute paths are used unchanged.
    """
    if root is not None:
        places = [Path(root).expanduser()]
    else:
        places = [Path(one) for one in (os.environ.get("REGARD_DATA"), ".") if one]
    for place in places:
        candidate = place / Path(path).expanduser()
        if candidate.exists():
            return candidate
    searched = " nor in ".join(str(place.absolute()) for place in places)
    raise FileError(
        f"the data file {path} is not in {searched}: set data.root (--set data.root=FOLDER) or the "
        "environment variable REGARD_DATA to the folder that contains it."
    )


@dataclass(frozen=True)
class HeldOutRows:
    """Rows whose source or text has a hash in the interval [first, last) of [0, 1).

    Rows with the same source are always in the same split, so memorized pairs cannot improve a
    score.
    """

    rows: Rows
    first: float
    last: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.rows.names

    def __iter__(self) -> Iterator[Row]:
        column = self.names.index("text") if "text" in self.names else 0
        for row in self.rows:
            digest = hashlib.blake2b(row.fields[column] or b"", digest_size=7).digest()
            if self.first <= int.from_bytes(digest) / 2**56 < self.last:
                yield row

    def fingerprint(self) -> str:
        """Return a hash of the rows and the interval."""
        described = f"{self.rows.fingerprint()} {self.first} {self.last}"
        return hashlib.sha256(described.encode()).hexdigest()

    def with_stdin_saved(self, folder: Path) -> "HeldOutRows":
        """Return the same rows, with standard input saved to a file."""
        return HeldOutRows(self.rows.with_stdin_saved(folder), self.first, self.last)


class TextSources:
    """The texts of a recipe by split: "train", "validation" and "test"."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._data = recipe, recipe.data

    @cached_property
    def checks(self) -> Checks:
        """Policies for faulty lines."""
        known = Checks.__dataclass_fields__
        for name in self._data.checks:
            if name not in known:
                raise UnknownNameError(f"unknown key data.checks.{name}; {nearest(name, known)}.")
        defaults = RUNNING_TEXT if self._recipe.task == "language" else Checks()
        return replace(defaults, **self._data.checks)

    def rows(self, split: str) -> Rows | None:
        """Return the rows of a split; None if the recipe does not have it."""
        data = self._data
        if data.generate == "dates":
            locales = tuple(data.locales or LOCALES)
            if split == "train":
                return Dates(data.count, locales=locales)
            seed = SPLITS.index(split)
            return Dates(_HELD_OUT_DATES, seed=seed, split="held-out", locales=locales)
        given, test = getattr(data, split), data.test if isinstance(data.test, float) else 0.0
        if split == "train":
            held_out = test + (data.validation if isinstance(data.validation, float) else 0.0)
            if held_out >= 1:
                raise InputError(
                    "data.validation and data.test hold out all data: make their sum less than 1."
                )
            return HeldOutRows(self.all_rows(), held_out, 1.0) if held_out else self.all_rows()
        if not isinstance(given, float):
            return None if given is None else self._read(split)
        first = 0.0 if split == "test" else test
        return HeldOutRows(self.all_rows(), first, first + given)

    def all_rows(self) -> Rows:
        """Return all rows of the training data, including held-out ones."""
        return self._read("train")

    def _read(self, split: str) -> Rows:
        parts = [self._read_one(one) for one in self._data.sources(split)]
        if not parts:
            raise InputError(f"data.{split} is an empty list: give at least one file.")
        return parts[0] if len(parts) == 1 else JoinedRows(tuple(parts))

    def _read_one(self, given: Source) -> Rows:
        data = self._data
        if isinstance(given, ParallelFiles):
            files = [find_data(given.source, data.root), find_data(given.target, data.root)]
            return parallel_text(*(reversed(files) if data.swap else files))
        path = find_data(given, data.root)
        if self._recipe.task == "translation":
            columns, keys = data.columns, data.keys or SOURCE_TARGET
            if data.swap:
                columns, keys = (columns[1], columns[0]), (keys[1], keys[0])
            return parallel_text(path, columns=columns, keys=keys)
        if self._recipe.task == "classification":
            return labeled_text(path, columns=data.columns, keys=data.keys or LABEL_TEXT)
        return plain_text(path)

    def texts(self, *, fields: Sequence[int] | None = None) -> Iterator[str]:
        """Yield the training texts that pass the checks, for training a tokenizer.

        Running text is not held out line by line, so its vocabulary is that of all text.
        """
        running = self._recipe.task == "language"
        rows = self.all_rows() if running else self.rows("train")
        for example in read_checked(rows, self.checks) if rows else ():
            for number, text in enumerate(example.texts):
                if fields is None or number in fields:
                    yield text + "\n" if running else text

    def examples(self, split: str, count: int = 0) -> list[tuple[str, ...]]:
        """Return the first rows of a split as text; all of them for a count of 0."""
        rows = self.rows(split)
        checked = read_checked(rows, self.checks) if rows else ()
        return [example.texts for example in islice(checked, count or None)]
