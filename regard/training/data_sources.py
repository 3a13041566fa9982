"""The files of a recipe, and their division into training, validation and test data."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import floor
from pathlib import Path
from typing import Any

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
from regard.training.recipe import RECIPES, SPLITS, ParallelFiles, Recipe, Source, WeightedFile

_HELD_OUT_DATES = 2000


def find_data(path: str, root: str | None = None) -> Path:
    """Return the file or folder that a recipe means by a path.

    It is searched in `data.root` if the recipe has one, otherwise in $REGARD_DATA and the current
    folder, and finally next to the bundled recipes. Absolute paths are used unchanged.
    """
    if root is not None:
        places = [Path(root).expanduser()]
    else:
        places = [Path(one) for one in (os.environ.get("REGARD_DATA"), ".") if one]
    for place in (*places, RECIPES):
        candidate = place / Path(path).expanduser()
        if candidate.exists():
            return candidate
    searched = " nor in ".join(str(place.absolute()) for place in places)
    raise FileError(
        f"the data file {path} is not in {searched}: set data.root (--set data.root=FOLDER) or the "
        "environment variable REGARD_DATA to the folder that contains it."
    )


def unit_hash(data: bytes) -> float:
    """Return a hash in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest()) / 2**56


def normalize_source(text: bytes) -> bytes:
    """Return a text without case and punctuation, or the text itself if nothing else is left."""
    words = re.sub(r"[\W_]+", " ", text.decode(errors="replace").casefold()).strip()
    return words.encode() or text


@dataclass(frozen=True)
class _DerivedRows:
    """Base of rows that are made from others."""

    rows: Rows

    @property
    def names(self) -> tuple[str, ...]:
        return self.rows.names

    def with_stdin_saved(self, folder: Path) -> Any:
        return replace(self, rows=self.rows.with_stdin_saved(folder))


@dataclass(frozen=True)
class HeldOutRows(_DerivedRows):
    """Rows whose source or text has a hash in the interval [first, last) of [0, 1).

    Rows whose sources differ only in case and punctuation are always in the same split, so
    memorized pairs cannot improve a score.
    """

    first: float
    last: float

    def __iter__(self) -> Iterator[Row]:
        column = self.names.index("text") if "text" in self.names else 0
        for row in self.rows:
            text = (
                row.fields[0 if row.fault else column] or b""
            )  # the line itself if it is malformed
            if self.first <= unit_hash(normalize_source(text)) < self.last:
                yield row

    def fingerprint(self) -> str:
        described = f"{self.rows.fingerprint()} normalized {self.first} {self.last}"
        return hashlib.sha256(described.encode()).hexdigest()


@dataclass(frozen=True)
class MixedRows(_DerivedRows):
    """Training rows with a weight, and with tags before the sources whose target fits a pattern."""

    weight: float = 1.0
    tags: tuple[tuple[str, str], ...] = ()
    tag_dropout: float = 0.0

    def __iter__(self) -> Iterator[Row]:
        tags = [(tag.encode() + b" ", re.compile(pattern)) for tag, pattern in self.tags]
        for row in self.rows:
            content = b"\t".join(field or b"" for field in row.fields)
            copies = floor(self.weight + unit_hash(b"copies\t" + content))
            if tags and not row.fault and unit_hash(b"tag\t" + content) >= self.tag_dropout:
                source, target = (field or b"" for field in row.fields)
                text = target.decode(errors="replace")
                tag = next((tag for tag, pattern in tags if pattern.search(text)), b"")
                row = replace(row, fields=(tag + source, target))
            if copies:
                yield replace(row, copies=copies)

    def fingerprint(self) -> str:
        described = f"{self.rows.fingerprint()} {self.weight} {self.tags} {self.tag_dropout}"
        return hashlib.sha256(described.encode()).hexdigest()


class TextSources:
    """The texts of a recipe by split: "train", "validation" and "test"."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._data = recipe, recipe.data

    @cached_property
    def checks(self) -> Checks:
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
            parts = [
                self._mixed(HeldOutRows(rows, held_out, 1.0) if held_out else rows, source)
                for source, rows in self._read("train")
            ]
            return _join(parts)
        if not isinstance(given, float):
            return None if given is None else _join([rows for _, rows in self._read(split)])
        first = 0.0 if split == "test" else test
        return HeldOutRows(self.all_rows(), first, first + given)

    def all_rows(self) -> Rows:
        """Return all rows of the training data once, including held-out ones."""
        return _join([rows for _, rows in self._read("train")])

    def domains(self) -> list[str]:
        """Return the domains of the test data in the order of the recipe; "" for no domain."""
        data = self._data
        sources = data.sources("test") or data.sources("train")
        return list(dict.fromkeys(map(_domain_of, sources))) or [""]

    def _mixed(self, rows: Rows, source: Source) -> Rows:
        data = self._data
        weight = source.weight if isinstance(source, WeightedFile) else 1.0
        if weight == 1.0 and not data.tags:
            return rows
        return MixedRows(rows, weight, tuple(data.tags.items()), data.tag_dropout)

    def _read(self, split: str) -> list[tuple[Source, Rows]]:
        parts = [(one, self._read_one(one)) for one in self._data.sources(split)]
        if not parts:
            raise InputError(f"data.{split} is an empty list: give at least one file.")
        return parts

    def _read_one(self, given: Source) -> Rows:
        data = self._data
        if isinstance(given, ParallelFiles):
            files = [find_data(given.source, data.root), find_data(given.target, data.root)]
            return parallel_text(*(reversed(files) if data.swap else files))
        path = find_data(given if isinstance(given, str) else given.file, data.root)
        if self._recipe.task == "translation":
            columns, keys = data.columns, data.keys or SOURCE_TARGET
            if data.swap:
                columns, keys = (columns[1], columns[0]), (keys[1], keys[0])
            return parallel_text(path, columns=columns, keys=keys)
        if self._recipe.task == "classification":
            return labeled_text(path, columns=data.columns, keys=data.keys or LABEL_TEXT)
        return plain_text(path, column=data.columns[0], key=(data.keys or ("text",))[0])

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

    def examples(
        self, split: str, count: int = 0, *, domain: str | None = None
    ) -> list[tuple[str, ...]]:
        """Return the first rows of a split (or of one of its domains); all for a count of 0."""
        rows = self.rows(split) if domain is None else self._domain_rows(split, domain)
        checked = read_checked(rows, self.checks) if rows else ()
        return [example.texts for example in islice(checked, count or None)]

    def _domain_rows(self, split: str, domain: str) -> Rows | None:
        data, given = self._data, getattr(self._data, split)
        if given is None:  # none, or generated
            return self.rows(split)
        sources = data.sources(split) or data.sources("train")
        kept = [one for one in sources if _domain_of(one) == domain]
        field = "train" if isinstance(given, float) else split
        part = self._recipe.model_copy(update={"data": data.model_copy(update={field: kept})})
        return TextSources(part).rows(split)


def _domain_of(source: Source) -> str:
    return source.domain if isinstance(source, WeightedFile) else ""


def _join(parts: Sequence[Rows]) -> Rows:
    return parts[0] if len(parts) == 1 else JoinedRows(tuple(parts))
