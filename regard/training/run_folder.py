"""The folder of a run: starting a run, and checking what a resumed run may change."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.errors import FileError, InputError
from regard.files import STANDARD_INPUT, atomic_path, copy_decompressed, write_atomic
from regard.model_folder import CONFIG, MODEL_FILES
from regard.training.checkpoint import Checkpoints
from regard.training.metrics import METRICS
from regard.training.recipe import SPLITS, ParallelFiles, Recipe, TrainingSettings, load_recipe

TRAINING = "training"
"""Subfolder of a model folder for recipe, checkpoints and metrics."""
CHECKPOINTS, RESULT = "checkpoints", "result.json"
_RECIPE = "recipe.json"
_FIXED_SETTINGS = ("seed", "optimizer", "precision", "batch_tokens")
"""Optimizer state, gradient scale and position in the data depend on these."""
BF16_WORTHWHILE = 1.5
"""Gain in matrix products from which a step is faster in bf16, whose other parts are slower."""
Report = Callable[[str], None]


def fixed_settings(settings: TrainingSettings) -> dict[str, Any]:
    """Return the settings that must not change in a resumed run."""
    return {name: getattr(settings, name) for name in _FIXED_SETTINGS}


def check_settings(before: Mapping[str, Any], settings: TrainingSettings) -> None:
    """Raise an error if a fixed setting differs from `before`."""
    for name, value in before.items():
        now = getattr(settings, name)
        if now != value:
            raise InputError(
                f"the run was started with training.{name} = {json.dumps(value)} and cannot "
                f"continue with {json.dumps(now)}: change it back, or start another run."
            )


def clear_folder(folder: Path) -> None:
    """Delete the run and the model in a folder; other files stay."""
    if (folder / TRAINING / _RECIPE).is_file():
        shutil.rmtree(folder / TRAINING)
    if (folder / CONFIG).is_file():
        for name in MODEL_FILES:
            (folder / name).unlink(missing_ok=True)


def open_folder(
    folder: Path,
    recipe: Recipe,
    *,
    resume: bool,
    report: Report,
    bf16_gain: Callable[[], float] = lambda: 1.0,
) -> None:
    """Start a run in a folder, or continue the one that is there and report what has changed.

    Args:
        bf16_gain: measures how much faster bf16 is, for the precision "auto".
    """
    stored = folder / TRAINING / _RECIPE
    if stored.is_file() and (resume or _has_started(folder)):
        if not resume:
            raise InputError(
                f"{folder} already contains a run: continue it with --resume (resume=True), start "
                "again with --overwrite (overwrite=True), or choose another folder."
            )
        before = _read(stored)
        recipe = _with_precision(recipe, before.training.precision)
        recipe = _merge(folder, before, recipe, report)
    elif (folder / CONFIG).is_file():
        raise InputError(
            f"{folder} already contains a model: choose another folder, or replace it with "
            "--overwrite (overwrite=True)."
        )
    elif recipe.training.precision == "auto":
        gain = bf16_gain()
        recipe = _with_precision(recipe, "bf16" if gain >= BF16_WORTHWHILE else "float32")
        report(
            f"precision: {recipe.training.precision}, because bf16 is {gain:.1f} times as fast as "
            "float32 in matrix products here"
        )
    write_atomic(stored, recipe.model_dump_json(indent=1, exclude_unset=True))
    save_standard_input(recipe, stored.parent)


def _with_precision(recipe: Recipe, precision: str) -> Recipe:
    """Return the recipe with this precision in place of "auto"."""
    if recipe.training.precision != "auto":
        return recipe
    training = recipe.training.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"training": training})


def _has_started(folder: Path) -> bool:
    """Return False for a run that failed before its first step, which can be started again."""
    training = folder / TRAINING
    saved = Checkpoints(training / CHECKPOINTS).steps()
    return bool(saved) or any((training / name).is_file() for name in (METRICS, RESULT))


def stored_recipe(folder: Path) -> Recipe:
    """Return the recipe of the run in an opened folder, the same for all its processes."""
    return with_standard_input(_read(folder / TRAINING / _RECIPE), folder / TRAINING)


def _read(stored: Path) -> Recipe:
    try:
        return load_recipe(json.loads(stored.read_bytes()), name=str(stored))
    except (OSError, ValueError) as error:
        raise FileError(f"{stored} cannot be read ({error}): start another run.") from error


def _merge(folder: Path, before: Recipe, now: Recipe, report: Report) -> Recipe:
    """Check the recipe of a resumed run, and report what has changed."""
    for name in ("task", "data", "tokenizer", "model"):
        if getattr(before, name) != getattr(now, name):
            raise InputError(
                f"the run in {folder} was started with another [{name}] than the recipe has now: "
                "change it back, or start another run with -o."
            )
    old, new = before.training, now.training
    if Checkpoints(folder / TRAINING / CHECKPOINTS).steps():
        check_settings(fixed_settings(old), new)
    if old.minutes is not None and new.minutes is None:
        report(
            f"the run still ends after {old.minutes:g} minutes of training in total; --minutes "
            "sets another limit"
        )
        new = new.model_copy(update={"minutes": old.minutes})
    for name in TrainingSettings.model_fields:
        was, value = getattr(old, name), getattr(new, name)
        if was != value:
            report(f"training.{name} has changed from {json.dumps(was)} to {json.dumps(value)}")
    return now.model_copy(update={"training": new})


def save_standard_input(recipe: Recipe, folder: Path) -> None:
    """Copy standard input into the folder if the recipe reads it and it is not there yet.

    A resumed run and all processes of a run read the copy.
    """
    copy = _input_copy(recipe, folder)
    if STANDARD_INPUT not in recipe.data.paths() or copy.is_file():
        return
    with atomic_path(copy) as temporary:
        copy_decompressed(STANDARD_INPUT, temporary)
        if not temporary.stat().st_size:
            raise InputError(
                "the recipe reads standard input ('-'), which is empty: pipe the data into the "
                "command again, with --resume."
            )


def with_standard_input(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with the saved copy in place of standard input."""
    data, copy = recipe.data, str(_input_copy(recipe, folder).absolute())
    if STANDARD_INPUT not in data.paths():
        return recipe
    changes = {split: _replace_stdin(getattr(data, split), copy) for split in SPLITS}
    return recipe.model_copy(update={"data": data.model_copy(update=changes)})


def _input_copy(recipe: Recipe, folder: Path) -> Path:
    """Return the path of the copy; its suffix is the format of the data."""
    data = recipe.data
    suffix = "txt"  # one side of two files, or running text
    sources = [one for split in SPLITS for one in data.sources(split)]
    if STANDARD_INPUT in sources and recipe.task in ("translation", "classification"):
        suffix = "tsv" if data.keys is None else "jsonl"
    return folder / f"standard-input.{suffix}"


def _replace_stdin(given: Any, copy: str) -> object:
    if isinstance(given, list):
        return [_replace_stdin(one, copy) for one in given]
    if isinstance(given, ParallelFiles):
        sides = {side: _replace_stdin(getattr(given, side), copy) for side in ("source", "target")}
        return given.model_copy(update=sides)
    return copy if given == STANDARD_INPUT else given
