"""One training run: prepare, estimate, train, test and tell."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from torch import nn

from regard.cli.output import LinesRead
from regard.cli.train import CURVES, METRICS
from regard.figures.curves import draw_curves
from regard.figures.formats import Figure
from regard.files import write_atomic
from regard.hardware import keep_freed_memory, peak_memory, set_threads, total_matmul_rate
from regard.interop.model_names import find_model
from regard.model import Model
from regard.models.config import ModelConfig
from regard.training.build import (
    build_seeded,
    complete_config,
    given_fields,
    image_tokens,
    make_learner,
    make_trainer,
    take_over,
)
from regard.training.callbacks import Callbacks, Evaluation, Reporter
from regard.training.datasets import Material
from regard.training.distributed import Team
from regard.training.loop import Outcome
from regard.training.metrics import Everybody, MetricsFile, TensorBoard, read_metrics
from regard.training.prepare_data import is_image_data, prepare
from regard.training.progress_report import (
    Bar,
    Estimate,
    Lines,
    Machine,
    estimate,
    spoken_size,
    spoken_time,
    told_numbers,
)
from regard.training.recipe import Recipe
from regard.training.run_folder import CHECKPOINTS, followed_recipe, open_folder
from regard.training.validation import (
    RESULT,
    TRAINING,
    Workshop,
    drawn_samples,
    plain_samples,
    with_alignment,
)

Say = Callable[[str], None]


def run(recipe: Recipe, folder: Path, team: Team, *, resume: bool, as_json: bool) -> Outcome:
    """Train as the recipe says, in this folder, as one process of the team."""

    def say(text: str) -> None:
        if team.leads:
            typer.echo(text, err=True)

    keep_freed_memory()
    set_threads(recipe.training.threads)
    if team.leads:
        open_folder(folder, recipe, resume=resume, say=say)
    team.wait()
    recipe = followed_recipe(folder)
    material, config, model = _prepared(recipe, folder / TRAINING, team, say)
    say(f"{type(model).__name__} with {sum(p.numel() for p in model.parameters()):,} parameters")
    workshop = Workshop(folder, recipe, material)
    learner = make_learner(recipe, model, team)
    callbacks = _callbacks(workshop, lambda: build_seeded(config, recipe.training.seed))
    checkpoints = folder / TRAINING / CHECKPOINTS
    trainer = make_trainer(recipe, material, learner, folder=checkpoints, callbacks=callbacks)
    predicted = estimate(learner, trainer.feed)
    say(f"expected: {predicted}")
    machine = Machine(total_matmul_rate(team), predicted.flops)
    steps = trainer.checkpoints.steps()
    with ExitStack() as stack:
        if team.leads:
            resumed_at = steps[-1] if steps else None
            reporter = stack.enter_context(_reporter(workshop, machine, resumed_at=resumed_at))
            trainer.callbacks = replace(callbacks, reporter=reporter)
        outcome = trainer.run()
    if team.leads:
        _tell(outcome, workshop, predicted, memory=peak_memory(team.device), as_json=as_json)
    team.wait()
    return outcome


def _callbacks(workshop: Workshop, build: Callable[[], nn.Module]) -> Callbacks:
    """What the loop asks of the parts above it, which trace on the processor."""

    def at_hand(model: nn.Module) -> nn.Module:
        if next(model.parameters()).device.type == "cpu":
            return model
        copy = build()
        copy.load_state_dict(model.state_dict())
        return copy.eval()

    def evaluate(model: nn.Module) -> Evaluation:
        near = at_hand(model)
        decoded = model if workshop.recipe.task == "translation" else near
        return with_alignment(workshop.model(near), workshop.evaluate(decoded))

    def snapshot(model: nn.Module, step: int) -> None:
        workshop.snapshot(at_hand(model), step)

    return Callbacks(workshop.save_model, evaluate, snapshot, build=build)


def _prepared(
    recipe: Recipe, folder: Path, team: Team, say: Say
) -> tuple[Material, ModelConfig, nn.Module]:
    """Data, configuration and model; the leading process prepares files for the others."""
    start = recipe.model.get("start_from")
    base = None if start is None else Model.load(find_model(start))
    images = recipe.task == "classification" and is_image_data(recipe.data)
    fields = given_fields(recipe, images=images, base=base.config if base else None)
    own = (None, None)
    if base is not None:
        apart = base.target_tokenizer is not base.tokenizer
        own = (base.tokenizer, base.target_tokenizer if apart else None)

    def make(say: Say) -> Material:
        return prepare(
            recipe,
            folder,
            tokenizers=own,
            n_tokens=lambda side: image_tokens(fields, side),
            say=say,
            progress=LinesRead() if team.leads and sys.stderr.isatty() else None,
        )

    made = make(say) if team.leads else None
    team.wait()
    material = made or make(say)
    config = complete_config(fields, recipe, material, base=base.config if base else None)
    model = build_seeded(config, recipe.training.seed)
    if base is not None:
        fresh = take_over(model, base.module.state_dict())
        what = f"; {len(fresh)} start afresh ({', '.join(fresh[:4])})" if fresh else ""
        say(f"starting from the weights of {start}{what}")
    return material, config, model


class CurvesFile(Reporter):
    """Draws what the file of metrics, which must be told first, holds at each validation."""

    def __init__(self, folder: Path, *, title: str = "") -> None:
        self._folder, self._title = folder, title

    def validated(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        del step, evaluation, best
        entries = read_metrics(self._folder / METRICS)
        Figure(draw_curves(entries, title=self._title)).save(self._folder / CURVES)


@contextmanager
def _reporter(
    workshop: Workshop, machine: Machine, *, resumed_at: int | None
) -> Iterator[Reporter]:
    """A bar on a terminal and lines in a pipe, both to standard error, and files of the course."""
    from rich.console import Console

    folder = workshop.folder / TRAINING
    metrics = MetricsFile(folder / METRICS, resumed_at=resumed_at)
    files: list[Reporter] = [metrics, CurvesFile(folder, title=workshop.folder.absolute().name)]
    with ExitStack() as stack:
        if workshop.recipe.training.tensorboard:
            board = TensorBoard(folder / "tensorboard", resumed_at=resumed_at)
            files.append(stack.enter_context(closing(board)))
        if sys.stderr.isatty():
            console = Console(stderr=True)
            bar = Bar(console, machine, draw=drawn_samples(console.width))
            yield Everybody(*files, stack.enter_context(bar))
        else:
            write = partial(typer.echo, err=True)
            yield Everybody(*files, Lines(write, machine, draw=plain_samples))


def _tell(
    outcome: Outcome, workshop: Workshop, predicted: Estimate, *, memory: int, as_json: bool
) -> None:
    """Print how it ended, and what was expected."""
    place = outcome.place
    epoch = place.seconds / place.epochs if place.epochs else 0.0
    test = workshop.test() if outcome.why != "stopped" else {}
    report: dict[str, Any] = {
        "folder": str(workshop.folder),
        "why": outcome.why,
        "steps": place.step,
        "epochs": place.epochs,
        "seconds": place.seconds,
        "validation": dict(outcome.numbers),
        "test": test,
        "seconds_per_epoch": {"predicted": predicted.seconds, "measured": epoch},
        "memory": {"predicted": predicted.memory, "measured": memory},
    }
    written = json.dumps(report, ensure_ascii=False)
    write_atomic(workshop.folder / TRAINING / RESULT, written + "\n")
    if as_json:
        typer.echo(written)
        return
    typer.echo(
        f"{place.step:,} steps, {place.epochs:.1f} epochs in {spoken_time(place.seconds)} "
        f"(ended by {outcome.why}); an epoch took {spoken_time(epoch)} with validations, "
        f"{spoken_time(predicted.seconds)} were expected without; memory {spoken_size(memory)}, "
        f"{spoken_size(predicted.memory)} were expected"
    )
    for name, numbers in (("validation", outcome.numbers), ("test", test)):
        if numbers:
            typer.echo(f"{name}: {told_numbers(numbers)}")
    typer.echo(
        f"the model is in {workshop.folder}, its curves in {workshop.folder / TRAINING / CURVES}"
    )
