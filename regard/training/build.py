"""Construction of model and optimizer from a recipe."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.config import ModelConfig, build, config_class, config_from_dict
from regard.models.presets import get_preset
from regard.models.vision import VisionConfig, patch_grid
from regard.training.datasets import Datasets
from regard.training.distributed import World, wrap_module
from regard.training.objective import OBJECTIVES
from regard.training.optimizer import freeze, make_optimizer
from regard.training.prepare_data import has_images
from regard.training.recipe import Recipe
from regard.training.step import TrainStep

FAMILIES_OF = {
    "translation": ("transformer", "seq2seq"),
    "language": ("decoder",),
    "masked": ("encoder",),
    "classification": ("encoder", "vision"),
}
"""Model families of each task; the first is the default (vision for images)."""


def config_fields(recipe: Recipe, *, base: ModelConfig | None = None) -> dict[str, Any]:
    """Return family and config fields that do not depend on the data; `base` replaces a preset."""
    fields = {k: v for k, v in recipe.model.items() if k not in ("preset", "start_from")}
    preset = recipe.model.get("preset")
    if base is not None:
        fields = base.to_dict() | fields
    elif preset is not None:
        fields = get_preset(preset).config.to_dict() | fields
    families = FAMILIES_OF[recipe.task]
    fields = {"family": "vision" if has_images(recipe) else families[0], **fields}
    if fields["family"] not in families:
        raise InputError(
            f"model.family is {fields['family']}, which cannot be trained on the task "
            f"{recipe.task}: use {' or '.join(families)}."
        )
    return fields


def check_model(recipe: Recipe) -> None:
    """Refuse settings of [model] that no data can make valid, before the data are read."""
    if recipe.model.get("start_from") is not None:
        return
    fields = config_fields(recipe)
    sizes = {"n_vocab": 1000, "n_classes": 2, "image_size": 8 * int(fields.get("patch_size") or 1)}
    known = config_class(fields["family"]).__dataclass_fields__
    config_from_dict({n: value for n, value in sizes.items() if n in known} | fields)


def complete_config(
    fields: Mapping[str, Any],
    recipe: Recipe,
    datasets: Datasets,
    *,
    base: ModelConfig | None = None,
) -> ModelConfig:
    """Return the config with the vocabulary, classes and image size of the data.

    The embedding of `base` may have more rows than its tokenizer has tokens, and keeps them.
    """
    found: dict[str, Any] = {}
    if datasets.tokenizer is not None:
        target = datasets.target_tokenizer or datasets.tokenizer
        rows = getattr(base, "n_vocab", None) or 0
        found = {"n_vocab": max(len(target), rows), "pad_id": target.pad_id or 0}
        if datasets.target_tokenizer is not None:
            rows = getattr(base, "n_source_vocab", None) or rows
            found["n_source_vocab"] = max(len(datasets.tokenizer), rows)
            if base is None and fields.get("tie", "all") == "all":
                found["tie"] = "target"
    if recipe.task == "classification":
        found |= {"n_classes": len(datasets.classes or ()), "fill_head": False}
    if datasets.image_shape is not None:
        found |= {"image_size": datasets.image_shape[0], "n_channels": datasets.image_shape[1]}
    known = config_class(fields["family"]).__dataclass_fields__
    return config_from_dict({**fields, **{n: value for n, value in found.items() if n in known}})


def image_tokens(fields: Mapping[str, Any], side: int) -> int:
    """Return the number of tokens of an image in a vision model."""
    config = config_from_dict({**fields, "family": "vision", "image_size": side})
    assert isinstance(config, VisionConfig)
    return len(patch_grid(config))


def build_seeded(config: ModelConfig, seed: int) -> nn.Module:
    """Build a model whose initial weights are a function of the seed."""
    torch.manual_seed(seed)
    return build(config)


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy weights that match by name and shape; return the names of all others."""
    fresh = []
    for name, value in model.state_dict().items():
        if name in weights and weights[name].shape == value.shape:
            value.copy_(weights[name])
        else:
            fresh.append(name)
    if len(fresh) == len(model.state_dict()):
        raise InputError(
            "model.start_from has no weights that fit this model: remove fields of [model], so "
            "that its own config is used."
        )
    return fresh


def make_train_step(recipe: Recipe, model: Any, world: World) -> TrainStep:
    """Build objective and optimizer for a model, distributed over the processes."""
    settings = recipe.training
    freeze(model, settings.freeze)
    objective = OBJECTIVES[recipe.task](
        model, label_smoothing=settings.label_smoothing, agreement=settings.agreement
    ).train()
    if not settings.shard:  # FSDP moves a model that may not fit on a device layer by layer
        objective.to(world.device)
    if settings.compile:
        compile_layers(model)
    module = wrap_module(objective, world, shard=settings.shard)
    optimizer = make_optimizer(
        objective,
        settings.optimizer,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        dtype=torch.bfloat16 if settings.precision == "bf16" else torch.float32,
        world=world,
    )
    return TrainStep(
        objective,
        optimizer,
        world,
        module=module,
        clip=settings.clip,
        precision=settings.precision,
        seed=settings.seed,
    )


def compile_layers(model: nn.Module, *, backend: Any = "inductor") -> None:
    """Compile each layer, which takes far less time than compiling the whole model."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                layer.compile(dynamic=True, backend=backend)
