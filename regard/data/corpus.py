"""Tokenized text on disk: made once from its files, then opened at no cost, however large."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, SupportsIndex

import numpy as np

from regard.data.ragged import Ragged, RaggedWriter, paths_of, smallest_type
from regard.data.readers import Rows
from regard.data.text_checks import Checker, Checks, CleaningReport, CleanRow, chunks, open_ledger
from regard.errors import FileError, InputError
from regard.files import cache_key, cached_folder, write_atomic
from regard.text.tokenizer import Tokenizer

VERSION = 1
"""Counts up when the same settings begin to give other files."""
LABEL = "label"
LEDGER = "ledger.tsv"
DESCRIPTION = "corpus.json"
Progress = Callable[[int], None]
"""Called from time to time with the number of lines read so far."""

_LABEL_TYPE = np.dtype(np.uint32)


class NoExampleError(InputError):
    """Rows of which not one can be learned from."""


def report_lines(report: CleaningReport, ledger: Path) -> list[str]:
    """The report of a reading for people, with the place of the ledger if anything is in it."""
    noted = any(found.dropped or found.changed for found in report.problems.values())
    return report.lines() + [f"  Each line that was dropped or changed: {ledger}"] * noted


class CorpusWriter:
    """Checks rows, cuts them into tokens and writes these down, a chunk at a time."""

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
        self._names = names
        self._tokenizers = dict(zip(texts, tokenizers, strict=True))
        self._checks = checks
        self._specials = specials
        self._given = None if classes is None else list(classes)
        self._classes = {name: number for number, name in enumerate(classes or ())}

    def settings(self) -> dict[str, Any]:
        """Everything but the rows that decides what is written."""
        return {
            "version": VERSION,
            "tokenizers": [self._tokenizers[name].fingerprint for name in self._tokenizers],
            "checks": asdict(self._checks),
            "specials": self._specials,
            "classes": self._given,
        }

    def write(self, rows: Rows, folder: Path, progress: Progress | None = None) -> None:
        """Fill a folder with the corpus of these rows."""
        with ExitStack() as stack:
            ledger = stack.enter_context(open_ledger(folder / LEDGER))
            checker = Checker(self._names, self._checks, ledger)
            fields = {
                name: stack.enter_context(closing(RaggedWriter(folder, name, self._type_of(name))))
                for name in self._names
            }
            for chunk in chunks(rows):
                self._append(checker.check(chunk), checker, fields)
                if progress:
                    progress(checker.report.read)
            checker.finish()
        report = checker.report
        if report.kept == 0:
            told = " ".join(line.strip() for line in report.lines())
            raise NoExampleError(f"There is no example to learn from. {told}")
        described = {
            "version": VERSION,
            "names": self._names,
            "count": report.kept,
            "dtypes": [self._type_of(name).name for name in self._names],
            "totals": [fields[name].total for name in self._names],
            "classes": self._sorted_classes(folder) if LABEL in self._names else None,
            "report": report.as_dict(),
        }
        write_atomic(folder / DESCRIPTION, json.dumps(described, ensure_ascii=False, indent=1))

    def _type_of(self, name: str) -> np.dtype:
        return _LABEL_TYPE if name == LABEL else smallest_type(len(self._tokenizers[name]))

    def _append(
        self, examples: list[CleanRow], checker: Checker, fields: dict[str, RaggedWriter]
    ) -> None:
        columns = [
            self._ids(name, [example.texts[number] for example in examples])
            for number, name in enumerate(self._names)
        ]
        kept = [
            number
            for number, example in enumerate(examples)
            if not self._refused(example, [column[number] for column in columns], checker)
        ]
        for name, column in zip(self._names, columns, strict=True):
            fields[name].append([column[number] for number in kept])

    def _ids(self, name: str, texts: list[str]) -> list[list[int]]:
        if name != LABEL:
            return self._tokenizers[name].encode_batch(texts, specials=self._specials, literal=True)
        if self._given is None:
            for text in texts:
                self._classes.setdefault(text, len(self._classes))
        return [[self._classes[text]] if text in self._classes else [] for text in texts]

    def _refused(self, example: CleanRow, ids: list[list[int]], checker: Checker) -> bool:
        limit = self._checks.max_tokens
        if limit is not None and max(map(len, ids)) > limit:
            return checker.refuse("tokens", example, late=True)
        if LABEL in self._names and not ids[self._names.index(LABEL)]:
            return checker.refuse("label", example, late=True)
        return False

    def _sorted_classes(self, folder: Path) -> list[str]:
        """The classes in the order of their numbers; classes that were met are numbered by name."""
        if self._given is not None:
            return self._given
        names = sorted(self._classes)
        path = paths_of(folder, LABEL)[0]
        labels = np.memmap(path, _LABEL_TYPE, mode="r+")
        rank = np.array([names.index(name) for name in self._classes], dtype=_LABEL_TYPE)
        for start in range(0, len(labels), 2**16):
            labels[start : start + 2**16] = rank[labels[start : start + 2**16]]
        labels.flush()
        return names


class Corpus:
    """Tokenized examples, mapped into memory; `corpus[i]` is one array for each field."""

    def __init__(self, folder: Path, described: dict[str, Any]):
        self.folder = folder
        self.names: tuple[str, ...] = tuple(described["names"])
        self.report = CleaningReport.from_dict(described["report"])
        self.classes: tuple[str, ...] | None = (
            None if described["classes"] is None else tuple(described["classes"])
        )
        self.fields = tuple(
            Ragged(folder, name, np.dtype(dtype), count=described["count"], total=total)
            for name, dtype, total in zip(
                self.names, described["dtypes"], described["totals"], strict=True
            )
        )

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """The corpus in a folder that `build_corpus` made."""
        path = Path(folder) / DESCRIPTION
        try:
            described = json.loads(path.read_bytes())
        except OSError as error:
            raise FileError(f"{folder} holds no corpus: {error.strerror}.") from error
        except ValueError as error:
            raise FileError(f"{path} is damaged: delete its folder and make it again.") from error
        return cls(Path(folder), described)

    def __len__(self) -> int:
        return len(self.fields[0])

    def __getitem__(self, index: SupportsIndex) -> tuple[np.ndarray, ...]:
        return tuple(field[index] for field in self.fields)

    @property
    def lengths(self) -> tuple[np.ndarray, ...]:
        """How many tokens each example has, for every field of text."""
        texts = zip(self.names, self.fields, strict=True)
        return tuple(field.lengths for name, field in texts if name != LABEL)

    @property
    def labels(self) -> np.ndarray:
        """The number of each example's class."""
        if LABEL not in self.names:
            raise InputError("This corpus has no labels.")
        return self.fields[self.names.index(LABEL)].flat

    @property
    def ledger(self) -> Path:
        """The table of what was dropped or changed."""
        return self.folder / LEDGER


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
    """The tokenized corpus of `rows`, made if this very one has not been made before.

    Args:
        tokenizers: one for every field of text, or one for all.
        cache: the folder in which corpora are kept, each under the hash of all it depends on.
        specials: put each tokenizer's start and end tokens around every text.
        classes: the labels in the order of their numbers; those met, sorted, if None.
    """
    cache, checks = Path(cache), checks or Checks()
    with TemporaryDirectory() as spool:
        rows = rows.with_stdin_saved(Path(spool))
        writer = CorpusWriter(
            rows.names, tokenizers, checks=checks, specials=specials, classes=classes
        )
        key = cache_key({"rows": rows.fingerprint(), **writer.settings()})
        folder = cached_folder(cache / key, lambda folder: writer.write(rows, folder, progress))
    return Corpus.open(folder)
