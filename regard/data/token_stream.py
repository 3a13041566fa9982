"""Text files as one long list of token ids on disk, for language models."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from regard.data.corpus import LEDGER, memory_map, read_stored, smallest_type, written_once
from regard.data.readers import TEXT, Rows
from regard.data.text_checks import Checker, Checks, CleaningReport, CleanRow, Progress, open_ledger
from regard.errors import InputError
from regard.files import write_atomic
from regard.text.tokenizer import Tokenizer

VERSION = 1
RUNNING_TEXT = Checks(empty="keep", long="keep", duplicate="keep")
"""Empty and repeated lines belong to running text."""

_DESCRIPTION = "stream.json"
_PIECE = 2**13  # characters that are tokenized together
_BUFFER = 2**20
# No tokenizer joins the text before a single space with that space and the text after it.
_SPACE = re.compile(r"(?<=\S) (?=\S)")
# Text without such spaces (Chinese, one word per line) is cut after the end of a line, or before
# several whitespace characters: empty lines, indented ones.
_ANY = re.compile(rf"{_SPACE.pattern}|(?<=\S\n)(?=\S)|(?<=\S)(?=\s\s)")


class TokenStream:
    """One long list of ids, memory-mapped from a folder of `build_stream`."""

    def __init__(self, folder: Path):
        described = read_stored(folder / _DESCRIPTION)
        self.report = CleaningReport.from_dict(described["report"])
        self.ids = memory_map(folder / "text.ids", np.dtype(described["dtype"]), described["total"])
        self.ledger = folder / LEDGER  # the table of dropped and changed lines

    def __len__(self) -> int:
        return len(self.ids)


def build_stream(
    rows: Rows,
    tokenizer: Tokenizer,
    *,
    cache: str | Path,
    checks: Checks = RUNNING_TEXT,
    progress: Progress | None = None,
) -> TokenStream:
    """Tokenize text files, or open the stream that was built from them before.

    Lines are joined by line feeds, files by the end token if the tokenizer has one.
    """
    if rows.names != TEXT:
        raise InputError(f"A token stream needs plain text, not {' and '.join(rows.names)}.")
    settings = {"stream": VERSION, "checks": asdict(checks), "tokenizer": tokenizer.fingerprint}
    write = partial(_write, tokenizer, checks, progress)
    return TokenStream(written_once(rows, cache, settings, write))


def _write(
    tokenizer: Tokenizer, checks: Checks, progress: Progress | None, rows: Rows, folder: Path
) -> None:
    dtype = smallest_type(len(tokenizer))
    total = 0
    with open_ledger(folder / LEDGER) as ledger, (folder / "text.ids").open("wb") as stream:
        checker = Checker(rows.names, checks, ledger)
        for ids in _ids(chain.from_iterable(checker.check_all(rows, progress)), tokenizer):
            total += len(ids)
            stream.write(np.array(ids, dtype).tobytes())
    if total == 0:
        raise InputError("There is no text to train on: " + " ".join(checker.report.lines()))
    described = {"dtype": dtype.name, "total": total, "report": asdict(checker.report)}
    write_atomic(folder / _DESCRIPTION, json.dumps(described, indent=1))


def _ids(rows: Iterator[CleanRow], tokenizer: Tokenizer) -> Iterator[list[int]]:
    file, before, buffer, size = None, "", [""], 0
    for row in rows:
        if file not in (None, row.file):
            yield from encode_pieces(split_text("".join(buffer)), tokenizer, before=before)
            yield [] if tokenizer.end_id is None else [tokenizer.end_id]
            before, buffer, size = "", [""], 0
        file = row.file
        buffer.append(row.texts[0] + "\n")
        size += len(buffer[-1])
        if size > _BUFFER:
            *pieces, rest = split_text("".join(buffer))
            yield from encode_pieces(pieces, tokenizer, before=before)
            before, buffer, size = pieces[-1][-1] if pieces else before, [rest], 0
    yield from encode_pieces(split_text("".join(buffer)), tokenizer, before=before)


def split_text(text: str, *, size: int = _PIECE) -> list[str]:
    """Split a text into pieces of about `size` characters, for `encode_pieces`."""
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
    """Return the ids of each piece of a text, the same as in the whole text.

    Each piece is tokenized together with the character before it (`before` for the first), whose
    tokens are then removed, because many tokenizers mark the start of a text.
    """
    fronts = [before, *(piece[-1:] for piece in pieces[:-1])]
    whole = [front + piece for front, piece in zip(fronts, pieces, strict=False)]
    options = {"specials": False, "literal": True}
    extra = map(len, tokenizer.encode_batch(fronts[: len(whole)], **options))
    encoded = tokenizer.encode_batch(whole, **options)
    return [ids[count:] for ids, count in zip(encoded, extra, strict=True)]
