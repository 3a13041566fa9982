"""`regard trace`: everything a model computes on one text or image, in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.trace.trace import Trace


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

    from regard.text.files import write_whole

    sites = {path: {"weights": trace[path].weights().tolist()} for path in trace}
    plain = {"tokens": trace.tokens, "output": trace.output, "sites": sites}
    write_whole(output, json.dumps(plain, ensure_ascii=False))
