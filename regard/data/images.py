"""Labeled images in memory, their normalization and augmentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import numpy as np

from regard.data.batches import uniform_draws
from regard.errors import InputError, check_choice


@dataclass(frozen=True)
class Images:
    """Images of one size with their classes."""

    pixels: np.ndarray  # bytes: image × height × width × channel
    labels: np.ndarray  # the class index of each image
    classes: tuple[str, ...]

    def __post_init__(self):
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise InputError(
                "Pixels must be bytes (image × height × width × channel); "
                f"{self.pixels.dtype} of shape {self.pixels.shape} was given."
            )
        if self.labels.shape != self.pixels.shape[:1]:
            raise InputError(f"{len(self.pixels):,} images have {len(self.labels):,} labels.")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise InputError(
                f"Labels are {self.labels.min()} to {self.labels.max()}; with {len(self.classes)} "
                f"classes they must be 0 to {len(self.classes) - 1}."
            )

    def __len__(self) -> int:
        return len(self.labels)


MAX_SIDE = 16_384  # pixels of a resized image
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters for resizing, in the order of its numbers."""


@dataclass(frozen=True)
class Resize:
    """The steps that give an image the size that a model reads, as Pillow does them."""

    size: tuple[int, ...] = ()  # height and width, or only the shorter edge, or () to keep the size
    filter: str = "bicubic"
    crop: tuple[int, ...] = ()  # height and width cut out of the center, with black around if small
    background: str = "none"  # "white" is put behind transparent pixels; "none" drops transparency

    def __post_init__(self):
        sides = (*self.size, *self.crop)
        counted = all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides)
        if len(self.size) > 2 or len(self.crop) not in (0, 2) or not counted:
            raise InputError(
                f"images are resized to {self.size} and cropped to {self.crop}; give height and "
                f"width, each from 1 to {MAX_SIDE:,}."
            )
        check_choice("the filter of images", self.filter, FILTERS)
        check_choice("the background of images", self.background, ("none", "white"))

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of an image after resizing it and before cropping."""
        if len(self.size) == 2:
            return self.size[0], self.size[1]
        if not self.size:
            return height, width
        edge, short = self.size[0], min(height, width)
        return (
            edge if height == short else int(edge * height / short),
            edge if width == short else int(edge * width / short),
        )


@dataclass(frozen=True)
class Normalization:
    """The mean and standard deviation of each channel, of pixels between 0 and 1."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    resize: Resize | None = None  # None: to the size that the model reads, bicubic

    @classmethod
    def of(cls, images: Images) -> "Normalization":
        """Compute the statistics of images; a channel of a single value gets deviation 1."""
        channels = images.pixels.shape[-1]
        counts = np.zeros((channels, 256))
        for start in range(0, len(images), 1024):
            part = images.pixels[start : start + 1024].reshape(-1, channels)
            counts += [np.bincount(column, minlength=256) for column in part.T]
        values = np.arange(256) / 255
        weights = counts / counts.sum(axis=1, keepdims=True)
        mean = weights @ values
        deviation = np.sqrt(weights @ values**2 - mean**2)
        deviation[deviation < 1e-6] = 1.0
        return cls(tuple(mean.tolist()), tuple(deviation.tolist()))

    def apply(self, pixels: np.ndarray) -> np.ndarray:
        """Turn bytes (image × height × width × channel) into floats (channel first)."""
        if pixels.shape[-1] != len(self.mean):
            raise InputError(f"{pixels.shape[-1]} channels do not match {len(self.mean)} means.")
        scale = np.float32(1 / 255) / np.array(self.deviation, np.float32)
        shift = np.array(self.mean, np.float32) / np.array(self.deviation, np.float32)
        return np.ascontiguousarray(np.moveaxis(pixels * scale - shift, -1, 1))


def parse_normalization(given: Mapping[str, Any] | None) -> Normalization | None:
    """Build the normalization that a configuration describes by two lists of numbers."""
    if given is None:
        return None
    try:
        mean, deviation = (tuple(map(float, given[name])) for name in ("mean", "deviation"))
    except (KeyError, TypeError, ValueError, OverflowError):
        mean, deviation = (), ()
    if not mean or len(mean) != len(deviation) or not _usable(mean, deviation):
        raise InputError(
            f"pixels are described by {given!r}; give a list 'mean' and a list 'deviation' "
            "of numbers above 0, with one number for each channel."
        )
    return Normalization(mean, deviation, _parse_resize(given.get("resize")))


def _usable(mean: Sequence[float], deviation: Sequence[float]) -> bool:
    return all(map(isfinite, (*mean, *deviation))) and min(deviation) > 0


def _parse_resize(given: Any) -> Resize | None:
    if given is None:
        return None
    try:
        sides = {name: tuple(given.get(name, ())) for name in ("size", "crop")}
        return Resize(**{**given, **sides})
    except (AttributeError, TypeError) as error:
        names = ", ".join(f.name for f in fields(Resize))
        raise InputError(f"resize is {given!r}; give an object with {names}.") from error


@dataclass(frozen=True)
class Augmentation:
    """Random changes that keep an image's class."""

    shift: int = 0  # move by up to this many pixels in each direction, filled with black
    flip: bool = False  # mirror half of the images left to right
    crop: int = 0  # cut out a square of this side; 0 keeps the whole image

    def apply(
        self, pixels: np.ndarray, *, seed: int, epoch: int, examples: Sequence[int]
    ) -> np.ndarray:
        """Change the images; the result depends on the seed, the epoch and the example only."""
        draws = uniform_draws(seed, epoch, np.asarray(examples), 3)
        sides = np.array(pixels.shape[1:3])
        height, width = new = np.where(self.crop, self.crop, sides)
        rest = sides + 2 * self.shift - new
        if rest.min() < 0:
            raise InputError(f"A square of {self.crop} does not fit in {sides[0]} × {sides[1]}.")
        edge = (self.shift, self.shift)
        padded = np.pad(pixels, ((0, 0), edge, edge, (0, 0)))
        corners = (draws[:, :2] * (rest + 1)).astype(np.int64)
        moved = zip(padded, corners, strict=True)
        changed = np.stack([image[y : y + height, x : x + width] for image, (y, x) in moved])
        if self.flip:
            mirrored = draws[:, 2] < 0.5
            changed[mirrored] = changed[mirrored][:, :, ::-1]
        return changed


def center_crop(pixels: np.ndarray, side: int) -> np.ndarray:
    """Cut the center square out of each image, for models trained on random crops."""
    _, height, width, _ = pixels.shape
    if side > min(height, width):
        raise InputError(f"A square of {side} does not fit in {height} × {width} pixels.")
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[:, top : top + side, left : left + side]


def as_rgb(pixels: np.ndarray) -> np.ndarray:
    """Return an image (height × width × channel) with three channels, as it is shown."""
    rgb = pixels[..., :3] if pixels.shape[-1] >= 3 else np.repeat(pixels[..., :1], 3, axis=-1)
    return np.ascontiguousarray(rgb)
