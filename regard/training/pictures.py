"""The images of a recipe."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from regard.data.chance import draws
from regard.data.image_files import in_order, read_images
from regard.data.images import Augmentation, Images, Normalisation
from regard.errors import InputError, MissingExtraError
from regard.training.examples import Pictures
from regard.training.material import Material, too_little
from regard.training.recipe import Data, Recipe
from regard.training.sources import find_data


def is_image_data(data: Data) -> bool:
    """Whether a recipe for classification speaks of images."""
    if data.generate == "digits":
        return True
    first = data.train[0] if isinstance(data.train, list) else data.train
    if not isinstance(first, str):
        return False
    path = find_data(first, data.root)
    return path.is_dir() or path.suffix == ".npz" or "idx" in path.name


def picture_material(recipe: Recipe, n_tokens: Callable[[int], int]) -> Material:
    """The images of a recipe; shares that are held out are drawn by chance."""
    data, parts = recipe.data, split_images(recipe)
    train = parts["train"]
    pixels = Normalisation.of(train)
    augment = None
    if data.augment is not None:
        augment = Augmentation(data.augment.shift, data.augment.flip, data.augment.crop)
    side = augment.crop if augment and augment.crop else train.pixels.shape[1]
    if side != train.pixels.shape[2] and not (augment and augment.crop):
        raise InputError(
            f"the images are {train.pixels.shape[1]} × {train.pixels.shape[2]} pixels; models read "
            "squares: set data.size, or data.augment.crop."
        )
    makers = {
        part: Pictures(
            images,
            pixels,
            n_tokens=n_tokens(side),
            augmentation=augment if part == "train" else None,
            side=side,
            seed=recipe.training.seed,
        )
        for part, images in parts.items()
    }
    shape = (side, train.pixels.shape[-1])
    return Material(makers, classes=train.classes, pixels=pixels, image_shape=shape)


def split_images(recipe: Recipe) -> dict[str, Images]:
    """The images of each part: "train", and "validation" and "test" where there are such.

    Classes have the numbers that they have in training, whichever of them the other parts hold.
    """
    train = _read_images(recipe, "train")
    parts = {"train": _named(train, recipe.data)}
    for part in ("validation", "test"):
        given = getattr(recipe.data, part)
        if given is not None and not isinstance(given, float):
            parts[part] = _named(_read_images(recipe, part, train.classes), recipe.data)
    for number, part in enumerate(("validation", "test")):
        given = getattr(recipe.data, part)
        if isinstance(given, float) and given:
            chance = draws(number, 0, np.arange(len(parts["train"])), 1)[:, 0]
            parts[part] = _some(parts["train"], chance < given)
            parts["train"] = _some(parts["train"], chance >= given)
            if not len(parts[part]):
                raise too_little(part, given)
    if not len(parts["train"]):
        raise InputError("data.validation and data.test hold out all there is.")
    return parts


def _read_images(recipe: Recipe, part: str, classes: tuple[str, ...] | None = None) -> Images:
    data = recipe.data
    if data.generate == "digits" and part == "train":
        return _digits()
    given = getattr(data, part)
    if not isinstance(given, str):
        raise InputError(f"data.{part} must name one folder or file of images.")
    path = find_data(given, data.root)
    return read_images(path, size=data.size, split=part, classes=classes)


def _named(images: Images, data: Data) -> Images:
    """The images with the recipe's names of classes: for their numbers, or as their new order."""
    given, found = data.classes, images.classes
    if given is None:
        return images
    where = data.train or data.generate
    if len(given) != len(found):
        raise InputError(
            f"data.classes names {len(given)} classes, and {where} has {len(found)}: name each of "
            "them."
        )
    if found == tuple(str(number) for number in range(len(found))):
        return replace(images, classes=tuple(given))
    return in_order(images, given, str(where))


def _digits() -> Images:
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn."
        ) from error
    found: Any = load_digits()
    pixels = np.minimum(np.round(found.images * 16), 255).astype(np.uint8)
    names = tuple(str(number) for number in range(10))
    return Images(pixels[..., None], found.target.astype(np.int64), names)


def _some(images: Images, chosen: np.ndarray) -> Images:
    return Images(images.pixels[chosen], images.labels[chosen], images.classes)
