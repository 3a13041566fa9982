"""`regard tokenizer`: learn a vocabulary, and see what it makes of text."""

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from regard.cli.options import QuickCommand, QuickGroup
from regard.cli.output import decoded_lines, print_json, say, use_utf8
from regard.errors import InputError, translate
from regard.files import chunks

if TYPE_CHECKING:
    from regard.data.readers import Rows
    from regard.text.pieces import Piece
    from regard.text.tokenizer import Tokenizer


app = typer.Typer(
    cls=QuickGroup,
    help="Train tokenizers, and encode and decode text with them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_CHUNKS = {"size": 1024, "first": 1}  # the first line is printed at once
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})

TokenizerPath = Annotated[
    Path, Argument(help="tokenizer.json, vocab.txt, vocab.json and merges.txt, folder or model.")
]
FileOption = Annotated[
    str | None,
    Option("-f", "--file", help="File of lines: plain, .gz, .zst, or - for standard input."),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON, one object per line.")]


@app.command("train", cls=QuickCommand)
def train_command(
    files: list[str] = Argument(help="Text, .tsv or .jsonl files; plain, .gz, .zst; - is stdin."),
    output: Path = Option(..., "-o", "--output", help="Folder or .json file to write."),
    kind: str = Option("bpe", help="Algorithm: bpe, byte-bpe, wordpiece or characters."),
    vocab_size: int = Option(16_000, help="Maximum number of tokens, including special ones."),
    normalize: str = Option("nfc", help="Unicode normalization: nfc, nfkc or none."),
    lowercase: bool = Option(False, "--lowercase", help="Lowercase the text."),
    fields: str = Option("", help="Columns of .tsv or keys of .jsonl, separated by commas."),
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer on text files; files of two languages give one shared vocabulary.

    The result is deterministic. Without --fields, columns 1 and 2 of .tsv files
    and the keys source and target of .jsonl files are read.

    Example: regard tokenizer train train.en train.de.gz --vocab-size 8000 -o tokenizer.json
    """
    from regard.text.tokenizer_training import train_tokenizer

    before, counts = time.monotonic(), {"texts": 0}
    tokenizer = train_tokenizer(
        _texts(files, fields, counts),
        kind=kind,  # pyright: ignore[reportArgumentType] - checked there
        vocab_size=vocab_size,
        normalization=None if normalize == "none" else normalize,  # pyright: ignore[reportArgumentType]
        lowercase=lowercase,
        progress=sys.stderr.isatty(),
    )
    tokenizer.save(output)
    seconds = round(time.monotonic() - before, 1)
    facts = {"tokenizer": str(output), "kind": kind, "entries": len(tokenizer), **counts}
    if as_json:
        print_json(facts | {"seconds": seconds})
    else:
        size = f"{len(tokenizer):,} entries ({kind}) from {counts['texts']:,} texts"
        say(f"{output}: {size} in {seconds} s")


def _texts(files: list[str], fields: str, counts: dict[str, int]) -> Iterator[str]:
    from regard.data.text_checks import Checks, read_checked

    for file in files:
        for row in read_checked(_rows(file, fields), Checks(empty="keep")):
            counts["texts"] += len(row.texts)
            yield from row.texts


def _rows(file: str, fields: str) -> "Rows":
    from regard.data.readers import TextRows, format_of

    format = format_of(file) or ("tsv" if fields and file == "-" else None)
    if format is None:
        return TextRows((file,), ("text",))
    chosen = [one.strip() for one in fields.split(",")] if fields else []
    if format == "jsonl":
        keys = tuple(chosen or ["source", "target"])
        return TextRows((file,), keys, "jsonl", keys=keys)
    if not all(one.isdigit() for one in chosen):
        needed = f"for {file} it must be column numbers such as 1,2"
        raise InputError(f"--fields is {fields!r}; {needed}.")
    columns = tuple(int(one) for one in chosen or "12")
    return TextRows((file,), tuple(map(str, columns)), "tsv", columns=columns)


@app.command("encode", cls=QuickCommand)
def encode_command(
    tokenizer: TokenizerPath,
    texts: list[str] | None = Argument(None, help="Texts, or - for standard input."),
    file: FileOption = None,
    pieces: bool | None = Option(None, "--pieces/--ids", help="Print pieces, or one line of ids."),
    specials: bool = Option(True, help="Add the start and end tokens."),
    as_json: JsonOption = False,
) -> None:
    """Split text into pieces with their ids and the characters they cover.

    Prints a table on a terminal, otherwise one line of ids for each text, which `decode` reads. A
    piece that starts inside a character is marked ⋯; the piece before shows the character.

    Example: regard tokenizer encode tokenizer.json "저는 학생입니다."
    """
    use_utf8()
    loaded = _load(tokenizer)
    pieces = sys.stdout.isatty() if pieces is None else pieces
    for chunk in chunks(_inputs(texts, file), **_CHUNKS):
        if as_json or pieces:
            for text in chunk:
                _show(text, loaded.pieces(text, specials=specials), as_json)
        else:
            for ids in loaded.encode_batch(chunk, specials=specials):
                sys.stdout.write(" ".join(map(str, ids)) + "\n")


def _show(text: str, pieces: "list[Piece]", as_json: bool) -> None:
    if as_json:
        ids = [piece.id for piece in pieces]
        print_json({"text": text, "ids": ids, "pieces": [asdict(piece) for piece in pieces]})
        return
    cells = [_cells(piece) for piece in pieces]
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(row) + "\n" for row in cells) + "\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column(translate("piece"))
    for head in (translate("id"), translate("characters"), translate("word")):
        table.add_column(head, justify="right")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table, "")


def _cells(piece: "Piece") -> list[str]:
    word = "" if piece.word is None else str(piece.word)
    covered = f"{piece.start}–{piece.end}" if piece.end > piece.start else ""
    return [piece.text.translate(_VISIBLE), str(piece.id), covered, word]


@app.command("decode", cls=QuickCommand)
def decode_command(
    tokenizer: TokenizerPath,
    ids: list[str] | None = Argument(None, help="Ids of one text, or - for standard input."),
    file: FileOption = None,
    specials: bool = Option(False, "--specials", help="Print special tokens too."),
    as_json: JsonOption = False,
) -> None:
    """Turn ids back into text, one line of ids for each text.

    Example: regard tokenizer decode tokenizer.json 2 31 845 5 3
    """
    use_utf8()
    loaded = _load(tokenizer)
    joined = None if not ids else [" ".join(ids)]
    numbered = enumerate(_inputs(joined, file), 1)
    for chunk in chunks((_ids_of(line, number) for number, line in numbered), **_CHUNKS):
        for one, text in zip(chunk, loaded.decode_batch(chunk, specials=specials), strict=True):
            if as_json:
                print_json({"ids": one, "text": text})
            else:
                sys.stdout.write(text + "\n")


def _load(path: Path) -> "Tokenizer":
    from regard.interop.model_names import PACKAGED, bundled, find_model
    from regard.text.tokenizer import Tokenizer

    name = str(path)
    is_model = not path.exists() and (name in bundled() or name in PACKAGED)
    return Tokenizer.load(find_model(name) if is_model else path)


def _ids_of(line: str, number: int) -> list[int]:
    words = re.sub(r"[\[\],]", " ", line).split()
    for word in words:
        if not re.fullmatch(r"-?\d+", word, re.ASCII):
            raise InputError(f"Line {number} has {word!r}, which is not an id; ids are integers.")
    return [int(word) for word in words]


def _inputs(texts: list[str] | None, file: str | None) -> Iterator[str]:
    """Yield the texts of the command line, or the lines of a file or standard input."""
    if texts and file:
        raise InputError("Give texts or --file, not both.")
    if texts and texts != ["-"]:
        yield from texts
        return
    if file is None and not texts and sys.stdin.isatty():
        raise InputError("There is no input: give a text, --file FILE, or - for standard input.")
    yield from decoded_lines(file or "-")
