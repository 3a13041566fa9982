"""`regard classify`: what is in an image."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from regard.cli.lines import answer_each


def classify_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    images: Annotated[
        list[str] | None, typer.Argument(help="Image files (texts for a text model).")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", help="Classes for each.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each.")] = False,
) -> None:
    """Name what is in images.

    Without images, every line that is typed or piped in names one (or is a text).

    Example: regard classify fashion shoe.png shirt.png
    """
    from regard.model import load

    classifier = load(model)
    what = "a text" if classifier.bundle.tokenizer else "the name of an image file"

    def answer(image: str) -> None:
        (candidates,) = classifier.classify([image], count=count)
        if as_json:
            plain = {"input": image, "classes": [asdict(candidate) for candidate in candidates]}
            typer.echo(json.dumps(plain, ensure_ascii=False))
        else:
            named = ", ".join(f"{one.text} {one.probability:.4f}" for one in candidates)
            typer.echo(f"{image}\t{named}")

    answer_each(images or [], answer, what=what, as_json=as_json)
