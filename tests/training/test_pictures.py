"""The images of a recipe: their parts, and the names of their classes."""

import numpy as np
import pytest

from regard.errors import InputError
from regard.training.pictures import split_images
from regard.training.recipe import make_recipe


@pytest.fixture
def recipe(tmp_path):
    """A function that makes a recipe for sixty pictures of three classes in a file."""
    labels = np.arange(60) % 3
    pixels = np.repeat(labels.astype(np.uint8), 16).reshape(60, 4, 4)
    np.savez(tmp_path / "shapes.npz", images=pixels, labels=labels)

    def make(**data):
        given = {"root": str(tmp_path), "train": "shapes.npz", "validation": 0.25, **data}
        return make_recipe(
            {"task": "classification", "data": given, "training": {"steps": 1}}, called="shapes"
        )

    return make


def test_shares_that_are_held_out_are_apart_and_nothing_is_lost(recipe):
    parts = split_images(recipe(test=0.25))
    assert set(parts) == {"train", "validation", "test"}
    assert sum(len(part.labels) for part in parts.values()) == 60
    assert all(len(part.labels) for part in parts.values())


def test_the_recipe_names_the_classes_that_a_file_only_numbers(recipe):
    parts = split_images(recipe(classes=["circle", "square", "star"]))
    assert {part.classes for part in parts.values()} == {("circle", "square", "star")}


def test_too_few_names_are_refused(recipe):
    with pytest.raises(InputError, match=r"names 2 classes, and shapes\.npz has 3: name each"):
        split_images(recipe(classes=["circle", "square"]))
