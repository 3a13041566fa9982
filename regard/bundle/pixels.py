"""From a picture to the numbers that a vision model reads."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from regard.errors import FileError, InputError, ShapeError

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Pixels:
    """How pixels from 0 to 1 are scaled: (pixel - mean) / std, for each channel."""

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise InputError(
                f"pixels have means {list(self.mean)} and deviations {list(self.std)}; give one "
                "of each for every channel, deviations above 0."
            )

    def read(
        self, image: "str | Path | Image.Image | Tensor", *, n_channels: int, size: int
    ) -> Tensor:
        """The image as a batch of one, (1, channel, height, width), resized to `size`.

        A tensor (channel, height, width) is taken as it is: scaled already, of any size.
        """
        if isinstance(image, Tensor):
            return _batch_of_one(image)
        picture = _open(image) if isinstance(image, str | Path) else image
        if n_channels not in _MODES:
            raise InputError(f"a picture cannot be read as {n_channels} channels: give a tensor.")
        picture = picture.convert(_MODES[n_channels]).resize((size, size), Image.Resampling.BICUBIC)
        numbers = torch.from_numpy(np.array(picture, dtype=np.float32) / 255)
        numbers = numbers.reshape(size, size, n_channels).permute(2, 0, 1)
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return ((numbers - mean) / std)[None]

    def to_dict(self) -> dict[str, Any]:
        """The scale as JSON can hold it."""
        return asdict(self)


def read_pixels(given: Mapping[str, Any] | None) -> Pixels | None:
    """The scale that `to_dict` gave this for."""
    if given is None:
        return None
    try:
        return Pixels(tuple(map(float, given["mean"])), tuple(map(float, given["std"])))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"pixels are described by {dict(given)!r}; it must be lists of numbers under 'mean' "
            "and 'std'."
        ) from None


def _batch_of_one(image: Tensor) -> Tensor:
    batch = image[None] if image.dim() == 3 else image
    if batch.dim() != 4 or batch.size(0) != 1:
        raise ShapeError(
            f"the image has shape {tuple(image.shape)}; give one image, (channel, height, width)."
        )
    return batch.float()


def _open(path: str | Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            picture.load()
            return picture
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        why = getattr(error, "strerror", None) or "it is damaged, or no picture"
        raise FileError(f"the image {path} cannot be read: {why}.") from error
