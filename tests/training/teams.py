"""Teams of processes: the gradients of a recipe's first step, and a whole run of two.

They are told what torchrun would tell them, and are forked one team after another, so that what
every process needs is imported once, not once by each.
"""

import os
import socket
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed.fsdp
from safetensors.torch import save_file

from regard.cli.main import app
from regard.training.assemble import make_learner
from regard.training.construct import build_seeded, complete_config, given_fields
from regard.training.distributed import joined, whole
from regard.training.prepare import prepare
from regard.training.recipe import read_recipe


def gradients(recipe_file: str, output: Path, *changes: str):
    torch.set_num_threads(1)
    recipe = read_recipe(recipe_file, changes=changes)
    settings = recipe.training
    with joined() as team:
        material = prepare(recipe, output.parent / f"rank-{team.rank}-of-{team.ranks}")
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


def train(recipe_file: str, folder: Path, *changes: str):
    sets = [word for change in changes for word in ("--set", change)]
    app(["train", recipe_file, "-o", str(folder), *sets], standalone_mode=False)


def run_team(ranks: int, work, *given):
    """Do the work in this many processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost"}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            numbers = told | {"MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank}
            os.environ.update({name: str(value) for name, value in numbers.items()})
            end(work, *given)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise SystemExit(f"a process of {ranks} failed")


def end(work, *given):
    """Do the last thing of a forked process: what its parent had begun is not for it to finish."""
    try:
        work(*given)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    recipe_file, folder = sys.argv[1], Path(sys.argv[2])
    for name in sys.argv[3:]:  # "2", "2-training.shard=true", "2-train-model.dropout=0.1"
        ranks, *changes = name.split("-")
        if "train" in changes:
            run_team(int(ranks), train, recipe_file, folder / name, *changes[1:])
        else:
            output = folder / f"{name}.safetensors"
            run_team(int(ranks), gradients, recipe_file, output, *changes)
