"""From rows of text to the files of a tokenised corpus, in memory that does not grow with it."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.checks import Checker, Checks, Example, Report, in_chunks
from regard.data.ledger import ledger_at
from regard.data.ragged import RaggedWriter, paths_of, smallest_type
from regard.data.rows import Rows
from regard.errors import InputError
from regard.text.files import write_whole
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
    """Rows of which not one can be learnt from."""


def reading_told(report: Report, ledger: Path) -> list[str]:
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
            ledger = stack.enter_context(ledger_at(folder / LEDGER))
            checker = Checker(self._names, self._checks, ledger)
            fields = {
                name: stack.enter_context(closing(RaggedWriter(folder, name, self._type_of(name))))
                for name in self._names
            }
            for chunk in in_chunks(rows):
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
        write_whole(folder / DESCRIPTION, json.dumps(described, ensure_ascii=False, indent=1))

    def _type_of(self, name: str) -> np.dtype:
        return _LABEL_TYPE if name == LABEL else smallest_type(len(self._tokenizers[name]))

    def _append(
        self, examples: list[Example], checker: Checker, fields: dict[str, RaggedWriter]
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

    def _refused(self, example: Example, ids: list[list[int]], checker: Checker) -> bool:
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
