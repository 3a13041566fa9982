"""Dates as people write them in many languages, with their ISO form: data without end."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.data.batches import uniform_draws
from regard.data.readers import SOURCE_TARGET, Row
from regard.errors import InputError, UnknownNameError, nearest

LOCALES = (
    "en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "fi", "pl",
    "cs", "hu", "ro", "tr", "el", "ru", "uk", "ko", "ja", "zh", "vi", "id",
)  # fmt: skip
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
HELD_OUT = 20
"""One day in so many is held out: no language shows it in training."""

Split = Literal["train", "held-out"]
Kind = Literal["fixed", "year", "d", "M", "E"]
_WIDTHS = ("short", "medium", "long", "full")
_SKELETONS = ("yMd", "yMMMd", "yMMMMd", "yMMMEd")
_CHUNK = 1024
_TABLES: dict[str, tuple[Kind, int]] = {
    "d": ("d", 31),
    "M": ("M", 12),
    "L": ("M", 12),
    "E": ("E", 7),
    "c": ("E", 7),
}
"""What the letters of a pattern stand for, and how many entries there are."""


@dataclass(frozen=True)
class Part:
    """A piece of a written date: fixed characters, or what a table has for day, month, weekday."""

    kind: Kind
    table: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        return all(entry.isdigit() for entry in self.table)


@dataclass(frozen=True)
class Template:
    """One way in which one language writes dates."""

    locale: str
    pattern: str
    parts: tuple[Part, ...]

    def write(self, day: date) -> str:
        """The day in these words."""
        place = {"fixed": 0, "d": day.day - 1, "M": day.month - 1, "E": day.weekday()}
        return "".join(
            str(day.year) if part.kind == "year" else part.table[place[part.kind]]
            for part in self.parts
        )

    def meanings(self) -> Iterator[tuple[str, str]]:
        """Each shape this can take, and what is to be read from it.

        Two templates that share a shape but not its meaning cannot be told apart by any reader.
        """
        numbers = "".join(part.kind for part in self.parts if part.kind in "dM" and part.is_number)
        for month in range(12):
            shape = "".join(self._shape(part, month) for part in self.parts)
            yield shape, numbers if "M" in numbers else str(month)

    def _shape(self, part: Part, month: int) -> str:
        if part.kind == "year":
            return "####"
        if part.kind == "d" or (part.kind == "M" and part.is_number):
            return "#"
        return "|".join(part.table) if part.kind != "M" else part.table[month]


@cache
def templates(locales: Sequence[str]) -> tuple[Template, ...]:
    """The ways in which these languages write dates, without those that could mean two days."""
    found = [template for name in locales for template in _templates_of(name)]
    meanings: dict[str, set[str]] = defaultdict(set)
    for template in found:
        for shape, meaning in template.meanings():
            meanings[shape].add(meaning)
    return tuple(
        template
        for template in found
        if all(len(meanings[shape]) == 1 for shape, _ in template.meanings())
    )


def _templates_of(name: str) -> Iterator[Template]:
    from babel import Locale, UnknownLocaleError
    from babel.dates import tokenize_pattern

    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError) as error:
        raise UnknownNameError(f"There is no locale {name!r}; {nearest(name, LOCALES)}.") from error
    patterns = [locale.date_formats[width].pattern for width in _WIDTHS]
    skeletons = locale.datetime_skeletons
    patterns += [skeletons[key].pattern for key in _SKELETONS if key in skeletons]
    for pattern in dict.fromkeys(patterns):
        parts = [_part(value, locale) for _, value in tokenize_pattern(pattern)]
        kinds = {part.kind if part else None for part in parts}
        if None not in kinds and kinds >= {"d", "M", "year"}:
            yield Template(name, pattern, tuple(part for part in parts if part))


def _part(value: str | tuple[str, int], locale: Any) -> Part | None:
    """Characters, or the field of a letter and width; None for fields that no date needs."""
    from babel.dates import DateTimeFormat

    if isinstance(value, str):
        return Part("fixed", (value,))
    letter, width = value
    field = letter * width
    if letter == "y":  # a year of two digits could mean two centuries
        return None if width == 2 else Part("year", ())
    if letter == "G":
        return Part("fixed", (DateTimeFormat(FIRST, locale)[field],))
    if letter not in _TABLES:
        return None
    kind, size = _TABLES[letter]
    # the first of May 2023 was a Monday, and May has 31 days
    days = [date(2023, n, 1) if kind == "M" else date(2023, 5, n) for n in range(1, size + 1)]
    return Part(kind, tuple(DateTimeFormat(day, locale)[field] for day in days))


@dataclass(frozen=True)
class Dates:
    """Pairs of a written date and its ISO form; pair `i` is always the same, for any `i`.

    Days of the split "held-out" are never written in the split "train", in whichever language.
    """

    count: int
    seed: int = 0
    split: Split = "train"
    locales: tuple[str, ...] = LOCALES

    def __post_init__(self):
        if self.split not in ("train", "held-out"):
            raise UnknownNameError(f"There is no split {self.split!r}, only train and held-out.")
        if self.count < 1 or not templates(self.locales):
            raise InputError("Dates need a count of 1 or more and at least one locale.")

    @property
    def names(self) -> tuple[str, ...]:
        return SOURCE_TARGET

    @cached_property
    def _days(self) -> np.ndarray:
        days = np.arange(FIRST.toordinal(), LAST.toordinal() + 1)
        held_out = uniform_draws(0, 0, days, 1)[:, 0] < 1 / HELD_OUT  # the same days for every seed
        return days[held_out if self.split == "held-out" else ~held_out]

    @cached_property
    def _ways(self) -> list[list[Template]]:
        by_locale: dict[str, list[Template]] = defaultdict(list)
        for template in templates(self.locales):
            by_locale[template.locale].append(template)
        return list(by_locale.values())

    def pair(self, number: int) -> tuple[str, str]:
        """A date as people write it, and its ISO form."""
        return self._pairs(np.array([number]))[0]

    def _pairs(self, numbers: np.ndarray) -> list[tuple[str, str]]:
        epoch = 1 if self.split == "held-out" else 0
        pairs = []
        for which_day, which_locale, which_way in uniform_draws(
            self.seed, epoch, numbers, 3
        ).tolist():
            day = date.fromordinal(int(self._days[int(which_day * len(self._days))]))
            ways = self._ways[int(which_locale * len(self._ways))]
            pairs.append((ways[int(which_way * len(ways))].write(day), day.isoformat()))
        return pairs

    def endless(self, *, start: int = 0) -> Iterator[tuple[str, str]]:
        """Pairs without end, from number `start` on."""
        for first in count_up(start, _CHUNK):
            yield from self._pairs(np.arange(first, first + _CHUNK))

    def __iter__(self) -> Iterator[Row]:
        for line, (written, iso) in enumerate(islice(self.endless(), self.count), 1):
            yield Row("dates", line, (written.encode(), iso.encode()))

    def fingerprint(self) -> str:
        """A hash of the settings and of every template, for languages change with Babel."""
        ways = [
            [one.locale, *(part.table for part in one.parts)] for one in templates(self.locales)
        ]
        described = json.dumps([self.count, self.seed, self.split, ways])
        return hashlib.sha256(described.encode()).hexdigest()

    def with_stdin_saved(self, folder: Path) -> "Dates":
        """These very dates; they come from no file."""
        return self
