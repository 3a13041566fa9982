"""A small run that learns in a second: numbers written backwards."""

from pathlib import Path

import pytest
import torch

from regard.training.build import (
    build_seeded,
    complete_config,
    given_fields,
    make_learner,
    make_trainer,
)
from regard.training.callbacks import Callbacks, Reporter
from regard.training.distributed import Team
from regard.training.prepare_data import prepare
from regard.training.recipe import make_recipe
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


class Notes(Reporter):
    """Remembers what it was told."""

    def __init__(self):
        self.moments, self.validations, self.notes = [], [], []

    def stepped(self, moment):
        self.moments.append(moment)

    def validated(self, step, evaluation, *, best):
        self.validations.append((step, evaluation, best))

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def data_file(tmp_path) -> Path:
    return write_numbers(tmp_path)


@pytest.fixture
def make(tmp_path, data_file):
    """A function that makes a trainer: make(folder="run", **changes of [training])."""

    def made(*, folder="run", callbacks=None, model=None, evaluate=None, team=None, **training):
        recipe = make_recipe(
            {
                "task": "translation",
                "data": {"train": str(data_file), "validation": 0.1},
                "tokenizer": {"kind": "characters", "size": 30},
                "model": MODEL | (model or {}),
                "training": TRAINING | training,
                "evaluate": evaluate or {},
            }
        )
        torch.set_num_threads(1)
        home = tmp_path / folder
        material = prepare(recipe, home)
        config = complete_config(given_fields(recipe, images=False), recipe, material)
        learner = make_learner(recipe, build_seeded(config, 1), team or Team())
        saved = []
        callbacks = callbacks or Callbacks(
            save_model=lambda model, numbers: saved.append(dict(numbers)), reporter=Notes()
        )
        trainer = make_trainer(
            recipe, material, learner, folder=home / "checkpoints", callbacks=callbacks
        )
        trainer.saved = saved
        return trainer

    return made


def weights_of(trainer) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in trainer.model.state_dict().items()}
