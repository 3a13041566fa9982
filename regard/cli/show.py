"""`regard show`: one head in the terminal; `regard trace`: a whole trace in a file."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.options import ModelArgument
from regard.cli.output import print_json
from regard.errors import InputError

TEXT = Argument(help="Text to run the model on; for vision models, path of an image.")
TARGET = Option(help="Use this target instead of translating the text.")


def show_command(
    model: ModelArgument,
    text: Annotated[str, TEXT],
    target: Annotated[str | None, TARGET] = None,
    site: str | None = Option(None, help="Show this attention site."),
    head: int | None = Option(None, help="Show this head, counted from 0."),
    as_json: bool = Option(False, "--json", help="Print the weights as JSON."),
) -> None:
    """Show the attention weights of one head; by default, of a head that is easy to read.

    Example: regard show en-de "The dog is sleeping." --site decoder.layers.2.cross --head 3
    """
    from regard.figures.head_view import HeadView
    from regard.figures.terminal import ASCII_SHADES, SHADES, text_pattern
    from regard.model import load

    trace = load(model).trace(text, target)
    view = HeadView(trace, site, head)
    path, number, weights = view.site.path, view.head_index, view.weights().tolist()
    queries, keys = view.labels()
    if as_json:
        about = {"site": path, "head": number, "queries": queries, "keys": keys, "weights": weights}
        print_json(about)
        return
    is_ascii = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    picture = text_pattern(weights, queries, keys, shades=ASCII_SHADES if is_ascii else SHADES)
    rows = "rows are queries (tokens that are written)" if view.writes else "rows are queries"
    lines = [f"{path}, head {number}: {rows}, columns are keys", ""]
    lines += [*picture.lines, "", f"{picture.legend}; on the right each row's largest weight"]
    if getattr(trace.output, "text", ""):
        lines = [f"{text} {'->' if is_ascii else '→'} {trace.output.text}", "", *lines]
    shown = "\n".join(lines)
    if is_ascii:  # a question mark is better than bytes that the terminal cannot show
        shown = shown.replace("␣", "_").encode("ascii", "replace").decode()
    typer.echo(shown)


def trace_command(
    model: ModelArgument,
    text: Annotated[str, TEXT],
    output: Path = Option(..., "-o", "--output", help="File: .safetensors, .html or .json."),
    megabytes: float | None = Option(
        None, help="Size limit of an .html file; numbers are rounded."
    ),
    target: Annotated[str | None, TARGET] = None,
) -> None:
    """Save everything that a model computes: all sites, all heads, every inner value.

    A .safetensors file is opened with regard.Trace.load, an .html file with a browser, and a .json
    file (weights of all heads) with any program.

    Example: regard trace en-de "The dog is sleeping." -o dog.html
    """
    from regard.analysis.site_json import plain
    from regard.files import write_atomic
    from regard.model import load

    if output.suffix not in (".safetensors", ".html", ".json"):
        raise InputError(f"{output} must end in .safetensors, .html or .json.")
    trace = load(model).trace(text, target)
    if output.suffix == ".safetensors":
        trace.save(output)
    elif output.suffix == ".html":
        trace.html(output, megabytes=megabytes)
    else:
        sites = {path: {"weights": trace[path].weights().tolist()} for path in trace}
        about = {"tokens": trace.tokens, "output": plain(trace.output), "sites": sites}
        write_atomic(output, json.dumps(about, ensure_ascii=False))
