"""What is wrong with text that was read, and what is done about it, reported once."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np

from regard.data.readers import SOURCE_TARGET, Row, Rows
from regard.errors import InputError, UnknownNameError, nearest
from regard.files import atomic_path

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
def open_ledger(path: str | Path) -> Iterator[Ledger]:
    """A ledger that appears at `path` when all is done, and not at all when something fails."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
    ):
        yield Ledger(stream)


def hash_of(texts: Sequence[str]) -> int:
    """Sixty-four bits that tell one row from another.

    Among ten million rows the chance that any two different ones share them is three in a million.
    """
    joined = "\x00".join(texts).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


class Seen:
    """Hashes seen so far, as sorted runs that are merged when they grow alike in size."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """For each hash, whether it was there before; after this, all of them are."""
        values = np.array(hashes, dtype=np.uint64)
        different, first = np.unique(values, return_index=True)
        known = np.zeros(len(different), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, different)
            known |= run[np.minimum(places, len(run) - 1)] == different
        repeated = np.ones(len(values), dtype=bool)
        repeated[first[~known]] = False
        self._keep(different[~known])
        return repeated

    def _keep(self, fresh: np.ndarray) -> None:
        if len(fresh):
            self._runs.append(fresh)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)


Policy = Literal["keep", "drop", "stop"]
PROBLEMS = {
    "unequal": "lines without a partner in the other file",
    "malformed": "lines that are no rows",
    "encoding": "lines that are not valid UTF-8",
    "mark": "files that begin with a byte order mark",
    "empty": "rows with an empty side",
    "long": "rows with too many characters",
    "ratio": "rows with one side far longer than the other",
    "duplicate": "rows that were there before",
    "label": "rows with a label that is not among the classes",
    "tokens": "rows with too many tokens",
}
"""Everything that can be wrong with a row, in the order in which it is looked for."""

EXAMPLES = 5
_CHUNK = 4096
_TOO_SHORT_TO_COMPARE = 30


@dataclass(frozen=True)
class Checks:
    """What to do with each kind of problem: keep the row, drop it, or stop when all is read.

    An unequal row that is kept has an empty other side. A row in a broken encoding that is kept has
    U+FFFD in place of what cannot be read. The first line of a file loses its byte order mark.
    """

    unequal: Policy = "stop"
    malformed: Policy = "stop"
    encoding: Policy = "stop"
    empty: Policy = "drop"
    long: Policy = "keep"
    ratio: Policy = "keep"
    duplicate: Policy = "keep"
    label: Policy = "stop"
    tokens: Policy = "drop"
    max_characters: int = 5_000
    max_ratio: float = 8.0
    max_tokens: int | None = None

    def __post_init__(self):
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name in PROBLEMS and value not in get_args(Policy):
                raise UnknownNameError(
                    f"checks.{entry.name} is {value!r}; {nearest(str(value), get_args(Policy))}."
                )
        for name in ("malformed", "label", "tokens"):
            if getattr(self, name) == "keep":
                raise InputError(f"checks.{name} cannot be 'keep'; say 'drop' or 'stop'.")

    def policy(self, problem: str) -> Policy:
        """What to do about a problem; a byte order mark is always taken off and never a fault."""
        return "keep" if problem == "mark" else getattr(self, problem)


@dataclass(frozen=True, slots=True)
class CleanRow:
    """A row that passed."""

    file: str
    line: int
    texts: tuple[str, ...]


@dataclass
class Problem:
    """How often a problem was met, and where first."""

    count: int = 0
    dropped: int = 0
    changed: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class CleaningReport:
    """What a reading came to."""

    read: int = 0
    kept: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The report for people: one line for the sum, one for each problem."""
        told = [f"{self.read:,} lines read, {self.kept:,} kept."]
        return told + ["  " + self._line(name) for name in PROBLEMS if name in self.problems]

    def _line(self, problem: str) -> str:
        found = self.problems[problem]
        fates = [f"{found.dropped:,} dropped"] * bool(found.dropped)
        fates += [f"{found.changed:,} changed"] * bool(found.changed)
        return f"{self.sentence(problem)}: {', '.join(fates) or 'kept'}"

    def sentence(self, problem: str) -> str:
        """How many and where."""
        found = self.problems[problem]
        more = ", …" if found.count > len(found.places) else ""
        where = "; ".join(
            f"{file} line {', '.join(str(line) for _, line in group)}"
            for file, group in groupby(found.places, key=itemgetter(0))
        )
        return f"{found.count:,} {PROBLEMS[problem]} ({where}{more})"

    def as_dict(self) -> dict[str, Any]:
        """The report for programs."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "CleaningReport":
        """The report that `as_dict` gave."""
        report = cls(stored["read"], stored["kept"])
        for name, found in stored["problems"].items():
            places = [(file, line) for file, line in found["places"]]
            report.problems[name] = Problem(**(found | {"places": places}))
        return report


class Checker:
    """Looks at rows in the order they come; knows at the end what there was."""

    def __init__(self, names: tuple[str, ...], checks: Checks, ledger: Ledger | None = None):
        self.report = CleaningReport()
        self._names = names
        self._checks = checks
        self._ledger = ledger
        self._seen = Seen()

    def check(self, rows: list[Row]) -> list[CleanRow]:
        """The examples among the rows."""
        self.report.read += len(rows)
        passed = [example for row in rows if (example := self._checked(row))]
        repeated = self._seen.add([hash_of(example.texts) for example in passed])
        kept = [
            example
            for example, again in zip(passed, repeated.tolist(), strict=True)
            if not (again and self.refuse("duplicate", example))
        ]
        self.report.kept += len(kept)
        return kept

    def finish(self) -> None:
        """Stop if anything was found that must stop; all of it is in the sentence."""
        stops = [name for name in self.report.problems if self._checks.policy(name) == "stop"]
        if not stops:
            return
        what = " and ".join(self.report.sentence(name) for name in stops)
        how = ", ".join(f"checks.{name}" for name in stops)
        raise InputError(
            f"Of {self.report.read:,} lines read there are {what}. Mend them, or set {how} to "
            "'drop' (or 'keep', where that makes sense)."
        )

    def refuse(self, problem: str, example: CleanRow, *, late: bool = False) -> bool:
        """Note the problem; whether the example has to go because of it."""
        return self._note(problem, (example.file, example.line), example.texts, late=late)

    def _note(
        self, problem: str, place: tuple[str, int], texts: Iterable[object], *, late: bool = False
    ) -> bool:
        found = self.report.problems.setdefault(problem, Problem())
        found.count += 1
        if len(found.places) < EXAMPLES:
            found.places.append(place)
        policy = self._checks.policy(problem)
        changed = policy == "keep" and problem in ("encoding", "mark", "unequal")
        found.dropped += policy == "drop"
        found.changed += changed
        if late and policy != "keep":
            self.report.kept -= 1
        if self._ledger and (changed or policy == "drop"):
            action = "changed" if changed else "dropped"
            self._ledger.write(*place, action, problem, texts)
        return policy != "keep"

    def _checked(self, row: Row) -> CleanRow | None:
        if row.fault:
            self._note("malformed", (row.file, row.line), [row.fault, *row.fields])
            return None
        if None in row.fields:
            alone = next(side for side, field in enumerate(row.fields) if field is not None)
            if self._note("unequal", _place(row, alone), row.fields):
                return None
        texts = self._texts(row)
        if texts is None:
            return None
        for problem, side in self._problems(texts):
            if self._note(problem, _place(row, side), texts):
                return None
        return CleanRow(row.file, row.line, texts)

    def _texts(self, row: Row) -> tuple[str, ...] | None:
        present = [one or b"" for one in row.fields]
        try:
            texts = tuple(one.decode() for one in present)
        except UnicodeDecodeError as error:
            broken = present.index(error.object)
            if self._note("encoding", _place(row, broken), row.fields):
                return None
            texts = tuple(one.decode(errors="replace") for one in present)
        marked = [text.startswith("\ufeff") for text in texts] if row.line == 1 else []
        if any(marked):
            self._note("mark", _place(row, marked.index(True)), texts)
            texts = tuple(text.removeprefix("\ufeff") for text in texts)
        return texts

    def _problems(self, texts: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """What is wrong, and with which side."""
        blank = [not text or text.isspace() for text in texts]
        if any(blank):
            yield "empty", blank.index(True)
        sizes = [len(text) for text in texts]
        longest = sizes.index(max(sizes))
        if sizes[longest] > self._checks.max_characters:
            yield "long", longest
        comparable = self._names == SOURCE_TARGET and sizes[longest] > _TOO_SHORT_TO_COMPARE
        if comparable and sizes[longest] > self._checks.max_ratio * min(sizes):
            yield "ratio", longest


def _place(row: Row, side: int) -> tuple[str, int]:
    """Where a field stands."""
    return row.file_of(side), row.line


def read_checked(rows: Rows, checks: Checks, *, ledger: Ledger | None = None) -> Iterator[CleanRow]:
    """The examples that pass, one by one; problems that must stop do so after the last."""
    checker = Checker(rows.names, checks, ledger)
    for chunk in chunks(rows):
        yield from checker.check(chunk)
    checker.finish()


def chunks(rows: Iterable[Row], size: int = _CHUNK) -> Iterator[list[Row]]:
    """The rows in lists of `size`, so that work on them can be shared out."""
    iterator = iter(rows)
    while chunk := list(islice(iterator, size)):
        yield chunk
