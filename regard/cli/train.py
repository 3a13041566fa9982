"""`regard curves`: how a run went, as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import FileError, nearest

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
"""The recipes that come with regard."""


def train_command(
    recipe: Annotated[Path, typer.Argument(help="TOML file, or the name of a bundled recipe.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: training.lr=0.001 (values as in TOML)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, if there is one.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes, with a finished model.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder; runs/NAME unless given.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write training/tensorboard in the folder.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a model as a recipe says; the result is a model folder.

    The folder is usable from the first validation on, and at the end holds the final model. Its
    folder training/ has checkpoints, metrics.jsonl, curves.svg and snapshots. Ctrl-C saves before
    it stops.
    Several processes: torchrun --nproc-per-node=2 -m regard train RECIPE.

    Example: regard train recipes/dates.toml --set training.lr=0.002 -o dates
    """
    from regard.training.distributed import joined, restarted
    from regard.training.recipe import read_recipe
    from regard.training.run import run

    path = find_recipe(recipe)
    given = list(changes or ())
    if minutes is not None:
        given.append(f"training.minutes={minutes}")
    if tensorboard:
        given.append("training.tensorboard=true")
    described = read_recipe(path, changes=given)
    folder = output or Path("runs") / path.stem
    with joined() as team:
        outcome = run(described, folder, team, resume=resume or restarted(), as_json=as_json)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


def find_recipe(path: Path) -> Path:
    """The file itself, or the bundled recipe of that name: "dates", "recipes/dates.toml"."""
    if path.is_file():
        return path
    bundled = {file.stem: file for file in sorted(RECIPES.glob("*.toml"))}
    for stem, file in bundled.items():
        if path in (Path(stem), Path(file.name), Path("recipes") / file.name):
            return file
    raise FileError(
        f"there is no recipe {path}, neither as a file nor among the bundled ones; "
        f"{nearest(path.stem, bundled)}."
    )


METRICS, CURVES = "metrics.jsonl", "curves.svg"


def curves_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a metrics.jsonl.")],
    language: Annotated[str, typer.Option(help="Of the words in the picture: en or ko.")] = "en",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write: .svg, .png or .pdf.  [default: RUN/training/curves.svg]",
        ),
    ] = None,
) -> None:
    """Draw a run's learning curves: loss, perplexity, scores, learning rate, tokens per second.

    A run that goes on can be drawn at any time. `regard train` does so at every validation.

    Example: regard curves runs/dates --language ko -o curves.svg
    """
    from regard.figures.captions import check_language
    from regard.figures.curves import draw_curves
    from regard.figures.formats import Figure, check_extension
    from regard.training.metrics import read_metrics
    from regard.training.validation import TRAINING

    metrics = run if run.is_file() else run / TRAINING / METRICS
    if not metrics.is_file():
        raise FileError(f"there is no {metrics}: give the folder that `regard train` has written.")
    check_language(language)
    target = output or metrics.parent / CURVES
    check_extension(target)
    title = metrics.absolute().parents[1].name
    Figure(draw_curves(read_metrics(metrics), language=language, title=title)).save(target)
    typer.echo(str(target))
