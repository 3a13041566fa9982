"""One training run: prepare, estimate, train, test and tell."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from torch import nn

from regard.bundle.bundle import Bundle
from regard.bundle.zoo import find_model
from regard.cli.workshop import RESULT, TRAINING, Workshop, open_folder
from regard.models.config import ModelConfig
from regard.text.files import write_whole
from regard.training.assemble import make_learner, make_trainer
from regard.training.callbacks import Callbacks, Reporter
from regard.training.construct import (
    build_seeded,
    complete_config,
    given_fields,
    image_tokens,
    take_over,
)
from regard.training.distributed import Team
from regard.training.estimate import Estimate, estimate, spoken_size, spoken_time
from regard.training.loop import Outcome
from regard.training.machine import keep_freed_memory, peak_memory, product_peak, set_threads
from regard.training.material import Material
from regard.training.metrics import Everybody, MetricsFile
from regard.training.pictures import is_image_data
from regard.training.prepare import prepare
from regard.training.recipe import Recipe
from regard.training.report import Bar, Lines, Machine, told_numbers

Say = Callable[[str], None]


def run(recipe: Recipe, folder: Path, team: Team, *, resume: bool, as_json: bool) -> Outcome:
    """Train as the recipe says, in this folder, as one process of the team."""

    def say(text: str) -> None:
        if team.leads:
            typer.echo(text, err=True)

    keep_freed_memory()
    set_threads(recipe.training.threads)
    if team.leads:
        open_folder(folder, recipe, resume=resume)
    team.wait()
    material, config, model = _prepared(recipe, folder / TRAINING, team, say)
    say(f"{type(model).__name__} with {sum(p.numel() for p in model.parameters()):,} parameters")
    workshop = Workshop(folder, recipe, material)
    learner = make_learner(recipe, model, team)
    callbacks = Callbacks(
        workshop.save_model,
        workshop.evaluate,
        workshop.snapshot,
        build=lambda: build_seeded(config, recipe.training.seed),
    )
    checkpoints = folder / TRAINING / "checkpoints"
    trainer = make_trainer(recipe, material, learner, folder=checkpoints, callbacks=callbacks)
    predicted = estimate(learner, trainer.feed)
    say(f"expected: {predicted}")
    machine = Machine(product_peak(team.device), predicted.flops)
    steps = trainer.checkpoints.steps()
    with _reporter(folder / TRAINING, steps[-1] if steps else None, machine, team) as reporter:
        trainer.callbacks = replace(callbacks, reporter=reporter)
        outcome = trainer.run()
    if team.leads:
        _tell(outcome, workshop, predicted, memory=peak_memory(team.device), as_json=as_json)
    team.wait()
    return outcome


def _prepared(
    recipe: Recipe, folder: Path, team: Team, say: Say
) -> tuple[Material, ModelConfig, nn.Module]:
    """Data, configuration and model; the leading process prepares files for the others."""
    start = recipe.model.get("start_from")
    base = None if start is None else Bundle.load(find_model(start))
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
        )

    made = make(say) if team.leads else None
    team.wait()
    material = made or make(say)
    config = complete_config(fields, recipe, material)
    model = build_seeded(config, recipe.training.seed)
    if base is not None:
        fresh = take_over(model, base.model.state_dict())
        what = f"; {len(fresh)} start afresh ({', '.join(fresh[:4])})" if fresh else ""
        say(f"starting from the weights of {start}{what}")
    return material, config, model


@contextmanager
def _reporter(
    folder: Path, resumed_at: int | None, machine: Machine, team: Team
) -> Iterator[Reporter]:
    """A bar on a terminal and lines in a pipe, both to standard error, and the file of metrics."""
    from rich.console import Console

    if not team.leads:
        yield Reporter()
        return
    metrics = MetricsFile(folder / "metrics.jsonl", resumed_at=resumed_at)
    if sys.stderr.isatty():
        with Bar(Console(stderr=True), machine) as bar:
            yield Everybody(metrics, bar)
    else:
        yield Everybody(metrics, Lines(lambda text: typer.echo(text, err=True), machine))


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
    write_whole(workshop.folder / TRAINING / RESULT, written + "\n")
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
    typer.echo(f"the model is in {workshop.folder}")
