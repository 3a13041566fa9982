"""Folders of version 0.1: every family, with its British spellings, loads as the same model."""

import json
import re

import pytest
import torch

from regard.model import Model
from regard.training.recipe import load_recipe

FAMILIES = ["transformer", "seq2seq", "encoder", "decoder", "vision"]
RECIPE = {
    "task": "translation",
    "model": {"initialisation": "xavier_uniform"},
    "training": {"steps": 1},
}


def write_in_format_1(model, folder):
    """Save a model, and rewrite its folder as version 0.1 wrote it."""
    model.extras = {"recipe": RECIPE}
    model.save(folder)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    settings = {
        ("initialisation" if name == "initialization" else name): value
        for name, value in config["model"].items()
    }
    file.write_text(json.dumps({**config, "format": 1, "model": settings}))
    card = folder / "card.md"
    card.write_text(re.sub(r"^license:", "licence:", card.read_text(), flags=re.MULTILINE))
    return "initialisation" in settings


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_version_0_1_loads_as_the_same_model(make_bundle, tmp_path, family):
    model = make_bundle(family)
    had_old_key = write_in_format_1(model, tmp_path / "model")
    assert had_old_key == hasattr(model.config, "initialization")
    again = Model.load(tmp_path / "model")
    assert again.config == model.config
    assert (again.task, again.labels, again.pixels) == (model.task, model.labels, model.pixels)
    assert again.card.license == "CC0"
    assert again.extras["recipe"] == RECIPE
    for name, weight in model.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])
    again.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["format"] == 2
    assert "initialisation" not in config["model"]
    assert "license: CC0" in (tmp_path / "model" / "card.md").read_text()


def test_a_recipe_of_version_0_1_is_still_a_recipe(make_bundle, tmp_path, capsys):
    write_in_format_1(make_bundle("transformer"), tmp_path / "model")
    recipe = Model.load(tmp_path / "model").extras["recipe"]
    loaded = load_recipe({**recipe, "data": {"train": ["a.tsv"], "validation": 0.1}})
    assert loaded.model["initialization"] == "xavier_uniform"
    assert "initialization" in capsys.readouterr().err
