"""`regard work`: a worked example in the terminal, or as a page, a picture, Markdown, LaTeX."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.explain.worked import Worked


def work_command(
    example: Annotated[
        Path | None, typer.Argument(help="TOML file with your own small matrices.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write .html, .svg, .md or .tex instead.")
    ] = None,
    language: Annotated[str, typer.Option(help="en or ko.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print all matrices as JSON.")] = False,
) -> None:
    """Work through attention with small matrices, every number shown.

    Without a file it is three words of width 3 with Q, K and V of width 4. A file may have:

        words = ["I", "see", "you"]          # names of the rows of x
        x = [[1, 0, 1], [0, 2, 0], [1, 1, 1]]
        w_query = [[1, 0], [0, 1], [1, 1]]   # also w_key, w_value; without them x serves directly
        x_key = [[1, 1, 0]]                  # other inputs for keys and values, with key_words
        similarity = "scaled_dot"            # or dot, cosine, general, additive
        mask = "causal"                      # or {window = 1}, {edges = [[0, 1]]}, rows of 0 and 1
        temperature = 1.0

    general takes general = [[…]]; additive takes additive = {w_query = …, w_key = …, v = [[…]]}.

    Example: regard work mine.toml -o mine.svg --language ko
    """
    from regard.explain.worked import DEFAULT, read_example, work
    from regard.figures.worked import WRITERS
    from regard.text.files import write_whole

    if output is not None and output.suffix not in WRITERS:
        raise InputError(
            f"{output} must end in {', '.join(WRITERS)}: the ending says what to write."
        )
    worked = work(read_example(example) if example else DEFAULT)
    if as_json:
        plain = json.dumps(asdict(worked), ensure_ascii=False).replace("-Infinity", '"-inf"')
        typer.echo(plain)
    elif output is None:
        _show(worked, language)
    if output is not None:
        write_whole(output, WRITERS[output.suffix](worked, language))


def _show(worked: "Worked", language: str) -> None:
    """Print the example to the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from regard.figures.worked import cells, settings, title, word

    console = Console()
    plain = console.encoding.lower() not in ("utf-8", "utf8")
    console.print(
        f"{word('worked example', language)}  ({settings(worked, language)})", markup=False
    )
    for step in worked.tables:
        heads, rows = cells(step, language)
        picture = Table(box=box.ASCII if plain else box.SIMPLE_HEAD, show_edge=False)
        for i, head in enumerate(heads):
            picture.add_column(head, justify="right" if i else "left", style="" if i else "bold")
        for row in rows:
            picture.add_row(*row)
        console.print()
        console.print(f"{title(step)}   [{word(step.name, language)}]", markup=False, style="bold")
        console.print(picture)
