"""Several processes: the same gradients for any number, other numbers on resume, restarts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from regard.errors import InputError
from regard.training.distributed import World, full_tensor, wrap_module
from tests.backwards import write_recipe

HERE = Path(__file__).parent
WORLDS = {
    "two": "2",
    "three": "3",
    "two that share weights": "2-training.shard=true",
    "three that share weights": "3-training.shard=true",
}
RUN = "2-train-model.dropout=0.1"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    # the loss does not depend on a bias of keys, whose gradient would be rounding errors
    return write_recipe(
        tmp_path_factory.mktemp("world"),
        model="dropout = 0.0\nattention_bias = false",
        training="batch_tokens = 100\naccumulate = 4\nsteps = 12\nvalidate_every = 4",
        evaluate="samples = 0",
    )


def torchrun(n_processes: int, *given, restarts: int = 0) -> subprocess.Popen:
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={n_processes}"]
    launch += [f"--max-restarts={restarts}", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return begin([*launch, *given])


def begin(command: list) -> subprocess.Popen:
    return subprocess.Popen(
        list(map(str, command)),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen) -> str:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def teams(recipe) -> Path:
    """A folder with the gradients of every world's first step, and a whole run of two."""
    folder = recipe.parent
    finish(begin([sys.executable, HERE / "worlds.py", recipe, folder, "1", *WORLDS.values(), RUN]))
    return folder


def close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert_close(one[name], other[name], msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_several_processes_have_the_gradients_of_one(teams, world):
    # four batches of unequal token counts: 2 and 2, or 1, 1, 1 and the fourth divided by rows
    alone, together = (load_file(teams / f"{name}.safetensors") for name in ("1", world))
    assert any(value.abs().max() > 1e-3 for value in alone.values())
    close(together, alone)


@pytest.mark.slow
def test_a_checkpoint_of_two_sharded_processes_resumes_on_one_and_on_three(recipe, tmp_path):
    train = ("-m", "regard", "train", recipe)
    folder = tmp_path / "moving"
    sharded = ("--set", "training.shard=true")
    finish(torchrun(2, *train, "-o", folder, *sharded, "--set", "training.steps=5"))
    finish(torchrun(1, *train, "-o", folder, "--resume", "--set", "training.steps=9"))
    said = finish(torchrun(3, *train, "-o", folder, "--resume"))
    assert "resuming from step 9" in said
    finish(torchrun(1, *train, "-o", tmp_path / "alone"))
    last = "training/checkpoints/step-00000012/model.safetensors"
    for name, value in load_file(tmp_path / "alone" / last).items():
        moved = load_file(folder / last)[name]
        assert_close(moved, value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: name + text)


def test_torchrun_restarts_a_run_after_a_worker_was_killed(recipe, teams, tmp_path):
    train = ("-m", "regard", "train", recipe, "--set", "model.dropout=0.1")
    folder = tmp_path / "killed"
    process = torchrun(2, *train, "-o", folder, restarts=2)
    end = time.monotonic() + 300
    while not (folder / "training/checkpoints/step-00000004").is_dir():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(workers_of(process.pid)[-1], signal.SIGKILL)
    said = finish(process)
    assert "resuming from step" in said
    one, other = (load_file(at / "model.safetensors") for at in (teams / RUN, folder))
    assert all(torch.equal(one[name], other[name]) for name in one)


def workers_of(parent: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(parent).children()]


def test_a_world_of_one_process():
    world = World()
    assert world.is_main
    assert world.sum(1, 2.5) == [1.0, 2.5]
    assert torch.equal(full_tensor(torch.ones(2)), torch.ones(2))
    module = torch.nn.Linear(2, 2)
    assert wrap_module(module, world) is module
    with pytest.raises(InputError, match="needs several processes"):
        wrap_module(module, world, shard=True)
