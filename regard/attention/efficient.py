"""Efficient attention: keys and values are multiplied first, so n × n becomes d × d.

    softmax form:  ρ(Q) (σ(K)ᵀ V)       ρ: softmax of each query over its channels
                                        σ: softmax of each key channel over positions
    scaling form:  (Q/√n) ((K/√n)ᵀ V)   dot-product attention with 1/n in place of a softmax

Shen et al. 2018; the cost is O(n · d²). The n × n pattern that is implied, ρ(Q) σ(K)ᵀ, has rows
that sum to 1 in the softmax form and can be looked at like any other.
"""

from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.attend import check_inputs
from regard.attention.linear import causal_product
from regard.attention.mask import Everything, Grid, Mask, as_mask
from regard.attention.masks import split_causal
from regard.attention.pattern import Pattern, Tile
from regard.attention.similarity import as_similarity
from regard.errors import InputError, MaskError
from regard.tap import tap

NORMALISATIONS = ("softmax", "scaling")


def efficient_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    allowed: Mask | Tensor | None = None,
    normalisation: str = "softmax",
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*batch query d_v"]:
    """Attention in O(n · d²); not the same as softmax attention, but of the same kind.

    `allowed` may be padding, causal or both: a mask of single pairs has no place in a computation
    that never looks at pairs. For the same reason there are no weights to drop out.
    """
    del dropout
    check_inputs(query, key, value, as_similarity("dot"))
    if normalisation not in NORMALISATIONS:
        raise InputError(
            f"efficient attention is normalised by 'softmax' or 'scaling', not {normalisation!r}."
        )
    query = tap(f"{site}.query", query, "query d_k")
    key = tap(f"{site}.key", key, "key d_k")
    value = tap(f"{site}.value", value, "key d_v")
    mask = tap(f"{site}.allowed", as_mask(allowed), "query key")
    tap(f"{site}.pattern", Efficient(normalisation, mask), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    causal, seen = key_mask("efficient attention", mask, grid)
    left, right = _factors(query, key, seen, causal=causal, normalisation=normalisation)
    if causal:
        context = causal_product(left, right, value)
    else:
        context = left @ (right.transpose(-1, -2) @ value)
    return tap(f"{site}.context", context, "query d_v")


@dataclass(frozen=True)
class Efficient(Pattern):
    """The pattern that efficient attention implies without ever making it."""

    normalisation: str
    allowed: Mask

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        grid = tile.grid
        whole = Grid.whole(grid.lead, grid.n_query, grid.n_key, grid.rows.device)
        causal, seen = key_mask("efficient attention", self.allowed, whole)
        seen = Tile(Grid(whole.lead, 1, whole.n_key, whole.rows[:1], whole.columns), tile.index).of(
            seen
        )
        left, right = _factors(query, key, seen, causal=causal, normalisation=self.normalisation)
        weights = left[grid.rows] @ right[grid.columns].transpose(-1, -2)
        if causal:
            weights = weights.masked_fill(grid.columns > grid.rows[:, None], 0.0)
        return weights


def key_mask(form: str, mask: Mask, grid: Grid) -> tuple[bool, Bool[Tensor, "*lead one key"]]:
    """Whether the mask is causal, and which keys it shows to everybody; others are refused."""
    causal, rest = split_causal(mask)
    if causal and grid.n_query != grid.n_key:
        raise MaskError(
            f"causal {form} needs as many queries as keys, not {grid.n_query} and {grid.n_key}."
        )
    seen = Everything().on_keys(grid) if isinstance(rest, Everything) else rest.on_keys(grid)
    if seen is None:
        raise MaskError(
            f"{form} cannot use the mask {mask!r}: it never looks at single pairs. Padding, "
            "causal() and both together are possible; exact attention takes any mask."
        )
    return causal, seen


def _factors(
    query: Tensor, key: Tensor, seen: Tensor, *, causal: bool, normalisation: str
) -> tuple[Tensor, Tensor]:
    """Two tall matrices whose product is the pattern (below its diagonal, if causal)."""
    seen = seen.transpose(-1, -2)
    if normalisation == "scaling":
        counts = seen.cumsum(-2) if causal else seen.sum(-2, keepdim=True)
        return query / counts.clamp(min=1), key.masked_fill(~seen, 0.0)
    left = torch.softmax(query, dim=-1)
    masked = key.masked_fill(~seen, -inf)
    peak = masked.detach().amax(dim=-2, keepdim=True)
    right = torch.exp(masked - peak.masked_fill(peak == -inf, 0.0))
    total = right.cumsum(dim=-2) if causal else right.sum(dim=-2, keepdim=True)
    return left / total.masked_fill(total == 0, inf), right
