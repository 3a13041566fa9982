"""The folder of a run: begun, or gone on with."""

import json
from collections.abc import Callable
from pathlib import Path

from regard.cli.workshop import TRAINING
from regard.errors import FileError, InputError
from regard.text.files import write_whole
from regard.training.checkpoint import Checkpoints
from regard.training.recipe import Recipe, make_recipe
from regard.training.resume import changed_settings, check_settings, fixed_settings
from regard.training.standard_input import keep_standard_input, with_standard_input

Say = Callable[[str], None]
CHECKPOINTS = "checkpoints"
_RECIPE = "recipe.json"
_FIXED = ("task", "data", "tokenizer", "model")
"""Tables of a recipe that a run cannot change on its way."""


def open_folder(folder: Path, recipe: Recipe, *, resume: bool, say: Say) -> None:
    """Begin a run in a folder, or go on with the one that is there.

    Args:
        say: told what is other than before.
    """
    stored = folder / TRAINING / _RECIPE
    if stored.is_file():
        if not resume:
            raise InputError(
                f"{folder} holds a run that was begun before: go on with it by --resume, or give "
                "another folder with -o."
            )
        before = _read(stored)
        _check_tables(folder, before, recipe)
        if Checkpoints(folder / TRAINING / CHECKPOINTS).steps():
            check_settings(fixed_settings(before.training), recipe.training)
        recipe = _with_limit(recipe, before.training.minutes, say)
        for change in changed_settings(before.training, recipe.training):
            say(change)
    elif folder.is_dir() and any(folder.iterdir()) and (folder / "config.json").is_file():
        raise InputError(
            f"{folder} holds a model already: give another folder with -o, or remove it."
        )
    write_whole(stored, recipe.model_dump_json(indent=1, exclude_unset=True))
    keep_standard_input(recipe, stored.parent)


def followed_recipe(folder: Path) -> Recipe:
    """The recipe that the run in an opened folder follows, the same for all its processes."""
    return with_standard_input(_read(folder / TRAINING / _RECIPE), folder / TRAINING)


def _read(stored: Path) -> Recipe:
    try:
        return make_recipe(json.loads(stored.read_bytes()), called=str(stored))
    except (OSError, ValueError) as error:
        raise FileError(f"{stored} cannot be read ({error}): begin another run.") from error


def _with_limit(recipe: Recipe, minutes: float | None, say: Say) -> Recipe:
    """The recipe with the limit of time that the run was begun with, unless it has one."""
    if minutes is None or recipe.training.minutes is not None:
        return recipe
    say(
        f"the run still ends after {minutes:g} minutes of training, all its parts counted; "
        "--minutes sets another limit"
    )
    training = recipe.training.model_copy(update={"minutes": minutes})
    return recipe.model_copy(update={"training": training})


def _check_tables(folder: Path, before: Recipe, now: Recipe) -> None:
    for name in _FIXED:
        if getattr(before, name) != getattr(now, name):
            raise InputError(
                f"the run in {folder} was begun with another [{name}] than the recipe has now: "
                "set it back, or begin another run with -o."
            )
