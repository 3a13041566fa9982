"""`regard curves`: how a run went, as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import FileError, InputError

METRICS, CURVES = "metrics.jsonl", "curves.svg"


def curves_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a metrics.jsonl.")],
    language: Annotated[str, typer.Option(help="Of the words in the picture: en or ko.")] = "en",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An .svg; RUN/training/curves.svg unless.")
    ] = None,
) -> None:
    """Draw a run's learning curves: loss, perplexity, scores, learning rate, tokens per second.

    A run that goes on can be drawn at any time. `regard train` does so at every validation.

    Example: regard curves runs/dates --language ko -o curves.svg
    """
    from regard.cli.workshop import TRAINING
    from regard.figures.curves import curves_svg
    from regard.figures.words import LANGUAGES
    from regard.text.files import write_whole
    from regard.training.metrics import read_metrics

    metrics = run if run.is_file() else run / TRAINING / METRICS
    if not metrics.is_file():
        raise FileError(f"there is no {metrics}: give the folder that `regard train` has written.")
    if language not in LANGUAGES:
        raise InputError(f"--language is {language!r}; it can be {' or '.join(LANGUAGES)}.")
    target = output or metrics.parent / CURVES
    if target.suffix != ".svg":
        raise InputError(f"{target} must end in .svg: that is what curves are written as.")
    title = metrics.absolute().parents[1].name
    write_whole(target, curves_svg(read_metrics(metrics), language, title=title))
    typer.echo(str(target))
