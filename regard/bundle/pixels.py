"""From a picture to the numbers that a vision model reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regard.data.image_files import read_picture
from regard.data.images import Normalisation
from regard.errors import InputError, ShapeError

Picture = str | Path | Image.Image | Tensor
"""A file, a picture in memory, or a tensor (channel, height, width) that is normalised already."""

_HALF = 0.5


def read_pixels(
    image: Picture, *, normalisation: Normalisation | None, n_channels: int, size: int
) -> Tensor:
    """One image as a batch, (1, channel, height, width), brought to `size` unless a tensor.

    Without a normalisation, pixels lie between -1 and 1.
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
        pixels = read_picture(image, size=(size, size))
    if n_channels == 1:
        pixels = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    scale = normalisation or Normalisation((_HALF,) * n_channels, (_HALF,) * n_channels)
    return torch.from_numpy(scale.apply(pixels[None]))


def normalisation_from(given: Mapping[str, Any] | None) -> Normalisation | None:
    """The normalisation that a configuration describes by two lists of numbers."""
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
    return Normalisation(mean, deviation)


def _batch_of_one(image: Tensor) -> Tensor:
    batch = image[None] if image.dim() == 3 else image
    if batch.dim() != 4 or batch.size(0) != 1:
        raise ShapeError(
            f"the image has shape {tuple(image.shape)}; give one image, (channel, height, width)."
        )
    return batch.float()
