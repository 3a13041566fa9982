"""`regard train`, `regard distill` and `regard curves`."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from regard.cli.options import JsonFlag, LanguageOption, ModelArgument, complete_recipes
from regard.cli.output import print_json, say
from regard.errors import FileError, InputError, translate, user_language

if TYPE_CHECKING:
    from regard.training.run import TrainingResult


def train_command(
    recipe: str = Argument(
        help="A TOML file, or the name of a bundled recipe.", autocompletion=complete_recipes
    ),
    output: Path | None = Option(None, "-o", "--output", help="Model folder. Default: runs/NAME."),
    resume: bool = Option(False, "--resume", help="Continue the run in the folder, if any."),
    overwrite: bool = Option(
        False, "--overwrite", help="Delete the run or model in the folder and start again."
    ),
    minutes: float | None = Option(None, help="Train for this long and finish the model."),
    changes: list[str] | None = Option(
        None, "--set", help="Set a recipe key: training.lr=0.001 (a TOML value)."
    ),
    tensorboard: bool = Option(False, "--tensorboard", help="Also write training/tensorboard."),
    as_json: JsonFlag = False,
) -> None:
    """Train a model from a recipe and save it in a model folder.

    The folder is a usable model from the first validation on. Its subfolder training/ contains
    checkpoints, metrics.jsonl, curves.svg and snapshots. Ctrl-C saves a checkpoint first.
    For several processes: torchrun --nproc-per-node=2 -m regard train RECIPE.

    Example: regard train recipes/dates.toml --set training.lr=0.002 -o dates
    """
    from regard.training.callbacks import ConsoleProgress
    from regard.training.recipe import find_recipe, parse_override
    from regard.training.run import train

    path = find_recipe(recipe)
    target = output or Path("runs") / path.stem
    if overwrite and resume:
        raise InputError("give either --resume or --overwrite, not both.")
    overrides = dict(map(parse_override, changes or ()))
    if tensorboard:
        overrides["training.tensorboard"] = True
    result = train(
        path,
        target,
        resume=resume,
        overwrite=overwrite,
        minutes=minutes,
        callbacks=[ConsoleProgress(), SimpleNamespace(on_end=partial(_print, as_json=as_json))],
        overrides=overrides,
    )
    if result.signal:
        raise typer.Exit(128 + result.signal)


def distill_command(
    teacher: ModelArgument,
    data: list[str] = Option(
        ..., "--data", help="Sources: lines of text, or the first column of a .tsv. Repeatable."
    ),
    output: Path = Option(..., "-o", "--output", help="Model folder of the student."),
    ensemble: list[str] | None = Option(
        None, "--ensemble", help="Another model that translates together with the teacher."
    ),
    resume: bool = Option(False, "--resume", help="Continue the run in the folder, if any."),
    minutes: float | None = Option(None, help="Train for this long and finish the model."),
    changes: list[str] | None = Option(
        None, "--set", help="Set a recipe key: model.n_decoder_layers=2 (a TOML value)."
    ),
) -> None:
    """Train a small, fast translator on the translations of a large one.

    The teacher translates the data into training/distilled.tsv. The student starts from its weights
    with one decoder layer, learns these translations, and gets a vocabulary shortlist for
    `regard translate --shortlist`.

    Example: regard distill en-de --data sentences.en.gz --minutes 30 -o small
    """
    from regard.interop.model_names import find_model
    from regard.training.callbacks import ConsoleProgress
    from regard.training.distill import distill
    from regard.training.recipe import parse_override

    result = distill(
        find_model(teacher),
        data,
        output,
        ensemble=[find_model(name) for name in ensemble or ()],
        resume=resume,
        minutes=minutes,
        callbacks=[ConsoleProgress(), SimpleNamespace(on_end=partial(_print, as_json=False))],
        overrides=dict(map(parse_override, changes or ())),
    )
    if result.shortlist_bleu is not None:
        full, short = result.shortlist_bleu
        say(f"BLEU against the teacher: {full:.2f}, with the shortlist {short:.2f}")
    if result.training.signal:
        raise typer.Exit(128 + result.training.signal)


def _print(result: "TrainingResult", *, as_json: bool) -> None:
    from regard.model_folder import CONFIG
    from regard.training.callbacks import format_bytes, format_metrics, format_seconds
    from regard.training.metrics import CURVES
    from regard.training.run_folder import TRAINING

    if as_json:
        print_json(result.to_dict())
        return
    seconds = (result.seconds, result.seconds_per_epoch, result.estimated_seconds_per_epoch)
    total, epoch, estimate = map(format_seconds, seconds)
    say(
        f"{result.steps:,} steps, {result.epochs:.1f} epochs in {total} (ended by: "
        f"{result.stopped_because}); {epoch} per epoch with validations, estimated {estimate} "
        f"without; {format_bytes(result.memory)} of memory, estimated "
        f"{format_bytes(result.estimated_memory)}"
    )
    for name, scores in (("validation", result.scores), ("test", result.test_scores)):
        if scores:
            typer.echo(f"{translate(name)}: {format_metrics(scores)}")
    for name, path in (
        ("model", result.folder / CONFIG),
        ("curves", result.folder / TRAINING / CURVES),
    ):
        if path.is_file():
            typer.echo(f"{translate(name)}: {result.folder if name == 'model' else path}")
        elif name == "model":
            say("model: none yet, because the run was stopped before its first validation")


def curves_command(
    run: Path = Argument(help="The folder of a run, or a metrics.jsonl."),
    language: LanguageOption = None,
    output: Path | None = Option(
        None, "-o", "--output", help="An .svg, .png or .pdf. Default: training/curves.svg."
    ),
) -> None:
    """Draw a run's learning curves: loss, perplexity, scores, learning rate, tokens per second.

    This works also while the run is active; `regard train` draws them at every validation.

    Example: regard curves runs/dates --language ko -o curves.svg
    """
    from regard.figures.captions import check_language
    from regard.figures.curves import draw_curves
    from regard.figures.formats import Figure, check_extension
    from regard.training.metrics import CURVES, METRICS, read_metrics
    from regard.training.run_folder import TRAINING

    metrics = run if run.is_file() else run / TRAINING / METRICS
    if not metrics.is_file():
        raise FileError(f"there is no {metrics}: give a folder written by `regard train`.")
    language = language or user_language()
    check_language(language)
    target = output or metrics.parent / CURVES
    check_extension(target)
    title = metrics.absolute().parents[1].name
    Figure(draw_curves(read_metrics(metrics), language=language, title=title)).save(target)
    typer.echo(str(target))
