"""What was computed at an attention site, without its n × n numbers.

A pattern is the recipe of the weights: given queries and keys again, it recomputes any tile of
them. It is what a trace keeps instead of the weights.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.mask import Grid, Mask
from regard.attention.similarity import Similarity
from regard.attention.softmax import Temperature, softmax_over_keys


@dataclass(frozen=True)
class Tile:
    """Some rows and columns of one head of one sequence, and the grid they are cut from."""

    grid: Grid
    index: tuple[int, ...]
    """Which of the leading axes' entries: (), (head,) or (batch, head)."""

    def of(self, tensor: Tensor) -> Tensor:
        """This tile of something that broadcasts against (*lead, rows, columns)."""
        lead = tensor.shape[:-2]
        index = self.index[len(self.index) - len(lead) :]
        picked = tensor[tuple(0 if n == 1 else i for n, i in zip(lead, index, strict=True))]
        return picked.expand(len(self.grid.rows), len(self.grid.columns))

    def scalar(self, value: Temperature) -> Temperature:
        """This head's entry of a temperature, which may be one number for all."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        return self.of(value)[:, :1]


class Pattern(ABC):
    """How the weights of a site follow from its queries and keys."""

    @abstractmethod
    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        """The weights in one tile; `query` and `key` are all of this head's."""


@dataclass(frozen=True)
class Exact(Pattern):
    """Attention by its definition: similarity, scale, mask, softmax with a temperature."""

    similarity: Similarity
    scale: float
    temperature: Temperature
    allowed: Mask

    def compared(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Similarities before scaling."""
        return self.similarity.compare(query[tile.grid.rows], key[tile.grid.columns])

    def scores(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Scaled similarities, with what positions add to them."""
        scores = self.compared(query, key, tile) * self.scale
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        bias = self.similarity.bias(tile.grid)
        return scores if bias is None else scores + tile.of(bias)

    def masked(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Scores with -inf where the query may not see the key."""
        scores = self.scores(query, key, tile)
        return scores.masked_fill(~tile.of(self.allowed.on(tile.grid)), -inf)

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        full = whole_rows(tile)
        weights = softmax_over_keys(self.masked(query, key, full), tile.scalar(self.temperature))
        return weights[:, tile.grid.columns]


def whole_rows(tile: Tile) -> Tile:
    """The tile widened to all keys of its queries."""
    grid = tile.grid
    columns = torch.arange(grid.n_key, device=grid.columns.device)
    return Tile(Grid(grid.lead, grid.n_query, grid.n_key, grid.rows, columns), tile.index)
