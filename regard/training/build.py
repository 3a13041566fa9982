"""From a recipe, its material and a model to a trainer that is ready to run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, UnknownNameError, nearest
from regard.models.config import FAMILIES, ModelConfig, build, config_class, config_from_dict
from regard.models.presets import get_preset
from regard.models.vision import VisionConfig, patch_grid
from regard.training.callbacks import Callbacks
from regard.training.datasets import Material
from regard.training.distributed import Team, shared
from regard.training.loop import Trainer
from regard.training.objective import OBJECTIVES
from regard.training.optimizer import OptimizerPlan, Schedule, freeze, make_optimizer, paper_rate
from regard.training.recipe import Recipe, Training
from regard.training.step import Learner

_FAMILY = {"translation": "transformer", "language": "decoder", "masked": "encoder"}
_FITTING = {
    "translation": ("transformer", "seq2seq"),
    "language": ("decoder",),
    "masked": ("encoder",),
    "classification": ("encoder", "vision"),
}


def given_fields(
    recipe: Recipe, *, images: bool, base: ModelConfig | None = None
) -> dict[str, Any]:
    """The family and all fields that the recipe, its preset or the model it starts from decide."""
    fields = {k: v for k, v in recipe.model.items() if k not in ("preset", "start_from")}
    preset = recipe.model.get("preset")
    if base is not None:
        fields = base.to_dict() | fields
    elif preset is not None:
        fields = get_preset(preset).config.to_dict() | fields
    usual = "vision" if images else _FAMILY.get(recipe.task, "encoder")
    fields = {"family": usual, **fields}
    family, fitting = fields["family"], _FITTING[recipe.task]
    if family not in FAMILIES:
        raise UnknownNameError(
            f"there is no family of models {family!r}; {nearest(str(family), FAMILIES)}."
        )
    if family not in fitting:
        raise InputError(
            f"a model of the family {family} cannot learn the task {recipe.task}; "
            f"{' or '.join(fitting)} can."
        )
    return fields


def complete_config(
    fields: Mapping[str, Any],
    recipe: Recipe,
    material: Material,
    *,
    base: ModelConfig | None = None,
) -> ModelConfig:
    """The configuration with vocabulary, classes and image size as the data have them.

    Args:
        base: that of a model that is trained further. Its embedding may have more rows than its
            tokenizer has tokens, and keeps them.
    """
    known = config_class(fields["family"]).__dataclass_fields__
    found: dict[str, Any] = {}
    if material.tokenizer is not None:
        target = material.target_tokenizer or material.tokenizer
        rows = getattr(base, "n_vocab", None) or 0
        found = {"n_vocab": max(len(target), rows), "pad_id": target.pad_id or 0}
        if material.target_tokenizer is not None:
            rows = getattr(base, "n_source_vocab", None) or rows
            found["n_source_vocab"] = max(len(material.tokenizer), rows)
            if base is None and fields.get("tie", "all") == "all":
                found["tie"] = "target"
    if recipe.task == "classification":
        found |= {"n_classes": len(material.classes or ()), "fill_head": False}
    if material.image_shape is not None:
        found |= {"image_size": material.image_shape[0], "n_channels": material.image_shape[1]}
    found = {name: value for name, value in found.items() if name in known}
    return config_from_dict({**fields, **found})


def image_tokens(fields: Mapping[str, Any], side: int) -> int:
    """How many tokens a vision model makes of an image with this side."""
    config = config_from_dict({**fields, "family": "vision", "image_size": side})
    assert isinstance(config, VisionConfig)
    return len(patch_grid(config))


def build_seeded(config: ModelConfig, seed: int) -> nn.Module:
    """A fresh model whose first weights are a function of the seed."""
    torch.manual_seed(seed)
    return build(config)


@torch.no_grad()
def take_over(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy the weights that fit by name and shape; the names of those that stay fresh."""
    fresh = []
    for name, value in model.state_dict().items():
        if name in weights and weights[name].shape == value.shape:
            value.copy_(weights[name])
        else:
            fresh.append(name)
    if len(fresh) == len(model.state_dict()):
        raise InputError(
            "the model to start from has no weights that fit this one: take its own configuration "
            "by leaving fields of [model] out."
        )
    return fresh


def make_learner(recipe: Recipe, model: Any, team: Team) -> Learner:
    """The model with its objective and optimizer, shared among the processes of the team."""
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
    plan = OptimizerPlan(settings.optimizer, settings.betas, settings.eps, settings.weight_decay)
    return Learner(
        objective,
        make_optimizer(objective, plan, team=team),
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
