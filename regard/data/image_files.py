"""Pictures from files: a folder for each class, .npz, or idx as MNIST has it, packed or plain."""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regard.data.images import Images, Normalization
from regard.errors import FileError, InputError, ShapeError, nearest
from regard.files import open_bytes, stream_errors

Picture = str | Path | Image.Image | Tensor
"""A file, a picture in memory, or a tensor (channel, height, width) that is normalized already."""


_HALF = 0.5


def read_pixels(
    image: Picture, *, normalization: Normalization | None, n_channels: int, size: int
) -> Tensor:
    """One image as a batch, (1, channel, height, width), brought to `size` unless a tensor.

    Without a normalization, pixels lie between -1 and 1.
    """
    if isinstance(image, Tensor):
        return _batch_of_one(image)
    if n_channels not in (1, 3):
        raise InputError(
            f"this model reads {n_channels} channels, which no picture has: give a tensor."
        )
    if isinstance(image, Image.Image):
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        pixels = np.asarray(resized)
    else:
        pixels = read_image(image, size=(size, size))
    if n_channels == 1:
        pixels = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    scale = normalization or Normalization((_HALF,) * n_channels, (_HALF,) * n_channels)
    return torch.from_numpy(scale.apply(pixels[None]))


def parse_normalization(given: Mapping[str, Any] | None) -> Normalization | None:
    """The normalization that a configuration describes by two lists of numbers."""
    if given is None:
        return None
    try:
        mean, deviation = (tuple(map(float, given[name])) for name in ("mean", "deviation"))
    except (KeyError, TypeError, ValueError):
        mean, deviation = (), ()
    if not mean or len(mean) != len(deviation) or min(deviation) <= 0:
        raise InputError(
            f"pixels are described by {dict(given)!r}; it must be a list 'mean' and a list "
            "'deviation' of numbers above 0, one of each for every channel."
        )
    return Normalization(mean, deviation)


def _batch_of_one(image: Tensor) -> Tensor:
    batch = image[None] if image.dim() == 3 else image
    if batch.dim() != 4 or batch.size(0) != 1:
        raise ShapeError(
            f"the image has shape {tuple(image.shape)}; give one image, (channel, height, width)."
        )
    return batch.float()


_PIXEL_KEYS = ("images", "pixels", "x", "X", "data")
_LABEL_KEYS = ("labels", "label", "y", "targets")
_IDX_PARTS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def read_images(
    path: str | Path,
    *,
    size: tuple[int, int] | None = None,
    split: str = "train",
    classes: Sequence[str] | None = None,
) -> Images:
    """The pictures at a path: a folder with one folder for each class, .npz, or idx files.

    Args:
        size: height and width to bring the pictures of a folder to.
        split: which part to take where several lie together: a folder of that name, or idx files
            that begin with it (`train-images-idx3-ubyte.gz`).
        classes: names for the numbers of .npz and idx, or which folders there may be, in the order
            of their numbers; names that an .npz holds are taken as those of folders are.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path} does not exist: name a folder of images, an .npz or an idx file.")
    if path.suffix == ".npz":
        return _read_npz(path, classes)
    if path.is_file():
        return _read_idx_pair(path, classes)
    idx = sorted(path.glob(f"{split}*{_IDX_PARTS[0]}*"))
    if idx:
        return _read_idx_pair(idx[0], classes)
    folder = path / split if (path / split).is_dir() else path
    return _read_folder(folder, size, classes)


def _read_folder(
    folder: Path, size: tuple[int, int] | None, classes: Sequence[str] | None
) -> Images:
    found = sorted(
        entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."
    )
    names = list(classes or found)
    _check_known(folder, found, names)
    files = [
        (file, number)
        for number, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.is_file() and file.name[0] != "."
    ]
    if not files:
        raise InputError(f"{folder} holds no images: one folder for each class is expected in it.")
    pixels: np.ndarray | None = None
    for place, (file, _) in enumerate(files):
        picture = read_image(file, size=size)
        if pixels is None:
            pixels = np.empty((len(files), *picture.shape), np.uint8)
        if picture.shape != pixels.shape[1:]:
            raise InputError(
                f"{file} is {picture.shape[0]} × {picture.shape[1]} pixels and the others before "
                f"it {pixels.shape[1]} × {pixels.shape[2]}: give a size to bring them all to."
            )
        pixels[place] = picture
    assert pixels is not None
    return Images(pixels, np.array([number for _, number in files]), tuple(names))


def _check_known(path: Path, found: Sequence[str], classes: Sequence[str]) -> None:
    """Refuse classes that are not among those that are known."""
    strange = [name for name in found if name not in classes]
    if strange:
        raise InputError(
            f"{path} has the class {strange[0]!r}, which is none of {', '.join(classes)}; "
            f"{nearest(strange[0], classes)}."
        )


def read_image(path: str | Path, *, size: tuple[int, int] | None = None) -> np.ndarray:
    """One picture as bytes in red, green and blue (height × width × 3), the right way up."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGB")
            if size is not None:
                picture = picture.resize((size[1], size[0]), Image.Resampling.BICUBIC)
            return np.asarray(picture)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FileError(f"{path} is no image that can be read: {error}.") from error


def _read_npz(path: Path, classes: Sequence[str] | None) -> Images:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} is no .npz of plain arrays: {error}.") from error
    pixels = _entry(path, arrays, _PIXEL_KEYS)
    labels = _entry(path, arrays, _LABEL_KEYS)
    if "classes" not in arrays:
        return _numbered(pixels, labels, classes)
    stored = [str(name) for name in arrays["classes"]]
    return reorder_classes(_numbered(pixels, labels, stored), classes or stored, path)


def reorder_classes(images: Images, classes: Sequence[str], path: str | Path) -> Images:
    """The same pictures, with their classes numbered in this order; `path` is where they are."""
    _check_known(Path(path), images.classes, classes)
    numbers = np.array([classes.index(name) for name in images.classes], np.int64)
    return Images(images.pixels, numbers[images.labels], tuple(classes))


def _entry(path: Path, arrays: dict[str, np.ndarray], keys: Sequence[str]) -> np.ndarray:
    for key in keys:
        if key in arrays:
            return arrays[key]
    raise InputError(
        f"{path} holds {', '.join(arrays) or 'nothing'}; one of {', '.join(keys)} is needed."
    )


def _numbered(pixels: np.ndarray, labels: np.ndarray, classes: Sequence[str] | None) -> Images:
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    labels = labels.ravel().astype(np.int64)
    if classes is None:
        classes = [str(number) for number in range(int(labels.max(initial=-1)) + 1)]
    return Images(pixels, labels, tuple(classes))


def _read_idx_pair(path: Path, classes: Sequence[str] | None) -> Images:
    images, labels = _IDX_PARTS
    if images not in path.name:
        raise InputError(
            f"{path} is no image file this can read: .npz, or idx with '{images}' in its name."
        )
    return _numbered(read_idx(path), read_idx(_partner(path, images, labels)), classes)


def _partner(path: Path, images: str, labels: str) -> Path:
    name = path.name.replace(images, labels)
    stem = name.removesuffix(".gz").removesuffix(".zst")
    for candidate in (name, stem, stem + ".gz", stem + ".zst"):
        if path.with_name(candidate).is_file():
            return path.with_name(candidate)
    raise FileError(f"{path} needs its labels beside it, in {name}.")


def read_idx(path: str | Path) -> np.ndarray:
    """The array of bytes in an idx file: two zero bytes, type, axes, sizes, values."""
    with stream_errors(path), open_bytes(path) as stream:
        head = stream.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise FileError(f"{path} is no idx file of bytes.")
        axes = head[3]
        sizes = struct.unpack(f">{axes}I", _exactly(stream, 4 * axes, path))
        values = _exactly(stream, prod(sizes), path)
        if stream.read(1):
            raise FileError(f"{path} is longer than its head says: it is damaged.")
    return np.frombuffer(values, np.uint8).reshape(sizes)


def _exactly(stream: BufferedIOBase, size: int, path: str | Path) -> bytes:
    try:
        values = stream.read(size)
    except (MemoryError, OverflowError):  # a head that is no head asks for more than there is
        values = b""
    if len(values) != size:
        raise FileError(f"{path} ends after {len(values):,} of {size:,} bytes: fetch it again.")
    return values
