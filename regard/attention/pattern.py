"""Descriptions of attention weights, from which any tile of them can be recomputed.

A trace keeps a pattern, the queries and the keys instead of n × n weights.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.mask import Everything, Mask
from regard.attention.similarity import Similarity
from regard.attention.softmax import Temperature, finite, softmax_over_keys, upcast_half
from regard.attention.tile import Tile, select_head


class Pattern(ABC):
    """Base of all patterns: the computation of weights from queries and keys."""

    @abstractmethod
    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        """Return the weights of one tile; `query` and `key` are all of this head's."""


@dataclass(frozen=True)
class ExactPattern(Pattern):
    """Attention by its definition: similarity, scale, mask, softmax with a temperature."""

    similarity: Similarity
    scale: float
    temperature: Temperature
    allowed: Mask

    def compared(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Return the similarities before scaling."""
        return self.similarity.compare(_at(query, tile.grid.rows), _at(key, tile.grid.columns))

    def scores(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Return the scaled similarities, with the bias of positions."""
        return self.scaled(self.compared(query, key, tile), tile)

    def scaled(self, compared: Tensor, tile: Tile) -> Tensor:
        """Return the scores for these similarities."""
        scores = upcast_half(compared * self.scale)
        bias = self.similarity.bias(tile.grid)
        return scores if bias is None else scores + tile.of(bias)

    def masked(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Return the scores with -inf where the query must not see the key."""
        scores = self.scores(query, key, tile)
        if isinstance(self.allowed, Everything):
            return scores
        return scores.masked_fill(~tile.of(self.allowed.on(tile.grid)), -inf)

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        full = tile.with_columns()
        weights = softmax_over_keys(self.masked(query, key, full), tile.scalar(self.temperature))
        return weights[:, tile.grid.columns]

    def sums(self, query: Tensor, key: Tensor, tile: Tile) -> Float[Tensor, "rows 2"]:
        """Return each row's largest score and sum of exp((score - largest) / temperature).

        Together they are the log-sum-exp over all keys without a loss of digits. Keys are processed
        in strips that fit into the processor's cache. A row that sees nothing has 0 and 1.
        """
        exact = torch.promote_types(query.dtype, torch.float32)
        peak = query.new_full((len(tile.grid.rows), 1), -inf, dtype=exact)
        total = torch.zeros_like(peak)
        for columns in torch.arange(tile.grid.n_key, device=query.device).split(2048):
            scores = self.masked(query, key, tile.with_columns(columns))
            higher = torch.maximum(peak, scores.amax(-1, keepdim=True).to(peak.dtype))
            ground = finite(higher)
            fading = torch.exp((peak - ground) / self.temperature)
            fresh = scores.sub_(ground).div_(self.temperature).exp_().sum(-1, keepdim=True)
            peak, total = higher, total * fading + fresh
        return torch.cat([finite(peak), total.masked_fill(total == 0, 1.0)], dim=-1).to(exact)


@dataclass(frozen=True, eq=False)
class WeightsPattern(Pattern):
    """Weights as they were computed, if they do not follow from scores by a softmax over keys."""

    table: Tensor
    allowed: Mask = field(default_factory=Everything)

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        table = select_head(self.table, tile.index)
        return table[tile.grid.rows][:, tile.grid.columns]


def _at(vectors: Tensor, positions: Tensor) -> Tensor:
    """Return the vectors at these positions; a view if the positions have no gap."""
    if len(positions) and bool((positions.diff() == 1).all()):
        return vectors[int(positions[0]) : int(positions[-1]) + 1]
    return vectors[positions]
