"""`regard generate`: a decoder-only model goes on with a text."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer


def generate_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    prompt: Annotated[str, typer.Argument(help="The text to go on with; - reads it from input.")],
    temperature: Annotated[float, typer.Option(help="0 always takes the best token.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Only among the k most probable.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only among this much probability.")] = None,
    max_tokens: Annotated[int, typer.Option(help="The most tokens to write.")] = 200,
    no_repeat: Annotated[int, typer.Option(help="Write no run of this many tokens twice.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write on after a prompt.

    Example: regard generate shakespeare "ROMEO:" --temperature 0.8 --top-k 20 --seed 7
    """
    from regard.model import load

    writer = load(model)
    given = sys.stdin.read() if prompt == "-" else prompt
    options = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "no_repeat": no_repeat,
        "seed": seed,
    }
    if as_json:
        typer.echo(json.dumps(asdict(writer.generate(given, **options)), ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        typer.echo(writer.generate(given, **options).text)
        return
    typer.echo(given, nl=False)
    writer.generate(given, on_text=_tell, **options)
    typer.echo()


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
