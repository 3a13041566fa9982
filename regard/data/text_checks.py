"""Check rows of text, apply a policy to each problem, and report what was found."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np

from regard.data.readers import SOURCE_TARGET, Row, Rows
from regard.errors import InputError, check_choice
from regard.files import atomic_path, chunks

Progress = Callable[[int], None]  # called regularly with the number of lines read so far
Policy = Literal["keep", "drop", "stop"]
PROBLEMS = {
    "unequal": "lines without a partner in the other file",
    "malformed": "lines that are not valid rows",
    "encoding": "lines that are not valid UTF-8",
    "mark": "files that start with a byte order mark",
    "empty": "rows with an empty side",
    "long": "rows with too many characters",
    "ratio": "rows with one side far longer than the other",
    "duplicate": "rows that occurred before",
    "label": "rows with a label that is not among the classes",
    "tokens": "rows with too many tokens",
}
"""Everything that can be wrong with a row, in the order of the checks."""

EXAMPLES = 5  # locations that a report lists for each problem


def _escape(value: object) -> str:
    """Format a field on one line: tabs, line ends and invalid bytes are escaped."""
    data = value if isinstance(value, bytes) else str("" if value is None else value).encode()
    value = data.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return value.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def open_ledger(path: str | Path) -> Iterator[TextIO]:
    """Open a TSV file for one line for each row that was dropped or changed.

    It appears at `path` only if the block ends without an error.
    """
    with atomic_path(path) as new, new.open("w", encoding="utf-8", newline="") as stream:
        stream.write("file\tline\taction\tproblem\ttext\n")
        yield stream


def row_hash(texts: Sequence[str]) -> int:
    """Return a 64-bit hash; among ten million rows, a collision has a probability of 3e-6."""
    joined = "\x00".join(texts).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


class SeenHashes:
    """A set of hashes as sorted runs, which are merged when they become similar in size."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """Add hashes; return for each whether it was there before."""
        values = np.array(hashes, dtype=np.uint64)
        different, first = np.unique(values, return_index=True)
        known = np.zeros(len(different), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, different)
            known |= run[np.minimum(places, len(run) - 1)] == different
        repeated = np.ones(len(values), dtype=bool)
        repeated[first[~known]] = False
        if not known.all():
            self._runs.append(different[~known])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)
        return repeated

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)


@dataclass(frozen=True)
class Checks:
    """The policy for each problem: keep the row, drop it, or stop after all rows are read.

    An unequal row that is kept has an empty other side. A row with invalid UTF-8 that is kept has
    U+FFFD in place of invalid bytes. The first line of a file loses its byte order mark.
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
        for name, value in asdict(self).items():
            if name in PROBLEMS:
                check_choice(f"checks.{name}", value, get_args(Policy))
        for name in ("malformed", "label", "tokens"):
            if getattr(self, name) == "keep":
                raise InputError(f"checks.{name} cannot be 'keep'; use 'drop' or 'stop'.")

    def policy(self, problem: str) -> Policy:
        """Return the policy for a problem; a byte order mark is always removed."""
        return "keep" if problem == "mark" else getattr(self, problem)


@dataclass(frozen=True, slots=True)
class CleanRow:
    """A row that passed the checks."""

    file: str
    line: int
    texts: tuple[str, ...]
    copies: int = 1


@dataclass
class Problem:
    """The number of rows with a problem, and the first locations."""

    count: int = 0
    dropped: int = 0
    changed: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class CleaningReport:
    """The result of reading and checking rows."""

    read: int = 0
    kept: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Format the report: one line for the total, one for each problem."""
        lines = [f"{self.read:,} lines read, {self.kept:,} kept."]
        for name in PROBLEMS:
            if problem := self.problems.get(name):
                actions = [f"{problem.dropped:,} dropped"] * bool(problem.dropped)
                actions += [f"{problem.changed:,} changed"] * bool(problem.changed)
                lines.append(f"  {self.sentence(name)}: {', '.join(actions) or 'kept'}")
        return lines

    def sentence(self, name: str) -> str:
        """Format the count and the first locations of a problem."""
        problem = self.problems[name]
        more = ", …" if problem.count > len(problem.places) else ""
        where = "; ".join(
            f"{file} line {', '.join(str(line) for _, line in group)}"
            for file, group in groupby(problem.places, key=itemgetter(0))
        )
        return f"{problem.count:,} {PROBLEMS[name]} ({where}{more})"

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "CleaningReport":
        """Build the report from JSON of its `asdict`."""
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(stored)


class Checker:
    """Checks rows in order and collects a report."""

    def __init__(self, names: tuple[str, ...], checks: Checks, ledger: TextIO | None = None):
        self.report = CleaningReport()
        self._names, self._checks, self._ledger = names, checks, ledger
        self._seen = SeenHashes()

    def check(self, rows: list[Row]) -> list[CleanRow]:
        """Return the rows that pass."""
        self.report.read += len(rows)
        passed = [clean for row in rows if (clean := self._checked(row))]
        repeated = self._seen.add([row_hash(row.texts) for row in passed])
        kept = [
            row
            for row, again in zip(passed, repeated.tolist(), strict=True)
            if not (again and self.refuse("duplicate", row))
            for _ in range(row.copies)
        ]
        self.report.kept += len(kept)
        return kept

    def check_all(self, rows: Rows, progress: Progress | None = None) -> Iterator[list[CleanRow]]:
        """Yield the rows that pass, chunk by chunk, and then `finish`."""
        for chunk in chunks(rows):
            yield self.check(chunk)
            if progress:
                progress(self.report.read)
        self.finish()

    def finish(self) -> None:
        """Raise an InputError that lists all problems with the policy "stop", if there are any."""
        stops = [name for name in self.report.problems if self._checks.policy(name) == "stop"]
        if not stops:
            return
        what = " and ".join(self.report.sentence(name) for name in stops)
        how = ", ".join(f"checks.{name}" for name in stops)
        raise InputError(
            f"Of {self.report.read:,} lines read there are {what}. Fix them, or set {how} to "
            "'drop' (or 'keep', where that makes sense)."
        )

    def refuse(self, problem: str, row: CleanRow, *, late: bool = False) -> bool:
        """Record a problem, `late` if the row is counted as kept; return True if it is dropped."""
        refused = self._record(problem, (row.file, row.line), row.texts)
        self.report.kept -= late and refused
        return refused

    def _record(self, name: str, place: tuple[str, int], texts: Iterable[object]) -> bool:
        problem = self.report.problems.setdefault(name, Problem())
        problem.count += 1
        if len(problem.places) < EXAMPLES:
            problem.places.append(place)
        policy = self._checks.policy(name)
        changed = policy == "keep" and name in ("encoding", "mark", "unequal")
        problem.dropped += policy == "drop"
        problem.changed += changed
        if self._ledger and (changed or policy == "drop"):
            cells = [*map(str, place), "changed" if changed else "dropped", name]
            self._ledger.write("\t".join([*cells, *map(_escape, texts)]) + "\n")
        return policy != "keep"

    def _checked(self, row: Row) -> CleanRow | None:
        if row.fault:
            self._record("malformed", (row.file, row.line), [row.fault, *row.fields])
            return None
        if None in row.fields:
            present = next(side for side, field in enumerate(row.fields) if field is not None)
            if self._record("unequal", (row.file_of(present), row.line), row.fields):
                return None
        texts = self._decode(row)
        if texts is None:
            return None
        for problem, side in self._problems(texts):
            if self._record(problem, (row.file_of(side), row.line), texts):
                return None
        return CleanRow(row.file, row.line, texts, row.copies)

    def _decode(self, row: Row) -> tuple[str, ...] | None:
        present = [one or b"" for one in row.fields]
        try:
            texts = tuple(one.decode() for one in present)
        except UnicodeDecodeError as error:
            broken = present.index(error.object)
            if self._record("encoding", (row.file_of(broken), row.line), row.fields):
                return None
            texts = tuple(one.decode(errors="replace") for one in present)
        marked = [text.startswith("\ufeff") for text in texts] if row.line == 1 else []
        if any(marked):
            self._record("mark", (row.file_of(marked.index(True)), row.line), texts)
            texts = tuple(text.removeprefix("\ufeff") for text in texts)
        return texts

    def _problems(self, texts: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Yield each problem with the side that has it."""
        blank = [not text or text.isspace() for text in texts]
        if any(blank):
            yield "empty", blank.index(True)
        sizes = [len(text) for text in texts]
        longest = sizes.index(max(sizes))
        if sizes[longest] > self._checks.max_characters:
            yield "long", longest
        comparable = self._names == SOURCE_TARGET and sizes[longest] > 30
        if comparable and sizes[longest] > self._checks.max_ratio * min(sizes):
            yield "ratio", longest


def read_checked(rows: Rows, checks: Checks, *, ledger: TextIO | None = None) -> Iterator[CleanRow]:
    """Yield the rows that pass; problems with the policy "stop" raise after the last row."""
    yield from chain.from_iterable(Checker(rows.names, checks, ledger).check_all(rows))
