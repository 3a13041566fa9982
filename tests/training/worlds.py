"""Process groups: gradients of a recipe's first step, and a run of two processes.

They get the environment that torchrun would set. They are forked, so that modules are imported only
once.
"""

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed.fsdp
from safetensors.torch import save_file
from torch.distributed import TCPStore

from regard.cli.main import app
from regard.training.build import build_seeded, complete_config, config_fields, make_train_step
from regard.training.distributed import full_tensor, join_world
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe, parse_override

LONG = 240
"""Seconds after which a process prints its stack and ends."""


def gradients(recipe_file: str, output: Path, *changes: str):
    torch.set_num_threads(1)
    recipe = load_recipe(recipe_file, dict(map(parse_override, changes)))
    settings = recipe.training
    with join_world() as world:
        datasets = prepare(recipe, output.parent / f"rank-{world.rank}-of-{world.size}")
        config = complete_config(config_fields(recipe), recipe, datasets)
        train_step = make_train_step(recipe, build_seeded(config, 1).double(), world)
        feed = datasets.loader(
            batch_tokens=settings.batch_tokens, accumulate=settings.accumulate, seed=1
        )
        parts = feed.next_step(rank=world.rank, world_size=world.size)
        (count,) = world.sum(sum(part.n_targets() for part in parts))
        train_step.compute_gradients(parts, step=1, n_targets=int(count))
        found = {
            name: full_tensor(one.grad).contiguous()
            for name, one in train_step.objective.named_parameters()
        }
        if world.is_main:
            save_file(found, output, metadata={"n_targets": str(int(count))})


def train(recipe_file: str, folder: Path, *changes: str):
    sets = [word for change in changes for word in ("--set", change)]
    app(["train", recipe_file, "-o", str(folder), *sets], standalone_mode=False)


def run_team(ranks: int, work, *given):
    """Call `work` in this many processes; the first that fails or takes too long ends all."""
    store, port = kept_store()
    environment = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost"}
    environment |= {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    working = {
        fork(environment | {"RANK": rank, "LOCAL_RANK": rank}, work, *given)
        for rank in range(ranks)
    }
    try:
        while working:
            child, code = os.waitpid(-1, 0)
            working.discard(child)
            if code:
                raise SystemExit(f"a process of {ranks} failed")
    finally:
        for child in (store, *working):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def kept_store() -> tuple[int, int]:
    """Start a process that hosts the store, as torchrun does; return its id and port."""
    reading, writing = os.pipe()

    def keep():
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        os.write(writing, f"{store.port}\n".encode())
        signal.pause()

    child = fork({}, keep)
    os.close(writing)
    with os.fdopen(reading) as stream:
        return child, int(stream.readline())


def fork(environment: dict, work, *given) -> int:
    """Start a process that calls `work` and skips the cleanup of its parent."""
    child = os.fork()
    if child:
        return child
    try:
        faulthandler.dump_traceback_later(LONG, exit=True)
        os.environ.update({name: str(value) for name, value in environment.items()})
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
