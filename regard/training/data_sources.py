"""Where a recipe's data lie, and which part of them is for training, validation and test."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from regard.training.recipe import PARTS, Files, Recipe, Source

_HELD_OUT_DATES = 2000


def find_data(path: str, root: str | None = None) -> Path:
    """The file or folder that a recipe means by a path.

    It is looked for in `data.root` if the recipe has one, otherwise in $REGARD_DATA and then in the
    current folder. Absolute paths are used unchanged.
    """
    if root is not None:
        places = [Path(root).expanduser()]
    else:
        stated = os.environ.get("REGARD_DATA")
        places = [*([Path(stated)] if stated else []), Path()]
    candidates = [place / Path(path).expanduser() for place in places]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    looked = " nor in ".join(str(place.absolute()) for place in places)
    raise FileError(
        f"the data {path} are not in {looked}: set data.root (--set data.root=FOLDER) or the "
        "environment variable REGARD_DATA to the folder that holds them."
    )


@dataclass(frozen=True)
class Held:
    """The rows whose source or text falls into a stretch of [0, 1) by its hash.

    So rows that share a source are always on the same side, and nothing that was learned by heart
    can be taken for skill.
    """

    rows: Rows
    first: float
    last: float

    @property
    def names(self) -> tuple[str, ...]:
        return self.rows.names

    def __iter__(self) -> Iterator[Row]:
        place = self.names.index("text") if "text" in self.names else 0
        for row in self.rows:
            if self.first <= _fraction(row.fields[place : place + 1]) < self.last:
                yield row

    def fingerprint(self) -> str:
        """A hash of the rows and of the stretch."""
        described = f"{self.rows.fingerprint()} {self.first} {self.last}"
        return hashlib.sha256(described.encode()).hexdigest()

    def with_stdin_saved(self, folder: Path) -> "Held":
        """The same rows, with standard input kept in a file."""
        return Held(self.rows.with_stdin_saved(folder), self.first, self.last)


def _fraction(fields: Sequence[bytes | None]) -> float:
    text = b"".join(field or b"" for field in fields)
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / 2**56


class Sources:
    """The texts of a recipe, by part: "train", "validation" and "test"."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._data = recipe, recipe.data

    @cached_property
    def checks(self) -> Checks:
        """What to do with faulty lines."""
        known = Checks.__dataclass_fields__
        for name in self._data.checks:
            if name not in known:
                raise UnknownNameError(
                    f"the recipe has no key data.checks.{name}; {nearest(name, known)}."
                )
        usual = RUNNING_TEXT if self._recipe.task == "language" else Checks()
        return Checks(**{**{n: getattr(usual, n) for n in known}, **self._data.checks})

    def rows(self, part: str) -> Rows | None:
        """The rows of a part; None where the recipe has no such part."""
        if self._data.generate == "dates":
            return self._dates(part)
        given = getattr(self._data, part)
        if part == "train":
            held = sum(share for share in self._shares() if share)
            return Held(self.whole(), held, 1.0) if held else self.whole()
        if not isinstance(given, float):
            return None if given is None else self._read(part)
        first = 0.0 if part == "test" else self._shares()[0]
        return Held(self.whole(), first, first + given)

    def whole(self) -> Rows:
        """All rows of the training data, with those that are held out as a share."""
        return self._read("train")

    def _shares(self) -> tuple[float, float]:
        """The shares of the training data that are held out for test and validation."""
        test, validation = self._data.test, self._data.validation
        shares = (
            test if isinstance(test, float) else 0.0,
            validation if isinstance(validation, float) else 0.0,
        )
        if sum(shares) >= 1:
            raise InputError("data.validation and data.test hold out all there is.")
        return shares

    def _dates(self, part: str) -> Rows:
        locales = tuple(self._data.locales or LOCALES)
        if part == "train":
            return Dates(self._data.count, locales=locales)
        seed = PARTS.index(part)
        return Dates(_HELD_OUT_DATES, seed=seed, split="held-out", locales=locales)

    def _read(self, part: str) -> Rows:
        parts = [self._read_one(one) for one in self._data.sources(part)]
        if not parts:
            raise InputError(f"data.{part} names no file.")
        return parts[0] if len(parts) == 1 else JoinedRows(tuple(parts))

    def _read_one(self, given: Source) -> Rows:
        data = self._data
        if isinstance(given, Files):
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

    def texts(self, part: str, *, fields: Sequence[int] | None = None) -> Iterator[str]:
        """The texts of a part that pass the checks, for learning a vocabulary.

        Running text is not held out line by line, so its vocabulary is that of the whole.
        """
        running = self._recipe.task == "language"
        rows = self.whole() if running else self.rows(part)
        for example in read_checked(rows, self.checks) if rows else ():
            for number, text in enumerate(example.texts):
                if fields is None or number in fields:
                    yield text + "\n" if running else text

    def examples(self, part: str, count: int = 0) -> list[tuple[str, ...]]:
        """The first rows of a part as they are written; all of them for a count of 0."""
        rows = self.rows(part)
        found: list[tuple[str, ...]] = []
        for example in read_checked(rows, self.checks) if rows else ():
            found.append(example.texts)
            if len(found) == count:
                break
        return found
