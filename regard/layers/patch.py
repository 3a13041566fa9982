"""From an image to tokens: square patches, each embedded as a vector with its position."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import InputError, ShapeError
from regard.layers.feed_forward import Dropout
from regard.tap import tap

Images: TypeAlias = Float[Tensor, "batch channel height width"]
Patches: TypeAlias = Float[Tensor, "batch patch d_patch"]


@dataclass(frozen=True)
class PatchGrid:
    """The patches of an image as positions in a sequence of tokens."""

    n_rows: int
    n_columns: int
    patch_size: int
    first: int = 0  # the position of the first patch, after the special tokens

    def __len__(self) -> int:
        """Return the number of tokens, including special ones."""
        return self.first + self.n_rows * self.n_columns


def cut_grid(height: int, width: int, patch_size: int, *, first: int = 0) -> PatchGrid:
    """Return the patches of an image of this size, which must have no remainder."""
    if height < 1 or width < 1 or height % patch_size or width % patch_size:
        raise InputError(
            f"an image of {height} × {width} pixels cannot be cut into patches of {patch_size} × "
            f"{patch_size}: resize it to multiples of {patch_size}."
        )
    return PatchGrid(height // patch_size, width // patch_size, patch_size, first)


def cut(images: Images, patch_size: int) -> Patches:
    """Return the pixels of each patch in one row, from the upper left to the lower right patch."""
    return rearrange(
        images,
        "batch channel (row high) (column wide) -> batch (row column) (channel high wide)",
        high=patch_size,
        wide=patch_size,
    )


def resize_positions(
    positions: Float[Tensor, "patch d_model"], old: tuple[int, int], new: tuple[int, int]
) -> Float[Tensor, "new_patch d_model"]:
    """Interpolate learned positions of an `old` (rows, columns) grid to a `new` one, bicubically.

    Dosovitskiy et al. 2021, section 3.2: this lets a model read images of another size.
    """
    if old == new:
        return positions
    picture = rearrange(positions, "(row column) d -> 1 d row column", row=old[0])
    picture = F.interpolate(picture, size=new, mode="bicubic", align_corners=False)
    return rearrange(picture, "1 d row column -> (row column) d")


def join(patches: Patches, grid: PatchGrid) -> Images:
    """Return the image that was cut into these patches."""
    return rearrange(
        patches,
        "batch (row column) (channel high wide) -> batch channel (row high) (column wide)",
        row=grid.n_rows,
        high=grid.patch_size,
        wide=grid.patch_size,
    )


class ConvolutionStem(nn.Module):
    """Convolutions whose patches also see their surroundings (Xiao et al. 2021).

    3 × 3 convolutions of stride 2 halve the image until each cell is a patch, which needs less data
    than the linear stem.
    """

    def __init__(self, d_model: int, *, patch_size: int, n_channels: int) -> None:
        super().__init__()
        times = patch_size.bit_length() - 1
        if patch_size != 2**times or times < 1 or d_model % 2 ** (times - 1):
            raise InputError(
                f"a convolution stem cannot make patches of {patch_size} with d_model {d_model}: "
                "patch_size must be 2, 4, 8 … and d_model a multiple of half of it."
            )
        widths = [n_channels, *(d_model // 2 ** (times - 1 - n) for n in range(times))]
        pairs = pairwise(widths)
        self.halvings = nn.ModuleList(nn.Conv2d(*pair, 3, stride=2, padding=1) for pair in pairs)
        self.mix = nn.Linear(d_model, d_model)

    def forward(self, patches: Patches, grid: PatchGrid) -> Float[Tensor, "batch patch d_model"]:
        picture = join(patches, grid)
        for halving in self.halvings:
            picture = F.gelu(halving(picture))
        return self.mix(rearrange(picture, "batch d row column -> batch (row column) d"))


STEMS = ("linear", "convolution")


class PatchEmbedding(nn.Module):
    """An image as tokens (Dosovitskiy et al. 2021, equation 1).

    image ── cut ── to_token ──┐
    special tokens ── join ────┴── + positions ──▶

    Args:
        image_size: height and width for which positions are learned.
        n_special: learned tokens in front of the patches (class token, distillation token).
    """

    def __init__(
        self,
        d_model: int,
        *,
        image_size: int,
        patch_size: int,
        n_channels: int = 3,
        n_special: int = 1,
        stem: str = "linear",
        dropout: float = 0.0,
        path: str = "embedding",
    ) -> None:
        super().__init__()
        self.patch_size, self.n_channels, self.n_special = patch_size, n_channels, n_special
        self.learned = cut_grid(image_size, image_size, patch_size, first=n_special)
        if stem == "linear":
            self.to_token = nn.Linear(n_channels * patch_size**2, d_model)
        else:
            sizes = {"patch_size": patch_size, "n_channels": n_channels}
            self.to_token = ConvolutionStem(d_model, **sizes)
        self.special = nn.Parameter(torch.empty(n_special, d_model)) if n_special else None
        self.positions = nn.Parameter(torch.empty(len(self.learned), d_model))
        for weight in (self.special, self.positions):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)
        self.dropout = Dropout(dropout)
        self.path = path

    def forward(self, images: Images) -> Float[Tensor, "batch token d_model"]:
        """Return special tokens and patches, each with its position added."""
        grid = self.grid(images)
        patches = tap(f"{self.path}.patches", cut(images, self.patch_size), "patch d_patch")
        linear = isinstance(self.to_token, nn.Linear)
        tokens = self.to_token(patches) if linear else self.to_token(patches, grid)
        if self.special is not None:
            special = self.special.expand(images.size(0), -1, -1)
            tokens = torch.cat([special, tokens], dim=1)
        tokens = tap(f"{self.path}.tokens", tokens, "token d_model")
        special, patches = self.positions.tensor_split([self.n_special])
        old, new = ((one.n_rows, one.n_columns) for one in (self.learned, grid))
        positions = torch.cat([special, resize_positions(patches, old, new)])
        positions = tap(f"{self.path}.positions", positions[None], "token d_model")
        return tap(f"{self.path}.output", self.dropout(tokens + positions), "token d_model")

    def grid(self, images: Images) -> PatchGrid:
        if images.size(1) != self.n_channels:
            raise ShapeError(
                f"the images have {images.size(1)} channels, but this model reads "
                f"{self.n_channels}: convert them first."
            )
        return cut_grid(images.size(2), images.size(3), self.patch_size, first=self.n_special)
