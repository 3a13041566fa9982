"""`regard tokenizer`: learn a vocabulary, and see what it makes of text."""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from regard.cli.output import print_json, use_utf8
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.data.readers import Rows
    from regard.text.pieces import Piece
    from regard.text.tokenizer import Tokenizer


app = typer.Typer(
    help="Train tokenizers, and encode and decode text with them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
_CHUNK = 1024
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})
_T = TypeVar("_T")

TokenizerPath = Annotated[
    Path,
    typer.Argument(help="tokenizer.json, vocab.txt, vocab.json and merges.txt, folder or model."),
]
FileOption = Annotated[
    str | None,
    typer.Option("-f", "--file", help="File of lines: plain, .gz, .zst, or - for standard input."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


@app.command("train")
def train_command(
    files: Annotated[
        list[str],
        typer.Argument(help="Text, .tsv or .jsonl files; plain, .gz, .zst, or - for stdin."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder or .json file to write.")],
    kind: Annotated[
        str, typer.Option(help="Algorithm: bpe, byte-bpe, wordpiece or characters.")
    ] = "bpe",
    vocab_size: Annotated[
        int, typer.Option(help="Maximum number of tokens, including special ones.")
    ] = 16_000,
    normalize: Annotated[
        str, typer.Option(help="Unicode normalization: nfc, nfkc or none.")
    ] = "nfc",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")] = False,
    fields: Annotated[
        str, typer.Option(help="Columns of .tsv or keys of .jsonl to read, separated by commas.")
    ] = "",
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
        typer.echo(f"{output}: {size} in {seconds} s")


def _texts(files: list[str], fields: str, counts: dict[str, int]) -> Iterator[str]:
    from regard.data.text_checks import Checker, Checks, chunks

    for file in files:
        rows = _rows(file, fields)
        checker = Checker(rows.names, Checks(empty="keep"))
        for chunk in chunks(rows):
            for example in checker.check(chunk):
                counts["texts"] += len(example.texts)
                yield from example.texts
        checker.finish()


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


@app.command("encode")
def encode_command(
    tokenizer: TokenizerPath,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts, or - for standard input.")
    ] = None,
    file: FileOption = None,
    pieces: Annotated[
        bool | None, typer.Option("--pieces/--ids", help="Print pieces, or one line of ids.")
    ] = None,
    specials: Annotated[bool, typer.Option(help="Add the start and end tokens.")] = True,
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
    for chunk in _in_chunks(_inputs(texts, file)):
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
    table.add_column("piece")
    for head in ("id", "characters", "word"):
        table.add_column(head, justify="right")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table, "")


def _cells(piece: "Piece") -> list[str]:
    word = "" if piece.word is None else str(piece.word)
    covered = f"{piece.start}–{piece.end}" if piece.end > piece.start else ""
    return [piece.text.translate(_VISIBLE), str(piece.id), covered, word]


@app.command("decode")
def decode_command(
    tokenizer: TokenizerPath,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of one text, or - for standard input.")
    ] = None,
    file: FileOption = None,
    specials: Annotated[bool, typer.Option("--specials", help="Print special tokens too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn ids back into text, one line of ids for each text.

    Example: regard tokenizer decode tokenizer.json 2 31 845 5 3
    """
    use_utf8()
    loaded = _load(tokenizer)
    joined = None if not ids else [" ".join(ids)]
    numbered = enumerate(_inputs(joined, file), 1)
    for chunk in _in_chunks(_ids_of(line, number) for number, line in numbered):
        for one, text in zip(chunk, loaded.decode_batch(chunk, specials=specials), strict=True):
            if as_json:
                print_json({"ids": one, "text": text})
            else:
                sys.stdout.write(text + "\n")


def _load(path: Path) -> "Tokenizer":
    from regard.interop.model_names import bundled
    from regard.text.tokenizer import Tokenizer

    return Tokenizer.load(path if path.exists() else bundled().get(str(path), path))


def _ids_of(line: str, number: int) -> list[int]:
    words = re.sub(r"[\[\],]", " ", line).split()
    for word in words:
        if not re.fullmatch(r"-?\d+", word, re.ASCII):
            raise InputError(f"Line {number} has {word!r}, which is not an id; ids are integers.")
    return [int(word) for word in words]


def _inputs(texts: list[str] | None, file: str | None) -> Iterator[str]:
    """Yield the texts of the command line, or the lines of a file or standard input."""
    from regard.files import read_lines

    if texts and file:
        raise InputError("Give texts or --file, not both.")
    if texts and texts != ["-"]:
        yield from texts
        return
    if file is None and not texts and sys.stdin.isatty():
        raise InputError("There is no input: give a text, --file FILE, or - for standard input.")
    for number, line in enumerate(read_lines(file or "-"), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            place = f"Line {number} of {file or 'the input'}"
            raise InputError(f"{place} is not valid UTF-8 at byte {error.start}.") from error


def _in_chunks(items: Iterable[_T]) -> Iterator[list[_T]]:
    iterator = iter(items)
    size = 1  # small at first, so that the first line is printed at once
    while chunk := list(islice(iterator, size)):
        yield chunk
        size = min(2 * size, _CHUNK)
