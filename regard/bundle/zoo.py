"""Models by name: those that come with regard, and folders."""

from pathlib import Path

from regard.bundle.folder import CONFIG, existing
from regard.errors import FileError, UnknownNameError, nearest

ZOO = Path(__file__).resolve().parents[1] / "zoo"
"""One folder for each bundled model."""


def bundled() -> dict[str, Path]:
    """The folders of the models that come with regard, by name."""
    if not ZOO.is_dir():
        return {}
    return {path.name: path for path in sorted(ZOO.iterdir()) if (path / CONFIG).is_file()}


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a bundled model's name, or the folder itself."""
    known = bundled()
    if isinstance(name_or_folder, str) and name_or_folder in known:
        return known[name_or_folder]
    folder = existing(name_or_folder)
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
