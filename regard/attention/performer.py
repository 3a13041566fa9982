"""Performer: random positive features in whose products the softmax kernel is true on average.

    exp(q · k / √d) = E[φ(q) · φ(k)]      φ(x) = exp(W x - ‖x‖²/2) / √m,  q and k divided by ⁴√d
    context = φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1)

Choromanski et al. 2021 (FAVOR+); the cost is O(n · d · m). Every feature of the keys is measured
from its own largest value, which is given back on the queries' side: nothing overflows, no sum
vanishes, and no small constant has to be added that would bias the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from math import inf, log, prod
from typing import Unpack

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import FormOptions, check_dropout, check_inputs, tap_inputs
from regard.attention.efficient import (
    CHUNK,
    key_mask,
    keys_seen,
    rows_by_chunk,
    running_sums,
    upcast_half,
)
from regard.attention.mask import Grid, Mask
from regard.attention.pattern import Pattern, Tile
from regard.attention.similarity import as_similarity
from regard.errors import InputError, ShapeError
from regard.tap import tap

_BLOCK = 2**19
"""Features that are computed at once: as many as fit the cache, for memory is what costs time."""
_NOTHING = 0.5
"""Sums of exponentials count from the largest, so they are at least 1, or 0 if nothing is seen."""


def performer_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    features: Float[Tensor, "feature d_feature"],
    allowed: Mask | Tensor | None = None,
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*batch query d_v"]:
    """An estimate of scaled dot-product attention in O(n · d · m), better the more features.

    `features` are the directions W (see `orthogonal_features`). `allowed` may be padding, causal
    or both. There are no weights of pairs, so nothing to drop out.
    """
    check_dropout(dropout)
    check_inputs(query, key, value, as_similarity("scaled_dot"))
    if features.dim() != 2 or features.size(-1) != query.size(-1):
        raise ShapeError(
            f"the random features have shape {tuple(features.shape)}, but queries and keys are "
            f"{query.size(-1)} wide: give features of shape (any number, {query.size(-1)})."
        )
    query, key, value, mask = tap_inputs(query, key, value, allowed, site=site)
    tap(f"{site}.pattern", PerformerPattern(features.detach(), mask), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    causal, seen = key_mask("the Performer", mask, grid)
    values = upcast_half(value if seen is None else value.masked_fill(~seen, 0.0))
    values = F.pad(values, (0, 1), value=1.0)  # the ones sum up to totals
    compute = _causal if causal else _whole
    sums = compute(upcast_half(query), upcast_half(key), values, features.to(values), seen)
    context = (sums[..., :-1] / sums[..., -1:].clamp(min=_NOTHING)).to(value.dtype)
    return tap(f"{site}.context", context, "query d_v")


class Performer(nn.Module):
    """Performer attention with its own random features: a form for multi-head attention.

    The features are drawn once and saved with the model; `redraw` draws others, which training
    may do from time to time so that it does not adapt to one draw.

    Args:
        d_k: width of each head's queries and keys.
        n_features: how many; about d_k · ln d_k unless given.
        generator: where random numbers come from, if not from torch's own.
    """

    features: Tensor

    def __init__(
        self,
        d_k: int,
        n_features: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if n_features is None:
            n_features = 64 * max(1, round(d_k * log(max(d_k, 2)) / 64))
        self.register_buffer("features", orthogonal_features(n_features, d_k, generator=generator))

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Put new random features in the place of these."""
        self.features.copy_(orthogonal_features(*self.features.shape, generator=generator))

    def forward(
        self,
        query: Float[Tensor, "*batch query d_k"],
        key: Float[Tensor, "*batch key d_k"],
        value: Float[Tensor, "*batch key d_v"],
        **options: Unpack[FormOptions],
    ) -> Float[Tensor, "*batch query d_v"]:
        return performer_attention(
            query,
            key,
            value,
            features=self.features,
            **options,
        )

    def extra_repr(self) -> str:
        return f"d_k={self.features.size(1)}, n_features={self.features.size(0)}"


def orthogonal_features(
    n_features: int, d_k: int, *, generator: torch.Generator | None = None
) -> Float[Tensor, "feature d_k"]:
    """Random directions, at right angles in blocks of d_k, as long as Gaussian vectors are.

    Each alone is a Gaussian vector, so the estimate stays unbiased; together they are spread
    better than independent ones, so it varies less.
    """
    if n_features < 1 or d_k < 1:
        raise InputError(
            f"random features need a number and a width of at least 1, not {n_features} and {d_k}."
        )
    n_blocks = -(-n_features // d_k)
    drawn = torch.randn(n_blocks, d_k, d_k, generator=generator)
    frames, upper = torch.linalg.qr(drawn)
    frames = frames * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # all equally likely
    directions = frames.transpose(-1, -2).reshape(-1, d_k)[:n_features]
    lengths = torch.randn(n_features, d_k, generator=generator).norm(dim=-1, keepdim=True)
    return directions * lengths


@dataclass(frozen=True)
class PerformerPattern(Pattern):
    """The pattern that a Performer's features imply; its rows sum to 1."""

    features: Tensor
    allowed: Mask

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        rows, columns = tile.grid.rows, tile.grid.columns
        causal, seen = keys_seen("the Performer", self.allowed, tile)
        query, key = upcast_half(query), upcast_half(key)
        features = self.features.to(query)
        logs = log_features(key, features)
        if causal:
            groups = rows_by_chunk(rows, logs, seen)
        else:
            logs = logs.masked_fill(~seen, -inf)
            peak = _finite(logs.amax(dim=-2, keepdim=True))
            groups = [(rows, peak, torch.exp(logs - peak))]
        parts = []
        for some, peak, right in groups:
            left = torch.softmax(log_features(query[some], features) + peak, dim=-1)
            parts.append(left @ right.transpose(-1, -2))
        weights = torch.cat(parts)
        if causal:
            later = torch.arange(len(key), device=rows.device) > rows[:, None]
            weights = weights.masked_fill(later, 0.0)
        return (weights / weights.sum(dim=-1, keepdim=True).clamp(min=_NOTHING))[:, columns]


def log_features(
    x: Float[Tensor, "*batch token d_k"], features: Float[Tensor, "feature d_k"]
) -> Float[Tensor, "*batch token feature"]:
    """W x - ‖x‖²/2 with x divided by ⁴√d: the logarithm of √m · φ(x)."""
    scale = x.size(-1) ** -0.5
    logs = x @ (features * scale**0.5).transpose(-1, -2)
    return logs.sub_((x * x).sum(dim=-1, keepdim=True) * (scale / 2))


def _whole(
    query: Tensor, key: Tensor, value: Tensor, features: Tensor, seen: Tensor | None
) -> Tensor:
    """Σ_j φ(q_i) · φ(k_j) value_j up to a factor for each i, in blocks that fit the cache."""
    size = _block_size(query, features)
    peak = key.new_full((), -inf)
    mixed = key.new_zeros(())
    for logs, part in zip(
        _key_features(key, features, seen, size), value.split(size, dim=-2), strict=True
    ):
        largest = torch.maximum(peak, logs.detach().amax(dim=-2, keepdim=True))
        fall = torch.exp(peak - _finite(largest)).transpose(-1, -2)
        mixed = mixed * fall + logs.sub_(_finite(largest)).exp_().transpose(-1, -2) @ part
        peak = largest
    left = (log_features(part, features).add_(_finite(peak)) for part in query.split(size, dim=-2))
    return torch.cat([torch.softmax(part, dim=-1) @ mixed for part in left], dim=-2)


def _causal(
    query: Tensor, key: Tensor, value: Tensor, features: Tensor, seen: Tensor | None
) -> Tensor:
    """The same over the keys 0 to i."""
    runs = running_sums(_key_features(key, features, seen, CHUNK), value.split(CHUNK, dim=-2))
    sums = []
    for part, run in zip(query.split(CHUNK, dim=-2), runs, strict=True):
        left = torch.softmax(log_features(part, features).add_(run.peak), dim=-1)
        sums.append(run.product(left))
    return torch.cat(sums, dim=-2)


def _key_features(
    key: Tensor, features: Tensor, seen: Tensor | None, size: int
) -> Iterator[Tensor]:
    """The logarithms of the keys' features, block by block; -inf for keys that nobody sees."""
    shown = repeat(None) if seen is None else seen.split(size, dim=-2)
    for part, here in zip(key.split(size, dim=-2), shown, strict=False):
        logs = log_features(part, features)
        yield logs if here is None else logs.masked_fill(~here, -inf)


def _block_size(query: Tensor, features: Tensor) -> int:
    """How many positions at once."""
    return min(1024, max(64, _BLOCK // (prod(query.shape[:-2]) * len(features))))


def _finite(peak: Tensor) -> Tensor:
    return peak.masked_fill(peak == -inf, 0.0)
