"""Text files as one long list of tokens on disk, for language models."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from regard.data.cache import key_of, made_once
from regard.data.checks import Checker, Checks, Example, Report, in_chunks
from regard.data.corpus_writer import LEDGER, Progress
from regard.data.ledger import ledger_at
from regard.data.ragged import mapped, smallest_type
from regard.data.rows import TEXT, Rows
from regard.errors import FileError, InputError
from regard.text.files import write_whole
from regard.text.tokenizer import Tokenizer

VERSION = 1
RUNNING_TEXT = Checks(empty="keep", long="keep", duplicate="keep")
"""Empty lines and lines that repeat belong to running text."""

_DESCRIPTION = "stream.json"
_PIECE = 2**13  # characters that are cut into tokens together
_BUFFER = 2**20
# No tokenizer joins what stands before a single space with the space and what follows it.
_SAFE = re.compile(r"(?<=\S) (?=\S)")


class TokenStream:
    """One long list of ids, mapped into memory."""

    def __init__(self, folder: Path):
        path = folder / _DESCRIPTION
        try:
            described = json.loads(path.read_bytes())
        except OSError as error:
            raise FileError(f"{folder} holds no token stream: {error.strerror}.") from error
        except ValueError as error:
            raise FileError(f"{path} is damaged: delete its folder and make it again.") from error
        self.folder = folder
        self.report = Report.from_dict(described["report"])
        self.ids = mapped(folder / "text.ids", np.dtype(described["dtype"]), described["total"])

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ledger(self) -> Path:
        """The table of what was dropped or changed."""
        return self.folder / LEDGER


def build_stream(
    rows: Rows,
    tokenizer: Tokenizer,
    *,
    cache: str | Path,
    checks: Checks = RUNNING_TEXT,
    progress: Progress | None = None,
) -> TokenStream:
    """The tokens of text files one after another, made if they have not been made before.

    Lines are joined by line feeds, files by the end token if the tokenizer has one.
    """
    if rows.names != TEXT:
        raise InputError(
            f"A token stream is made of plain text, not of {' and '.join(rows.names)}."
        )
    with TemporaryDirectory() as spool:
        rows = rows.settled(Path(spool))
        parts = {"stream": VERSION, "rows": rows.fingerprint(), "checks": asdict(checks)}
        key = key_of(parts | {"tokenizer": tokenizer.fingerprint})
        folder = made_once(
            Path(cache) / key, lambda folder: _write(rows, tokenizer, checks, folder, progress)
        )
    return TokenStream(folder)


def _write(
    rows: Rows, tokenizer: Tokenizer, checks: Checks, folder: Path, progress: Progress | None
) -> None:
    dtype = smallest_type(len(tokenizer))
    total = 0
    with ledger_at(folder / LEDGER) as ledger, (folder / "text.ids").open("wb") as stream:
        checker = Checker(rows.names, checks, ledger)
        for ids in _ids(_examples(rows, checker, progress), tokenizer):
            total += len(ids)
            stream.write(np.array(ids, dtype).tobytes())
        checker.finish()
    if total == 0:
        raise InputError("There is no text to learn from: " + " ".join(checker.report.lines()))
    described = {"dtype": dtype.name, "total": total, "report": checker.report.as_dict()}
    write_whole(folder / _DESCRIPTION, json.dumps(described, indent=1))


def _examples(rows: Rows, checker: Checker, progress: Progress | None) -> Iterator[Example]:
    for chunk in in_chunks(rows):
        yield from checker.check(chunk)
        if progress:
            progress(checker.report.read)


def _ids(examples: Iterator[Example], tokenizer: Tokenizer) -> Iterator[list[int]]:
    file, waiting, size = None, [""], 0
    for example in examples:
        if file not in (None, example.file):
            yield from _encoded(pieces_of_text("".join(waiting)), tokenizer)
            yield [] if tokenizer.end_id is None else [tokenizer.end_id]
            waiting, size = [""], 0
        file = example.file
        waiting.append(example.texts[0] + "\n")
        size += len(waiting[-1])
        if size > _BUFFER:
            *pieces, rest = pieces_of_text("".join(waiting))
            yield from _encoded(pieces, tokenizer)
            waiting, size = [rest], 0
    yield from _encoded(pieces_of_text("".join(waiting)), tokenizer)


def _encoded(pieces: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_batch(pieces, specials=False, literal=True)


def pieces_of_text(text: str, *, size: int = _PIECE) -> list[str]:
    """The text in pieces of about `size` characters that can be tokenised apart from each other."""
    pieces, start = [], 0
    while len(text) - start > size:
        cut = _SAFE.search(text, start + size)
        if cut is None:
            break
        pieces.append(text[start : cut.start()])
        start = cut.start()
    return [*pieces, text[start:]]
