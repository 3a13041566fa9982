"""Text files as one long list of tokens on disk, for language models."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from regard.data.corpus import LEDGER, Progress
from regard.data.ragged import mapped, smallest_type
from regard.data.readers import TEXT, Rows
from regard.data.text_checks import Checker, Checks, CleaningReport, CleanRow, chunks, open_ledger
from regard.errors import FileError, InputError
from regard.files import cache_key, cached_folder, write_atomic
from regard.text.tokenizer import Tokenizer

VERSION = 1
RUNNING_TEXT = Checks(empty="keep", long="keep", duplicate="keep")
"""Empty lines and lines that repeat belong to running text."""

_DESCRIPTION = "stream.json"
_PIECE = 2**13  # characters that are cut into tokens together
_BUFFER = 2**20
# No tokenizer joins what stands before a single space with the space and what follows it.
_SPACE = re.compile(r"(?<=\S) (?=\S)")
# Text without such spaces (Chinese, one word to a line) is cut behind the end of a line, or before
# white space: empty lines, indented ones.
_ANY = re.compile(rf"{_SPACE.pattern}|(?<=\S\n)(?=\S)|(?<=\S)(?=\s\s)")


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
        self.report = CleaningReport.from_dict(described["report"])
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
        rows = rows.with_stdin_saved(Path(spool))
        parts = {"stream": VERSION, "rows": rows.fingerprint(), "checks": asdict(checks)}
        key = cache_key(parts | {"tokenizer": tokenizer.fingerprint})
        folder = cached_folder(
            Path(cache) / key, lambda folder: _write(rows, tokenizer, checks, folder, progress)
        )
    return TokenStream(folder)


def _write(
    rows: Rows, tokenizer: Tokenizer, checks: Checks, folder: Path, progress: Progress | None
) -> None:
    dtype = smallest_type(len(tokenizer))
    total = 0
    with open_ledger(folder / LEDGER) as ledger, (folder / "text.ids").open("wb") as stream:
        checker = Checker(rows.names, checks, ledger)
        for ids in _ids(_examples(rows, checker, progress), tokenizer):
            total += len(ids)
            stream.write(np.array(ids, dtype).tobytes())
        checker.finish()
    if total == 0:
        raise InputError("There is no text to learn from: " + " ".join(checker.report.lines()))
    described = {"dtype": dtype.name, "total": total, "report": checker.report.as_dict()}
    write_atomic(folder / _DESCRIPTION, json.dumps(described, indent=1))


def _examples(rows: Rows, checker: Checker, progress: Progress | None) -> Iterator[CleanRow]:
    for chunk in chunks(rows):
        yield from checker.check(chunk)
        if progress:
            progress(checker.report.read)


def _ids(examples: Iterator[CleanRow], tokenizer: Tokenizer) -> Iterator[list[int]]:
    file, before, waiting, size = None, "", [""], 0
    for example in examples:
        if file not in (None, example.file):
            yield from encode_pieces(pieces_of_text("".join(waiting)), tokenizer, before=before)
            yield [] if tokenizer.end_id is None else [tokenizer.end_id]
            before, waiting, size = "", [""], 0
        file = example.file
        waiting.append(example.texts[0] + "\n")
        size += len(waiting[-1])
        if size > _BUFFER:
            *pieces, rest = pieces_of_text("".join(waiting))
            yield from encode_pieces(pieces, tokenizer, before=before)
            before, waiting, size = pieces[-1][-1] if pieces else before, [rest], 0
    yield from encode_pieces(pieces_of_text("".join(waiting)), tokenizer, before=before)


def pieces_of_text(text: str, *, size: int = _PIECE) -> list[str]:
    """The text in pieces of about `size` characters, for `encode_pieces`."""
    pieces, start = [], 0
    while len(text) - start > size:
        first = start + size
        cut = _SPACE.search(text, first, first + size) or _ANY.search(text, first)
        if cut is None:
            break
        pieces.append(text[start : cut.start()])
        start = cut.start()
    return [*pieces, text[start:]]


def encode_pieces(
    pieces: Sequence[str], tokenizer: Tokenizer, *, before: str = ""
) -> list[list[int]]:
    """The ids of each piece of a text as they are in the whole text.

    Each is cut into tokens behind the character that stands before it, whose own tokens are then
    left out: many tokenizers mark the beginning of whatever they are given.

    Args:
        before: the character before the first piece.
    """
    fronts = [before, *(piece[-1:] for piece in pieces[:-1])]
    whole = [front + piece for front, piece in zip(fronts, pieces, strict=False)]
    options = {"specials": False, "literal": True}
    extra = map(len, tokenizer.encode_batch(fronts[: len(whole)], **options))
    found = tokenizer.encode_batch(whole, **options)
    return [ids[count:] for ids, count in zip(found, extra, strict=True)]
