"""The folder of a run: begun, or gone on with."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.errors import FileError, InputError
from regard.files import STANDARD_INPUT, atomic_path, copy_decompressed, write_atomic
from regard.training.checkpoint import Checkpoints
from regard.training.recipe import PARTS, Files, Recipe, Source, Training, make_recipe
from regard.training.validation import TRAINING

_FIXED = ("seed", "optimizer", "precision", "batch_tokens")
"""Without these, moments, the scale of gradients and the place in the data mean nothing."""


def fixed_settings(settings: Training) -> dict[str, Any]:
    """The settings that a run cannot change on its way."""
    return {name: getattr(settings, name) for name in _FIXED}


def check_settings(before: Mapping[str, Any], settings: Training) -> None:
    """Refuse to go on with settings that must stay as they were and have not."""
    for name, value in before.items():
        now = getattr(settings, name)
        if now != value:
            raise InputError(
                f"the run was begun with training.{name} = {json.dumps(value)} and cannot go on "
                f"with {json.dumps(now)}: set it back, or begin another run."
            )


def changed_settings(before: Training, now: Training) -> list[str]:
    """What is said of each setting that is another one than before."""
    pairs = {name: (getattr(before, name), getattr(now, name)) for name in Training.model_fields}
    return [
        f"training.{name} is {json.dumps(new)} now and was {json.dumps(old)}"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def keep_standard_input(recipe: Recipe, folder: Path) -> None:
    """Copy standard input into the folder, if the recipe names it and it is not there yet.

    So a run that goes on finds it, and so do all processes of a team.
    """
    kept = _kept(recipe, folder)
    if STANDARD_INPUT not in recipe.data.paths() or kept.is_file():
        return
    with atomic_path(kept) as temporary:
        copy_decompressed(STANDARD_INPUT, temporary)
        if not temporary.stat().st_size:
            raise InputError(
                "the recipe reads standard input ('-'), which is empty: pipe the data into the "
                "command again, with --resume."
            )


def with_standard_input(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with the kept file in place of standard input."""
    data, kept = recipe.data, str(_kept(recipe, folder).absolute())
    if STANDARD_INPUT not in data.paths():
        return recipe
    changes = {part: _placed(getattr(data, part), kept) for part in PARTS}
    return recipe.model_copy(update={"data": data.model_copy(update=changes)})


def _kept(recipe: Recipe, folder: Path) -> Path:
    """Where standard input is kept; the name says how it is read."""
    data = recipe.data
    ending = "txt"  # one side of two files, or running text
    sources = [one for part in PARTS for one in data.sources(part)]
    if STANDARD_INPUT in sources and recipe.task in ("translation", "classification"):
        ending = "tsv" if data.keys is None else "jsonl"
    return folder / f"standard-input.{ending}"


def _placed(given: Source | list[Source] | float | None, kept: str) -> object:
    if isinstance(given, list):
        return [_placed(one, kept) for one in given]
    if isinstance(given, Files):
        sides = {"source": _placed(given.source, kept), "target": _placed(given.target, kept)}
        return given.model_copy(update=sides)
    return kept if given == STANDARD_INPUT else given


Say = Callable[[str], None]
CHECKPOINTS = "checkpoints"
_RECIPE = "recipe.json"
_FIXED_KEYS = ("task", "data", "tokenizer", "model")
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
    write_atomic(stored, recipe.model_dump_json(indent=1, exclude_unset=True))
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
    for name in _FIXED_KEYS:
        if getattr(before, name) != getattr(now, name):
            raise InputError(
                f"the run in {folder} was begun with another [{name}] than the recipe has now: "
                "set it back, or begin another run with -o."
            )
