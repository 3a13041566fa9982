"""A small run that trains in a second: numbers written backwards."""

from pathlib import Path

import pytest
import torch

from regard.training.build import build_seeded, complete_config, config_fields, make_train_step
from regard.training.callbacks import Callback, RunPosition, StepInfo, ValidationResult
from regard.training.distributed import World
from regard.training.loop import Trainer
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe
from regard.training.step import StepResult
from tests.backwards import write_numbers

MODEL = {
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
    "dropout": 0.1,
}
TRAINING = {
    "lr": 0.01,
    "warmup": 5,
    "batch_tokens": 200,
    "steps": 12,
    "validate_every": 4,
    "threads": 1,
}


class PlainEvaluator:
    """Keeps the metrics of saved models, and scores them with a function."""

    def __init__(self, evaluate=lambda model: ValidationResult()):
        self.evaluate, self.saved = evaluate, []

    def save_model(self, model, metrics):
        self.saved.append(dict(metrics))

    def save_snapshots(self, model, step):
        pass


class Recorder(Callback):
    """Records what it is called with."""

    def __init__(self):
        self.steps, self.validations, self.messages = [], [], []

    def on_step(self, info):
        self.steps.append(info)

    def on_validation(self, step, result, *, best):
        self.validations.append((step, result, best))

    def on_message(self, text):
        self.messages.append(text)


def step_info(step, *, seconds, nll=1.5, n_targets=100, progress=0.5, loss=None):
    result = StepResult(nll + 0.5 if loss is None else loss, nll, 0.0, n_targets, 1.5)
    return StepInfo(RunPosition(step, step / 10, seconds), progress, 0.01 * step, result)


def short_recipe(task="translation", *, training=None, **tables):
    """A recipe that is valid and trains for one step."""
    data = tables.pop("data", {"train": "x"})
    return load_recipe(
        {"task": task, "data": data, "training": {"steps": 1} | (training or {}), **tables}
    )


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A data file, and the folder in which it was prepared."""
    folder = tmp_path_factory.mktemp("backwards")
    return write_numbers(folder), folder / "prepared"


@pytest.fixture
def data_file(tmp_path) -> Path:
    return write_numbers(tmp_path)


@pytest.fixture
def make(tmp_path, prepared):
    """A function that makes a trainer: make(folder="run", **changes of [training])."""
    data_file, prepared_folder = prepared

    def made(*, folder="run", model=None, evaluate=None, data=None, parts=None, **training):
        recipe = load_recipe(
            {
                "task": "translation",
                "data": {"train": str(data or data_file), "validation": 0.1},
                "tokenizer": {"kind": "characters", "size": 30},
                "model": MODEL | (model or {}),
                "training": TRAINING | training,
                "evaluate": evaluate or {},
            }
        )
        torch.set_num_threads(1)
        datasets = prepare(recipe, prepared_folder)
        config = complete_config(config_fields(recipe), recipe, datasets)
        train_step = make_train_step(recipe, build_seeded(config, 1), World())
        parts = {"evaluator": PlainEvaluator(), "callbacks": Recorder()} | (parts or {})
        return Trainer(
            recipe, datasets, train_step, folder=tmp_path / folder / "checkpoints", **parts
        )

    return made
