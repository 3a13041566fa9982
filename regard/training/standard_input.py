"""Standard input as a recipe's data: kept in a file, because training reads it many times."""

from pathlib import Path

from regard.errors import InputError
from regard.text.files import STANDARD_INPUT, copy_unpacked, replacing
from regard.training.recipe import PARTS, Files, Recipe, Source


def keep_standard_input(recipe: Recipe, folder: Path) -> None:
    """Copy standard input into the folder, if the recipe names it and it is not there yet.

    So a run that goes on finds it, and so do all processes of a team.
    """
    kept = _kept(recipe, folder)
    if STANDARD_INPUT not in recipe.data.paths() or kept.is_file():
        return
    with replacing(kept) as temporary:
        copy_unpacked(STANDARD_INPUT, temporary)
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
