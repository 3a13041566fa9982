"""Read images from files: one folder for each class, .npz, or MNIST's idx format."""

import logging
import struct
import zipfile
from collections.abc import Sequence
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from regard.data.images import FILTERS, MAX_SIDE, Images, Normalization, Resize
from regard.errors import FileError, InputError, RegardError, ShapeError, nearest
from regard.files import open_bytes, stream_errors

if TYPE_CHECKING:
    import torch

    Picture = str | Path | Image.Image | torch.Tensor
    """A file, an image in memory, or a normalized tensor (channel, height, width)."""
else:
    Picture = Any

logging.getLogger("PIL").addHandler(logging.NullHandler())  # damaged files raise errors, too

Size = tuple[int, int]
_IDX_PARTS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def read_pixels(
    image: Picture, *, normalization: Normalization | None, n_channels: int, size: int
) -> "torch.Tensor":
    """Return one image as a batch (1, channel, height, width), resized unless it is a tensor.

    Without a normalization, pixels are between -1 and 1.
    """
    import torch

    if isinstance(image, torch.Tensor):
        batch = image[None] if image.dim() == 3 else image
        if batch.dim() != 4 or batch.size(0) != 1:
            raise ShapeError(
                f"the image has shape {tuple(image.shape)}; give one (channel, height, width)."
            )
        return batch.float()
    if n_channels not in (1, 3):
        raise InputError(f"this model reads {n_channels} channels, not 1 or 3: give a tensor.")
    scale = normalization or Normalization((0.5,) * n_channels, (0.5,) * n_channels)
    resize = scale.resize or Resize((size, size))
    mode = "RGB" if n_channels == 3 else "L"
    pixels = _read(image, resize, mode)
    if pixels.shape[:2] != (size, size):
        height, width = pixels.shape[:2]
        raise InputError(
            f"the image has {height} × {width} pixels after the steps that the checkpoint asks "
            f"for, but the model reads {size} × {size}: resize or crop it before."
        )
    return torch.from_numpy(scale.apply(pixels.reshape(1, size, size, n_channels)))


def read_image(
    image: str | Path | Image.Image, *, size: tuple[int, int] | None = None
) -> np.ndarray:
    """Return one image as RGB bytes (height × width × 3), rotated as its EXIF data says."""
    return _read(image, Resize(size or ()), "RGB")


def _read(image: str | Path | Image.Image, resize: Resize, mode: str) -> np.ndarray:
    try:
        if isinstance(image, Image.Image):
            return _prepare(image, resize, mode)
        with Image.open(image) as opened:
            return _prepare(opened, resize, mode)
    except RegardError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"{image}: there is no such file; check the path.") from error
    except Exception as error:  # Pillow's decoders raise many types for damaged files
        named = getattr(image, "filename", image) or "the input"  # opened images have one
        raise FileError(f"{named} is not an image that can be read: {error}.") from error


def _prepare(image: Image.Image, resize: Resize, mode: str) -> np.ndarray:
    """Return the bytes of an image after all steps but normalization."""
    image = ImageOps.exif_transpose(image)
    if image.mode[0] in "IF":
        raise InputError(
            f"the image has pixels of the kind {image.mode}, which Pillow would cut off at 255: "
            "convert it to 8 bits for each channel."
        )
    if resize.background == "white" and image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    image = image.convert(mode)
    height, width = resize.resized(image.height, image.width)
    if resize.size:
        if max(height, width) > MAX_SIDE:
            raise InputError(
                f"the image of {image.height} × {image.width} pixels is too long and thin: resized "
                f"it would have {height:,} × {width:,}. Crop it before."
            )
        image = image.resize((width, height), Image.Resampling(FILTERS.index(resize.filter)))
    if resize.crop:
        left, top = ((a - b) // 2 for a, b in zip((width, height), resize.crop[::-1], strict=True))
        image = image.crop((left, top, left + resize.crop[1], top + resize.crop[0]))
    return np.asarray(image)


def read_images(
    path: str | Path,
    *,
    size: Size | None = None,
    split: str = "train",
    classes: Sequence[str] | None = None,
) -> Images:
    """Return the images at a path: a folder with one folder for each class, .npz, or idx files.

    Args:
        size: height and width to resize the images of a folder to.
        split: which part to take where several are stored together: a folder of that name, or idx
            files that start with it (`train-images-idx3-ubyte.gz`).
        classes: names for the numbers of .npz and idx, or the allowed folders, in the order of
            their indices; class names stored in an .npz are treated like those of folders.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path} does not exist: give a folder of images, an .npz or an idx file.")
    if path.suffix == ".npz":
        return _read_npz(path, classes)
    if path.is_file():
        return _read_idx_pair(path, classes)
    idx = sorted(path.glob(f"{split}*{_IDX_PARTS[0]}*"))
    if idx:
        return _read_idx_pair(idx[0], classes)
    folder = path / split if (path / split).is_dir() else path
    return _read_folder(folder, size, classes)


def _read_folder(folder: Path, size: Size | None, classes: Sequence[str] | None) -> Images:
    found = sorted(path.name for path in folder.glob("[!.]*") if path.is_dir())
    names = list(classes or found)
    _check_classes(folder, found, names)
    files = [
        (file, number)
        for number, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.is_file() and file.name[0] != "."
    ]
    if not files:
        raise InputError(f"{folder} has no images: it needs one folder of images for each class.")
    pixels: np.ndarray | None = None
    for index, (file, _) in enumerate(files):
        image = read_image(file, size=size)
        if pixels is None:
            pixels = np.empty((len(files), *image.shape), np.uint8)
        if image.shape != pixels.shape[1:]:
            raise InputError(
                f"{file} is {image.shape[0]} × {image.shape[1]} pixels and the images before it "
                f"{pixels.shape[1]} × {pixels.shape[2]}: give a size to resize them all to."
            )
        pixels[index] = image
    assert pixels is not None
    return Images(pixels, np.array([number for _, number in files]), tuple(names))


def _check_classes(path: Path, found: Sequence[str], classes: Sequence[str]) -> None:
    unknown = [name for name in found if name not in classes]
    if unknown:
        raise InputError(
            f"{path} has the class {unknown[0]!r}, which is not one of {', '.join(classes)}; "
            f"{nearest(unknown[0], classes)}."
        )


def reorder_classes(images: Images, classes: Sequence[str], path: str | Path) -> Images:
    """Number the classes in this order; `path` is named in errors."""
    _check_classes(Path(path), images.classes, classes)
    numbers = np.array([classes.index(name) for name in images.classes], np.int64)
    return Images(images.pixels, numbers[images.labels], tuple(classes))


def _read_npz(path: Path, classes: Sequence[str] | None) -> Images:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} is not an .npz of plain arrays: {error}.") from error
    pixels = _entry(path, arrays, ("images", "pixels", "x", "X", "data"))
    labels = _entry(path, arrays, ("labels", "label", "y", "targets"))
    if "classes" not in arrays:
        return _with_classes(pixels, labels, classes)
    stored = [str(name) for name in arrays["classes"]]
    return reorder_classes(_with_classes(pixels, labels, stored), classes or stored, path)


def _entry(path: Path, arrays: dict[str, np.ndarray], keys: Sequence[str]) -> np.ndarray:
    if found := [arrays[key] for key in keys if key in arrays]:
        return found[0]
    raise InputError(
        f"{path} has the arrays {', '.join(arrays) or '(none)'}; it needs one of {', '.join(keys)}."
    )


def _with_classes(pixels: np.ndarray, labels: np.ndarray, classes: Sequence[str] | None) -> Images:
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    labels = labels.ravel().astype(np.int64)
    if classes is None:
        classes = [str(number) for number in range(int(labels.max(initial=-1)) + 1)]
    return Images(pixels, labels, tuple(classes))


def _read_idx_pair(path: Path, classes: Sequence[str] | None) -> Images:
    images, labels = _IDX_PARTS
    if images not in path.name:
        raise InputError(f"{path} is neither an .npz nor an idx file with '{images}' in its name.")
    name = path.name.replace(images, labels)
    stem = name.removesuffix(".gz").removesuffix(".zst")
    for other in map(path.with_name, (name, stem, stem + ".gz", stem + ".zst")):
        if other.is_file():
            return _with_classes(read_idx(path), read_idx(other), classes)
    raise FileError(f"{path} needs its labels in the same folder, in {name}.")


def read_idx(path: str | Path) -> np.ndarray:
    """Return the bytes of an idx file: two zero bytes, type, axes, sizes, values."""
    with stream_errors(path), open_bytes(path) as stream:
        head = stream.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise FileError(f"{path} is not an idx file of bytes.")
        axes = head[3]
        sizes = struct.unpack(f">{axes}I", _read_exactly(stream, 4 * axes, path))
        values = _read_exactly(stream, prod(sizes), path)
        if stream.read(1):
            raise FileError(f"{path} is damaged: it is longer than its header says.")
    return np.frombuffer(values, np.uint8).reshape(sizes)


def _read_exactly(stream: BufferedIOBase, size: int, path: str | Path) -> bytes:
    try:
        values = stream.read(size)
    except (MemoryError, OverflowError):  # a damaged header asks for too much
        values = b""
    if len(values) != size:
        raise FileError(f"{path} ends after {len(values):,} of {size:,} bytes: download it again.")
    return values
