"""`regard fill`: an encoder-only model fills the gaps of a text."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lines import answer_each

if TYPE_CHECKING:
    from regard.engine.answers import Candidate


def fill_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    text: Annotated[
        str | None, typer.Argument(help="A text with [MASK] where a word is missing.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", help="Candidates for each gap.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each.")] = False,
) -> None:
    """Fill the gaps of a text.

    Without a text, every line that is typed is answered with candidates; every line that is piped
    in comes out with its gaps filled.

    Example: regard fill my-bert "The dog is [MASK] in the garden."
    """
    from regard.model import load

    filler = load(model)
    tokenizer = filler.bundle.tokenizer
    mask = tokenizer.token_of(tokenizer.mask_id) if tokenizer and tokenizer.mask_id else ""
    piped = text is None and not sys.stdin.isatty()
    given = [] if text is None else [text]

    def answer(line: str) -> None:
        if piped and mask and mask not in line:  # nothing is missing
            typer.echo("[]" if as_json else line)
            return
        gaps = filler.fill(line, count=count)
        if as_json:
            plain = [[asdict(candidate) for candidate in gap] for gap in gaps]
            typer.echo(json.dumps(plain, ensure_ascii=False))
        elif piped:
            typer.echo(_filled(line, mask, [gap[0].text for gap in gaps]))
        else:
            _list(gaps)

    answer_each(given, answer, what=f"a text with {mask or 'a gap'}", as_json=as_json)


def _filled(line: str, mask: str, words: Sequence[str]) -> str:
    for word in words:
        line = line.replace(mask, word, 1)
    return line


def _list(gaps: Sequence[Sequence["Candidate"]]) -> None:
    """The candidates of each gap, one to a line."""
    for number, gap in enumerate(gaps, start=1):
        if len(gaps) > 1:
            typer.echo(f"gap {number}")
        for candidate in gap:
            typer.echo(f"{candidate.probability:7.4f}  {candidate.text}")
