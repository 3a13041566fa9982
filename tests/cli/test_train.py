"""`regard train`: model folders, signals, kills, full disks and resumed runs."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import FileError, InputError
from regard.model import Model
from regard.trace.trace import Trace
from tests.backwards import write_recipe
from tests.cli.called import call

TRAINING = "batch_tokens = 200\nsteps = 40\nvalidate_every = 8\naverage = 2\nema = 0.9"
EVALUATE = 'metric = "exact"\nsentences = 5\nsnapshots = ["1 2 3"]'


@pytest.fixture
def recipe(tmp_path) -> Path:
    return write_recipe(tmp_path, training=TRAINING, evaluate=EVALUATE)


def start(*given, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "regard", "train", *map(str, given)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    """Return the exit code and the output."""
    said, _ = process.communicate(timeout=600)
    return process.returncode, said


def steps_in(folder: Path) -> list[int]:
    found = (folder / "training" / "checkpoints").glob("step-*")
    return sorted(int(path.name.removeprefix("step-")) for path in found)


def wait_for_step(process: subprocess.Popen, folder: Path, step: int):
    """Wait until a run has saved this step, or has ended."""
    end = time.monotonic() + 120
    while process.poll() is None and not any(one >= step for one in steps_in(folder)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_training_writes_a_model_folder_with_metrics(recipe, tmp_path):
    folder = tmp_path / "model"
    result = call("train", recipe, "-o", folder)
    assert result.exit_code == 0
    assert "40 steps" in result.stdout
    assert "estimated" in result.stdout
    assert f"model: {folder}" in result.stdout
    assert "validation: loss" in result.stderr
    model = Model.load(folder)
    assert model.task == "translation"
    assert model.extras["recipe"]["training"]["steps"] == 40
    assert "exact" in model.card.score
    lines = [
        json.loads(one) for one in (folder / "training/metrics.jsonl").read_text().splitlines()
    ]
    assert [one["step"] for one in lines if "loss" in one] == [10, 20, 30, 40]
    assert [one["step"] for one in lines if "validation" in one] == [8, 16, 24, 32, 40, 40]
    trace = Trace.load(folder / "training/snapshots/step-00000040/0.safetensors")
    assert "decoder.layers.0.cross" in trace.sites


def test_json_has_estimates_and_measurements(recipe, tmp_path):
    result = json.loads(call("train", recipe, "-o", tmp_path / "m", "--json").stdout)
    assert result["why"] == "steps"
    assert result["memory"]["predicted"] == pytest.approx(result["memory"]["measured"], rel=0.5)
    assert result["seconds_per_epoch"]["predicted"] > 0
    assert set(result["validation"]) >= {"loss", "exact", "bleu"}


def test_keys_and_minutes_can_be_set(recipe, tmp_path):
    result = call(
        *("train", recipe, "-o", tmp_path / "m", "--json", "--minutes", "0.02"),
        *("--set", "training.steps=100000", "--set", "model.norm=pre"),
    )
    assert json.loads(result.stdout)["why"] == "minutes"
    assert Model.load(tmp_path / "m").config.norm == "pre"


def test_a_folder_with_a_run_needs_resume_and_the_same_recipe(recipe, tmp_path):
    folder = tmp_path / "m"
    call("train", recipe, "-o", folder, "--set", "training.steps=5")
    with pytest.raises(InputError, match=r"already contains a run: continue it with --resume"):
        call("train", recipe, "-o", folder)
    with pytest.raises(InputError, match=r"started with another \[model\]"):
        call("train", recipe, "-o", folder, "--resume", "--set", "model.d_ff=64")
    assert (
        "10 steps"
        in call("train", recipe, "-o", folder, "--resume", "--set", "training.steps=10").stdout
    )


def test_standard_input_gives_the_same_model_as_a_file_and_is_not_needed_to_resume(
    recipe, tmp_path
):
    short = ("--set", "training.steps=8", "--set", "training.average=0")
    call("train", recipe, "-o", tmp_path / "file", *short)
    piped = ("train", recipe, "-o", tmp_path / "piped", "--set", "data.train=-")
    call(*piped, *short, input=(tmp_path / "digits.tsv").read_bytes())
    one, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("file", "piped")
    )
    assert one == other
    result = call(*piped, "--resume", "--set", "training.steps=12", input=b"")
    assert "12 steps" in result.stdout


def test_a_bundled_recipe_is_found_by_name_and_by_path_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dates", "dates.toml", "recipes/dates.toml", "./recipes/dates.toml"):
        with pytest.raises(InputError, match=r"dates\.toml: unknown key 'training\.stpes'"):
            call("train", name, "--set", "training.stpes=1")
    for name in ("dates-rnn", "recipes/dates-rnn.toml"):  # its name in 0.1
        with pytest.raises(InputError, match=r"/dates\.toml: unknown key"):
            call("train", name, "--set", "training.stpes=1")
    with pytest.raises(FileError, match=r"unknown recipe nodates\.toml, .*the nearest"):
        call("train", "nodates.toml")
    for name in ("my/dates.toml", "my/recipes/dates.toml", "dates.json", "dates.v2.toml"):
        with pytest.raises(FileError, match=rf"unknown recipe {name}, .*the nearest"):
            call("train", name)


def test_a_killed_run_resumes_to_the_same_model_bit_by_bit(recipe, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert finish(start(recipe, "-o", whole))[0] == 0
    dice = random.Random(1)
    kills = 0
    for goal in (12,):
        process = start(recipe, "-o", parts, "--resume")
        wait_for_step(process, parts, goal)
        time.sleep(dice.random() * 0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        finish(process)
    assert kills >= 1
    code, out = finish(start(recipe, "-o", parts, "--resume"))
    assert code == 0, out
    assert "resuming from step" in out
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()
    last = f"training/checkpoints/step-{steps_in(whole)[-1]:08d}"
    for name in ("model", "optimizer", "average"):
        one, other = (load_file(at / last / f"{name}.safetensors") for at in (whole, parts))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    lines = [json.loads(one) for one in (parts / "training/metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in lines if "loss" in one] == [10, 20, 30, 40]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_a_checkpoint(recipe, tmp_path, number):
    folder = tmp_path / "m"
    process = start(recipe, "-o", folder, "--set", "training.steps=100000")
    wait_for_step(process, folder, 5)
    process.send_signal(number)
    code, out = finish(process)
    assert code == 128 + number
    assert "continue with --resume" in out
    assert "Traceback" not in out


def test_a_full_disk_is_an_error_and_leaves_the_last_checkpoint_intact(recipe, tmp_path):
    folder = tmp_path / "m"
    call("train", recipe, "-o", folder, "--set", "training.steps=5")
    before = steps_in(folder)

    def limit_files():  # files cannot grow beyond 8 kB, as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    code, out = finish(start(recipe, "-o", folder, "--resume", preexec_fn=limit_files))
    assert code == 2, out
    assert "cannot be written" in out
    assert "Traceback" not in out
    assert steps_in(folder) == before
    result = call("train", recipe, "-o", folder, "--resume", "--set", "training.steps=15")
    assert "15 steps" in result.stdout
