"""`regard trace`: everything a model computes on one text or image, in a file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.trace.trace import Trace


def show_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    text: Annotated[str, typer.Argument(help="The text (or image) to run it on.")],
    target: Annotated[str | None, typer.Option(help="A target, for translators.")] = None,
    site: Annotated[str | None, typer.Option(help="Path of an attention site.")] = None,
    head: Annotated[int | None, typer.Option(help="Which head, from 0.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the weights as JSON.")] = False,
) -> None:
    """Show where one head looks; without --site and --head, the one that reads best.

    Example: regard show en-de "The dog is sleeping." --site decoder.layers.2.cross --head 3
    """
    from regard.figures.head_view import HeadView
    from regard.figures.terminal import ASCII_SHADES, SHADES, text_pattern
    from regard.model import load

    trace = load(model).trace(text, target)
    subject = HeadView(trace, site, head)
    path, number, weights = subject.site.path, subject.head_index, subject.weights().tolist()
    queries, keys = subject.labels()
    if as_json:
        plain = {"site": path, "head": number, "queries": queries, "keys": keys}
        typer.echo(json.dumps({**plain, "weights": weights}, ensure_ascii=False))
        return
    plain_terminal = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    shades = ASCII_SHADES if plain_terminal else SHADES
    picture = text_pattern(weights, queries, keys, shades=shades)
    asks = "rows are written" if subject.writes else "rows ask"
    lines = [f"{path}, head {number}: {asks} (queries), columns answer (keys)", ""]
    lines += [*picture.lines, "", f"{picture.legend}; on the right each row's largest weight"]
    if getattr(trace.output, "text", ""):
        arrow = "->" if plain_terminal else "→"
        lines = [f"{text} {arrow} {trace.output.text}", "", *lines]
    shown = "\n".join(lines)
    # A question mark where a terminal has no such character, rather than bytes it cannot show.
    if plain_terminal:
        shown = shown.replace("␣", "_").encode("ascii", "replace").decode()
    typer.echo(shown)


def trace_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    text: Annotated[str, typer.Argument(help="The text or image to run it on.")],
    output: Annotated[Path, typer.Option("-o", "--output", help=".safetensors, .html or .json.")],
    target: Annotated[str | None, typer.Option(help="A target, for translators.")] = None,
) -> None:
    """Keep everything a model computes: all sites, all heads, every inner value.

    A .safetensors file can be opened again with regard.Trace.load, an .html file with a browser,
    a .json file (weights of all heads) with anything.

    Example: regard trace en-de "The dog is sleeping." -o dog.html
    """
    from regard.model import load

    writers = {".safetensors": lambda t: t.save(output), ".html": lambda t: t.html(output)}
    writers[".json"] = lambda t: _write_json(t, output)
    if output.suffix not in writers:
        raise InputError(
            f"{output} must end in {', '.join(writers)}: the ending says what to write."
        )
    writers[output.suffix](load(model).trace(text, target))


def _write_json(trace: "Trace", output: Path) -> None:
    import json

    from regard.files import write_atomic

    sites = {path: {"weights": trace[path].weights().tolist()} for path in trace}
    plain = {"tokens": trace.tokens, "output": trace.output, "sites": sites}
    write_atomic(output, json.dumps(plain, ensure_ascii=False))
