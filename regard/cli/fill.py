"""`regard fill`: an encoder-only model fills the gaps of a text."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def fill_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    text: Annotated[str, typer.Argument(help="A text with [MASK] where a word is missing.")],
    count: Annotated[int, typer.Option("-n", "--count", help="Candidates for each gap.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fill the gaps of a text.

    Example: regard fill my-bert "The dog is [MASK] in the garden."
    """
    from regard.model import load

    gaps = load(model).fill(text, count=count)
    if as_json:
        plain = [[asdict(candidate) for candidate in gap] for gap in gaps]
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return
    for number, gap in enumerate(gaps, start=1):
        if len(gaps) > 1:
            typer.echo(f"gap {number}")
        for candidate in gap:
            typer.echo(f"{candidate.probability:7.4f}  {candidate.text}")
