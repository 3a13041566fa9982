"""Synthetic data: dates as they are written in many languages, with their ISO form."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from regard.data.batches import uniform_draws
from regard.data.readers import SOURCE_TARGET, Row
from regard.errors import InputError, UnknownNameError, check_choice, nearest

LOCALES = (
    "en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "fi", "pl",
    "cs", "hu", "ro", "tr", "el", "ru", "uk", "ko", "ja", "zh", "vi", "id",
)  # fmt: skip
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
HELD_OUT = 20  # one day in this many is held out of training, in all languages

Split = Literal["train", "held-out"]
DateFieldKind = Literal["fixed", "year", "d", "M", "E"]
_LETTERS: dict[str, DateFieldKind] = {"d": "d", "M": "M", "L": "M", "E": "E", "c": "E"}
"""The field of each letter in Unicode's date patterns."""


@dataclass(frozen=True)
class DateField:
    """A part of a written date: fixed characters, the year, or a table of days or months."""

    kind: DateFieldKind
    table: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        return all(entry.isdigit() for entry in self.table)


@dataclass(frozen=True)
class Template:
    """A date format of one language."""

    locale: str
    pattern: str
    parts: tuple[DateField, ...]

    def write(self, day: date) -> str:
        index = {"fixed": 0, "d": day.day - 1, "M": day.month - 1, "E": day.weekday()}
        return "".join(
            str(day.year) if part.kind == "year" else part.table[index[part.kind]]
            for part in self.parts
        )

    def meanings(self) -> Iterator[tuple[str, str]]:
        """Yield each shape this format can take, with its meaning.

        Two formats that share a shape but not its meaning are ambiguous.
        """
        numbers = "".join(part.kind for part in self.parts if part.kind in "dM" and part.is_number)
        for month in range(12):
            shape = "".join(self._shape(part, month) for part in self.parts)
            yield shape, numbers if "M" in numbers else str(month)

    def _shape(self, part: DateField, month: int) -> str:
        if part.kind == "year":
            return "####"
        if part.kind == "d" or (part.kind == "M" and part.is_number):
            return "#"
        return "|".join(part.table) if part.kind != "M" else part.table[month]


@cache
def templates(locales: Sequence[str]) -> tuple[Template, ...]:
    """Return the date formats of these languages, without ambiguous ones."""
    found = [template for name in locales for template in _locale_templates(name)]
    meanings: dict[str, set[str]] = defaultdict(set)
    for template in found:
        for shape, meaning in template.meanings():
            meanings[shape].add(meaning)
    return tuple(
        template
        for template in found
        if all(len(meanings[shape]) == 1 for shape, _ in template.meanings())
    )


def _locale_templates(name: str) -> Iterator[Template]:
    from babel import Locale, UnknownLocaleError
    from babel.dates import tokenize_pattern

    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError) as error:
        raise UnknownNameError(f"unknown locale {name!r}; {nearest(name, LOCALES)}.") from error
    styles, skeletons = locale.date_formats, locale.datetime_skeletons
    formats = [styles[width] for width in ("short", "medium", "long", "full")]
    formats += [skeletons[key] for key in ("yMd", "yMMMd", "yMMMMd", "yMMMEd") if key in skeletons]
    for pattern in dict.fromkeys(one.pattern for one in formats):
        parts = [_part(value, locale) for _, value in tokenize_pattern(pattern)]
        kinds = {part.kind if part else None for part in parts}
        if None not in kinds and kinds >= {"d", "M", "year"}:
            yield Template(name, pattern, tuple(part for part in parts if part))


def _part(value: str | tuple[str, int], locale: Any) -> DateField | None:
    """Return fixed characters or the field of a pattern letter; None for unsupported fields."""
    from babel.dates import DateTimeFormat

    if isinstance(value, str):
        return DateField("fixed", (value,))
    letter, width = value
    field = letter * width
    if letter == "y":  # two digits are ambiguous
        return None if width == 2 else DateField("year", ())
    if letter == "G":
        return DateField("fixed", (DateTimeFormat(FIRST, locale)[field],))
    if letter not in _LETTERS:
        return None
    kind = _LETTERS[letter]
    size = {"d": 31, "M": 12, "E": 7}[kind]
    # the first of May 2023 was a Monday, and May has 31 days
    days = [date(2023, n, 1) if kind == "M" else date(2023, 5, n) for n in range(1, size + 1)]
    return DateField(kind, tuple(DateTimeFormat(day, locale)[field] for day in days))


@dataclass(frozen=True)
class Dates:
    """Pairs of a written date and its ISO form; pair `i` depends on the settings only.

    Days of the split "held-out" do not occur in the split "train", in any language.
    """

    count: int
    seed: int = 0
    split: Split = "train"
    locales: tuple[str, ...] = LOCALES

    def __post_init__(self):
        check_choice("split", self.split, get_args(Split))
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
    def _by_locale(self) -> list[list[Template]]:
        groups = groupby(templates(self.locales), key=attrgetter("locale"))
        return [list(group) for _, group in groups]

    def __iter__(self) -> Iterator[Row]:
        epoch = 1 if self.split == "held-out" else 0
        for first in range(0, self.count, 1024):
            numbers = np.arange(first, min(first + 1024, self.count))
            rows = uniform_draws(self.seed, epoch, numbers, 3).tolist()
            for line, (which_day, which_locale, which_format) in enumerate(rows, first + 1):
                day = date.fromordinal(int(self._days[int(which_day * len(self._days))]))
                formats = self._by_locale[int(which_locale * len(self._by_locale))]
                written = formats[int(which_format * len(formats))].write(day)
                yield Row("dates", line, (written.encode(), day.isoformat().encode()))

    def fingerprint(self) -> str:
        """Return a hash of the settings and all formats, which depend on the version of Babel."""
        formats = [[t.locale, *(part.table for part in t.parts)] for t in templates(self.locales)]
        described = json.dumps([self.count, self.seed, self.split, formats])
        return hashlib.sha256(described.encode()).hexdigest()

    def with_stdin_saved(self, folder: Path) -> "Dates":
        return self
