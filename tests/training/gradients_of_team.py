"""Run by torchrun: the gradients of a recipe's first step, of all processes together."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from regard.training.assemble import make_learner
from regard.training.construct import build_seeded, complete_config, given_fields
from regard.training.distributed import joined, whole
from regard.training.prepare import prepare
from regard.training.recipe import read_recipe


def main(recipe_file: str, output: str, *changes: str):
    torch.set_num_threads(1)
    recipe = read_recipe(recipe_file, changes=changes)
    settings = recipe.training
    with joined() as team:
        material = prepare(recipe, Path(output).parent / f"rank-{team.rank}-of-{team.ranks}")
        config = complete_config(given_fields(recipe, images=False), recipe, material)
        learner = make_learner(recipe, build_seeded(config, 1).double(), team)
        feed = material.feed(
            batch_tokens=settings.batch_tokens, accumulate=settings.accumulate, seed=1
        )
        parts = feed.take(rank=team.rank, ranks=team.ranks)
        (count,) = team.total(sum(part.n_targets() for part in parts))
        learner.gradients(parts, step=1, n_targets=int(count))
        found = {
            name: whole(one.grad).contiguous() for name, one in learner.objective.named_parameters()
        }
        if team.leads:
            save_file(found, output, metadata={"n_targets": str(int(count))})


if __name__ == "__main__":
    main(*sys.argv[1:])
