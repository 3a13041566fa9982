"""Tokenised text on disk: made once from its files, then opened at no cost, however large."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, SupportsIndex

import numpy as np

from regard.data.cache import key_of, made_once
from regard.data.checks import Checks, Report
from regard.data.corpus_writer import DESCRIPTION, LABEL, LEDGER, CorpusWriter, Progress
from regard.data.ragged import Ragged
from regard.data.rows import Rows
from regard.errors import FileError, InputError
from regard.text.tokenizer import Tokenizer


class Corpus:
    """Tokenised examples, mapped into memory; `corpus[i]` is one array for each field."""

    def __init__(self, folder: Path, described: dict[str, Any]):
        self.folder = folder
        self.names: tuple[str, ...] = tuple(described["names"])
        self.report = Report.from_dict(described["report"])
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
    """The tokenised corpus of `rows`, made if this very one has not been made before.

    Args:
        tokenizers: one for every field of text, or one for all.
        cache: the folder in which corpora are kept, each under the hash of all it depends on.
        specials: put each tokenizer's start and end tokens around every text.
        classes: the labels in the order of their numbers; those met, sorted, if None.
    """
    cache, checks = Path(cache), checks or Checks()
    with TemporaryDirectory() as spool:
        rows = rows.settled(Path(spool))
        writer = CorpusWriter(
            rows.names, tokenizers, checks=checks, specials=specials, classes=classes
        )
        key = key_of({"rows": rows.fingerprint(), **writer.settings()})
        folder = made_once(cache / key, lambda folder: writer.write(rows, folder, progress))
    return Corpus.open(folder)
