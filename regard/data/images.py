"""From a picture to the numbers that a vision model reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.batches import uniform_draws
from regard.errors import InputError


@dataclass(frozen=True)
class Images:
    """Pictures of one size with their classes."""

    pixels: np.ndarray
    """Bytes: image × height × width × channel."""
    labels: np.ndarray
    """The number of each picture's class."""
    classes: tuple[str, ...]

    def __post_init__(self):
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise InputError(
                "Pixels must be bytes: image × height × width × channel; given were "
                f"{self.pixels.dtype} of shape {self.pixels.shape}."
            )
        if self.labels.shape != self.pixels.shape[:1]:
            raise InputError(f"{len(self.pixels):,} images have {len(self.labels):,} labels.")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise InputError(
                f"Labels go from {self.labels.min()} to {self.labels.max()}, and there are "
                f"{len(self.classes)} classes, counted from 0."
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Normalization:
    """The mean and the standard deviation of each channel, of pixels between 0 and 1."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, images: Images) -> "Normalization":
        """What makes each channel of these images have mean 0 and deviation 1."""
        channels = images.pixels.shape[-1]
        counts = np.stack([_histogram(images.pixels, channel) for channel in range(channels)])
        values = np.arange(256) / 255
        weights = counts / counts.sum(axis=1, keepdims=True)
        mean = weights @ values
        deviation = np.sqrt(weights @ values**2 - mean**2)
        deviation[deviation < 1e-6] = 1.0  # a channel of one value cannot be spread
        return cls(tuple(mean.tolist()), tuple(deviation.tolist()))

    def apply(self, pixels: np.ndarray) -> np.ndarray:
        """Bytes (image × height × width × channel) as floats (image × channel × height × width)."""
        if pixels.shape[-1] != len(self.mean):
            raise InputError(f"{pixels.shape[-1]} channels do not fit {len(self.mean)} means.")
        scale = np.float32(1 / 255) / np.array(self.deviation, np.float32)
        shift = np.array(self.mean, np.float32) / np.array(self.deviation, np.float32)
        return np.ascontiguousarray(np.moveaxis(pixels * scale - shift, -1, 1))


def _histogram(pixels: np.ndarray, channel: int) -> np.ndarray:
    counts = np.zeros(256)
    for start in range(0, len(pixels), 1024):
        counts += np.bincount(pixels[start : start + 1024, ..., channel].ravel(), minlength=256)
    return counts


@dataclass(frozen=True)
class Augmentation:
    """Changes that leave a picture's class as it is, drawn anew for every epoch.

    Args:
        shift: move by up to so many pixels in each direction; what comes in is black.
        flip: mirror left and right, half of the time.
        crop: cut out a square of this side; 0 keeps the whole.
    """

    shift: int = 0
    flip: bool = False
    crop: int = 0

    def apply(
        self, pixels: np.ndarray, *, seed: int, epoch: int, examples: Sequence[int]
    ) -> np.ndarray:
        """The pictures changed; the same picture in the same epoch always changes the same way."""
        chance = uniform_draws(seed, epoch, np.asarray(examples), 3)
        _, height, width, _ = pixels.shape
        crop_height, crop_width = (self.crop or height), (self.crop or width)
        room = (height + 2 * self.shift - crop_height, width + 2 * self.shift - crop_width)
        if min(room) < 0:
            raise InputError(
                f"A square of {self.crop} cannot be cut from {height} × {width} pixels."
            )
        edge = (self.shift, self.shift)
        padded = np.pad(pixels, ((0, 0), edge, edge, (0, 0)))
        tops = (chance[:, 0] * (room[0] + 1)).astype(np.int64)
        lefts = (chance[:, 1] * (room[1] + 1)).astype(np.int64)
        changed = np.stack(
            [
                picture[top : top + crop_height, left : left + crop_width]
                for picture, top, left in zip(padded, tops, lefts, strict=True)
            ]
        )
        if self.flip:
            mirrored = chance[:, 2] < 0.5
            changed[mirrored] = changed[mirrored][:, :, ::-1]
        return changed


def center_crop(pixels: np.ndarray, side: int) -> np.ndarray:
    """The square in the middle of each picture: what a model trained on crops is tested with."""
    _, height, width, _ = pixels.shape
    if side > min(height, width):
        raise InputError(f"A square of {side} cannot be cut from {height} × {width} pixels.")
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[:, top : top + side, left : left + side]
