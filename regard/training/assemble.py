"""From a recipe, its material and a model to a trainer that is ready to run."""

from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.training.callbacks import Callbacks
from regard.training.distributed import Team, shared
from regard.training.loop import Trainer
from regard.training.material import Material
from regard.training.objective import OBJECTIVES
from regard.training.optimiser import OptimiserPlan, freeze, make_optimiser
from regard.training.recipe import Recipe, Training
from regard.training.schedule import Schedule, paper_rate
from regard.training.step import Learner


def make_learner(recipe: Recipe, model: Any, team: Team) -> Learner:
    """The model with its objective and optimiser, shared among the processes of the team."""
    settings = recipe.training
    freeze(model, settings.freeze)
    kind = OBJECTIVES[recipe.task]
    objective = kind(
        model, label_smoothing=settings.label_smoothing, agreement=settings.agreement
    ).train()
    if not settings.shard:  # a model that outgrows a device is moved there part by part
        objective.to(team.device)
    if settings.compile:
        compile_layers(model)
    module = shared(objective, team, sharded=settings.shard)
    plan = OptimiserPlan(settings.optimiser, settings.betas, settings.eps, settings.weight_decay)
    return Learner(
        objective,
        make_optimiser(objective, plan, team=team),
        team,
        module=module,
        clip=settings.clip,
        precision=settings.precision,
        seed=settings.seed,
    )


def compile_layers(model: Any, *, backend: Any = "inductor") -> None:
    """Let torch compile each layer, which takes far less time than compiling the whole model."""
    from torch import nn

    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                layer.compile(dynamic=True, backend=backend)


def make_schedule(settings: Training, d_model: int) -> Schedule:
    """The recipe's schedule; the paper's learning rate where it names none."""
    lr = settings.lr
    if lr is None:
        if settings.schedule != "paper":
            raise InputError(
                f"training.lr is missing; the schedule {settings.schedule!r} needs it."
            )
        lr = paper_rate(d_model, settings.warmup)
    return Schedule(settings.schedule, lr, settings.warmup, settings.final)


def make_trainer(
    recipe: Recipe,
    material: Material,
    learner: Learner,
    *,
    folder: Path,
    callbacks: Callbacks,
) -> Trainer:
    """A trainer that is ready to run."""
    settings, team = recipe.training, learner.team
    feed = material.feed(
        batch_tokens=settings.batch_tokens, accumulate=settings.accumulate, seed=settings.seed
    )
    return Trainer(
        learner,
        feed,
        lambda: material.once(
            "validation", batch_tokens=settings.batch_tokens, rank=team.rank, ranks=team.ranks
        ),
        settings,
        schedule=make_schedule(settings, learner.objective.model.config.d_model),
        folder=folder,
        callbacks=callbacks,
        metric=recipe.evaluate.metric,
    )
