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
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.inputs import check_dropout, check_inputs, tap_inputs
from regard.attention.linear import CHUNK, causal_product, in_single, rows_by_chunk, running_sums
from regard.attention.mask import Everything, Grid, Mask
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
    check_dropout(dropout)
    check_inputs(query, key, value, as_similarity("dot"))
    if normalisation not in NORMALISATIONS:
        raise InputError(
            f"efficient attention is normalised by 'softmax' or 'scaling', not {normalisation!r}."
        )
    query, key, value, mask = tap_inputs(query, key, value, allowed, site=site)
    tap(f"{site}.pattern", Efficient(normalisation, mask), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    causal, seen = key_mask("efficient attention", mask, grid)
    hidden = value if seen is None else value.masked_fill(~seen, 0.0)
    compute = _KERNELS[normalisation, causal]
    context = compute(in_single(query), in_single(key), in_single(hidden), seen).to(value.dtype)
    return tap(f"{site}.context", context, "query d_v")


@dataclass(frozen=True)
class Efficient(Pattern):
    """The pattern that efficient attention implies without ever making it."""

    normalisation: str
    allowed: Mask

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        rows, columns = tile.grid.rows, tile.grid.columns
        causal, seen = keys_seen("efficient attention", self.allowed, tile)
        query, key = in_single(query), in_single(key)
        if self.normalisation == "scaling":
            counts = seen.cumsum(0)[rows] if causal else seen.sum(0)
            key = key.masked_fill(~seen, 0.0)[columns]
            weights = query[rows] / counts.clamp(min=1) @ key.transpose(-1, -2)
        elif causal:
            groups = rows_by_chunk(rows, key, seen)
            parts = [_causal_rows(query[some], right, some) for some, _, right in groups]
            weights = torch.cat(parts)[:, columns]
        else:
            key_weights = _key_weights(key, seen)[columns]
            weights = torch.softmax(query[rows], dim=-1) @ key_weights.transpose(-1, -2)
        return weights.masked_fill(columns > rows[:, None], 0.0) if causal else weights


def key_mask(
    form: str, mask: Mask, grid: Grid
) -> tuple[bool, Bool[Tensor, "*lead key one"] | None]:
    """Whether the mask is causal, and which keys it shows to everybody (None: all of them).

    Masks that speak of single pairs are refused.
    """
    causal, rest = split_causal(mask)
    if causal and grid.n_query != grid.n_key:
        raise MaskError(
            f"causal {form} needs as many queries as keys, not {grid.n_query} and {grid.n_key}."
        )
    if isinstance(rest, Everything):
        return causal, None
    seen = rest.on_keys(grid)
    if seen is None:
        raise MaskError(
            f"{form} cannot use the mask {mask!r}, which speaks of single pairs. Padding, "
            "causal() and both together are possible; exact attention takes any mask."
        )
    return causal, seen.transpose(-1, -2).expand(*seen.shape[:-2], grid.n_key, 1)


def keys_seen(form: str, mask: Mask, tile: Tile) -> tuple[bool, Bool[Tensor, "key one"]]:
    """The same for the one head of one sequence that a tile is cut from."""
    grid = tile.grid
    whole = Grid.whole(grid.lead, grid.n_query, grid.n_key, grid.rows.device)
    causal, seen = key_mask(form, mask, whole)
    if seen is None:
        return causal, grid.rows.new_ones(grid.n_key, 1, dtype=torch.bool)
    line = Grid(grid.lead, 1, grid.n_key, whole.rows[:1], whole.columns)
    return causal, Tile(line, tile.index).of(seen.transpose(-1, -2)).transpose(-1, -2)


def _softmax(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """ρ(Q) (σ(K)ᵀ V)."""
    parts = _exponentials(key, seen)
    # Dividing the small d × d matrix is cheaper than dividing the tall one.
    total = parts.sum(dim=-2).unsqueeze(-1).clamp(min=_NOTHING)
    return torch.softmax(query, dim=-1) @ (parts.transpose(-1, -2) @ value / total)


def _causal_softmax(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """The same in which position i knows the keys 0 to i: running sums, and running totals."""
    key = key if seen is None else key.masked_fill(~seen, -inf)
    values = F.pad(value, (0, 1), value=1.0).split(CHUNK, dim=-2)  # the ones sum up to totals
    left = torch.softmax(query, dim=-1).split(CHUNK, dim=-2)
    context = []
    for part, run in zip(left, running_sums(key.split(CHUNK, dim=-2), values), strict=True):
        total = run.right.cumsum(dim=-2) + run.before[..., -1].unsqueeze(-2)
        context.append(run.product(part / total.clamp(min=_NOTHING))[..., :-1])
    return torch.cat(context, dim=-2)


def _scaling(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """Q (Kᵀ V) / n, where n counts the keys that are seen."""
    if seen is None:
        return query @ (key.transpose(-1, -2) @ value / key.size(-2))
    mixed = key.masked_fill(~seen, 0.0).transpose(-1, -2) @ value
    return query @ (mixed / seen.sum(dim=-2, keepdim=True).clamp(min=1))


def _causal_scaling(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """The same in which position i knows the keys 0 to i."""
    if seen is None:
        seen = torch.ones(key.size(-2), 1, dtype=torch.bool, device=key.device)
    counts = seen.cumsum(dim=-2).clamp(min=1)
    return causal_product(query / counts, key.masked_fill(~seen, 0.0), value)


_KERNELS = {
    ("softmax", False): _softmax,
    ("softmax", True): _causal_softmax,
    ("scaling", False): _scaling,
    ("scaling", True): _causal_scaling,
}
_NOTHING = 0.5
"""Sums of exponentials count from the largest, so they are at least 1, or 0 if nothing is seen."""


def _exponentials(key: Tensor, seen: Tensor | None) -> Tensor:
    """Exponentials of the keys, each channel measured from its largest."""
    key = key if seen is None else key.masked_fill(~seen, -inf)
    peak = key.detach().amax(dim=-2, keepdim=True)
    return (key - peak.masked_fill(peak == -inf, 0.0)).exp_()


def _key_weights(key: Tensor, seen: Tensor) -> Tensor:
    """σ(K): every channel's weights over the positions."""
    parts = _exponentials(key, seen)
    return parts / parts.sum(dim=-2, keepdim=True).clamp(min=_NOTHING)


def _causal_rows(query: Tensor, right: Tensor, rows: Tensor) -> Tensor:
    """The causal pattern in some rows, from exponentials of all keys."""
    total = right.cumsum(dim=-2)[rows].clamp(min=_NOTHING)
    return torch.softmax(query, dim=-1) / total @ right.transpose(-1, -2)
