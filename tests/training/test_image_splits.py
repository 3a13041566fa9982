"""The images of a recipe: their parts, and the names of their classes."""

import numpy as np
import pytest
from PIL import Image

from regard.errors import InputError
from regard.training.prepare_data import prepare, split_images
from regard.training.recipe import load_recipe


@pytest.fixture
def recipe(tmp_path):
    """A function that makes a recipe for sixty pictures of three classes in a file."""
    labels = np.arange(60) % 3
    pixels = np.repeat(labels.astype(np.uint8), 16).reshape(60, 4, 4)
    np.savez(tmp_path / "shapes.npz", images=pixels, labels=labels)

    def make(**data):
        given = {"root": str(tmp_path), "train": "shapes.npz", "validation": 0.25, **data}
        return load_recipe(
            {"task": "classification", "data": given, "training": {"steps": 1}}, name="shapes"
        )

    return make


@pytest.fixture
def folders(tmp_path):
    """A function that draws pictures in folders of a part, each class in its own grey."""

    def draw(part, *names):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            grey = {"cat": 10, "dog": 20, "fox": 30}.get(name, 40)
            Image.new("RGB", (4, 4), (grey,) * 3).save(tmp_path / part / name / "1.png")
        return str(tmp_path / part)

    return draw


def greys_by_class(images):
    """The grey of every class that has pictures."""
    return {
        images.classes[label]: int(picture[0, 0, 0])
        for label, picture in zip(images.labels, images.pixels, strict=True)
    }


@pytest.mark.parametrize("classes", [None, ["fox", "cat", "dog"]])
def test_classes_have_the_same_numbers_in_all_splits(recipe, folders, classes):
    train = folders("a", "cat", "dog", "fox")
    given = {"validation": folders("b", "cat", "fox"), "test": folders("c", "fox")}
    parts = split_images(recipe(train=train, classes=classes, **given))
    assert {part.classes for part in parts.values()} == {tuple(classes or ("cat", "dog", "fox"))}
    assert greys_by_class(parts["train"]) == {"cat": 10, "dog": 20, "fox": 30}
    assert greys_by_class(parts["validation"]) == {"cat": 10, "fox": 30}
    assert greys_by_class(parts["test"]) == {"fox": 30}


def test_class_names_can_come_from_a_file(recipe, tmp_path):
    for name, classes in (("a", ["cat", "dog"]), ("b", ["dog", "cat"])):
        pixels = np.stack([np.full((4, 4), 10 * (1 + (one == "dog")), "u1") for one in classes])
        np.savez(tmp_path / f"{name}.npz", images=pixels, labels=[0, 1], classes=classes)
    parts = split_images(recipe(train="a.npz", validation="b.npz"))
    assert {part.classes for part in parts.values()} == {("cat", "dog")}
    assert all(greys_by_class(part) == {"cat": 10, "dog": 20} for part in parts.values())


def test_unknown_classes_in_validation_are_refused(recipe, folders):
    train, other = folders("a", "cat", "dog"), folders("b", "cat", "dgo")
    with pytest.raises(InputError, match=r"b has the class 'dgo'"):
        split_images(recipe(train=train, validation=other))
    with pytest.raises(InputError, match=r"a has the class 'dog'"):
        split_images(recipe(train=train, classes=["cat", "fox"]))


def test_held_out_shares_are_disjoint_and_complete(recipe):
    parts = split_images(recipe(test=0.25))
    assert set(parts) == {"train", "validation", "test"}
    assert sum(len(part.labels) for part in parts.values()) == 60
    assert all(len(part.labels) for part in parts.values())


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_share_without_images_is_refused(recipe, part):
    with pytest.raises(InputError, match=rf"data\.{part} = 0\.0001 holds out too little of these"):
        split_images(recipe(**{part: 0.0001}))


def test_image_training_needs_validation_images(recipe, tmp_path):
    with pytest.raises(InputError, match=r"data\.validation = 0 holds out too little"):
        prepare(recipe(validation=0), tmp_path / "run")


def test_the_recipe_names_numbered_classes(recipe):
    parts = split_images(recipe(classes=["circle", "square", "star"]))
    assert {part.classes for part in parts.values()} == {("circle", "square", "star")}


def test_too_few_names_are_refused(recipe):
    with pytest.raises(InputError, match=r"has 2 names, but shapes\.npz has 3 classes: give"):
        split_images(recipe(classes=["circle", "square"]))
