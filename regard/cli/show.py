"""`regard show`: one head's attention, as a picture in the terminal."""

import json
import sys
from typing import Annotated

import typer


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
    from regard.explain.heads import readable, sides
    from regard.figures.terminal import PLAIN_SHADES, SHADES, draw_pattern
    from regard.model import load

    trace = load(model).trace(text, target)
    best = readable(trace)
    chosen = trace[site or best.site]
    number = head if head is not None else best.head if chosen.path == best.site else 0
    weights = chosen.weights(number).tolist()
    queries, keys = (trace.tokens[side] for side in sides(chosen.path))
    if as_json:
        plain = {"site": chosen.path, "head": number, "queries": queries, "keys": keys}
        typer.echo(json.dumps({**plain, "weights": weights}, ensure_ascii=False))
        return
    plain_terminal = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    shades = PLAIN_SHADES if plain_terminal else SHADES
    picture = draw_pattern(weights, queries, keys, shades=shades)
    typer.echo(f"{chosen.path}, head {number}: rows ask (queries), columns answer (keys)\n")
    typer.echo("\n".join(picture.lines))
    typer.echo(f"\n{picture.legend}; on the right each row's largest weight")
