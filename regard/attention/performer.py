"""Performer: random positive features whose products equal the softmax kernel on average.

    exp(q · k / √d) = E[φ(q) · φ(k)]      φ(x) = exp(W x - ‖x‖²/2) / √m,  q and k divided by ⁴√d
    context = φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1)

Choromanski et al. 2021 (FAVOR+); the cost is O(n · d · m). Every key feature is relative to its own
largest value, which is added back on the queries' side: nothing overflows, no sum vanishes, and no
small constant that would bias the result is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from math import inf, log, prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.efficient import CHUNK, LEAST_SUM, rows_by_chunk, running_sums
from regard.attention.form import FormInputs, RandomForm, key_mask, tile_key_mask
from regard.attention.mask import Mask
from regard.attention.pattern import Pattern
from regard.attention.softmax import finite, upcast_half
from regard.attention.tile import Tile
from regard.errors import check_counts
from regard.tap import tap

_BLOCK = 2**19  # features computed at once: as many as fit the cache


class Performer(RandomForm):
    """An estimate of scaled dot-product attention in O(n · d · m), better the more features.

    Masks may be padding, causal or both. There are no weights of pairs, so dropout has no effect.

    Args:
        n_features: number of random features; about d_k · ln d_k by default.
        redraw_every: draw new features after this many training batches; 0 never does.
    """

    title = "a Performer"
    features: Tensor

    def __init__(
        self,
        d_k: int,
        n_features: int | None = None,
        *,
        redraw_every: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_k, redraw_every)
        if n_features is None:
            n_features = 64 * max(1, round(d_k * log(max(d_k, 2)) / 64))
        self.register_buffer("features", orthogonal_features(n_features, d_k, generator=generator))

    def redraw(self, generator: torch.Generator | None = None) -> None:
        self.features.copy_(orthogonal_features(*self.features.shape, generator=generator))

    def compute(self, given: FormInputs) -> Tensor:
        features = self.current(self.features)
        tap(f"{given.site}.pattern", PerformerPattern(features.detach(), given.mask), "")
        causal, seen = key_mask(self.title, given.mask, given.grid)
        value = upcast_half(given.value if seen is None else given.value.masked_fill(~seen, 0.0))
        value = F.pad(value, (0, 1), value=1.0)  # the ones sum up to totals
        compute = _causal if causal else _whole
        query, key = upcast_half(given.query), upcast_half(given.key)
        sums = compute(query, key, value, features.to(value), seen)
        return (sums[..., :-1] / sums[..., -1:].clamp(min=LEAST_SUM)).to(given.value.dtype)

    def extra_repr(self) -> str:
        redraw = f", redraw_every={self.redraw_every}" if self.redraw_every else ""
        return f"d_k={self.d_k}, n_features={len(self.features)}{redraw}"


def orthogonal_features(
    n_features: int, d_k: int, *, generator: torch.Generator | None = None
) -> Float[Tensor, "feature d_k"]:
    """Draw random directions, orthogonal in blocks of d_k, with the lengths of Gaussian vectors.

    Each one is a Gaussian vector, so the estimate is unbiased; together they are spread more evenly
    than independent ones, so it varies less.
    """
    check_counts(n_features=n_features, d_k=d_k)
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

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        rows, columns = tile.grid.rows, tile.grid.columns
        causal, seen = tile_key_mask(Performer.title, self.allowed, tile)
        query, key = upcast_half(query), upcast_half(key)
        features = self.features.to(query)
        logs = log_features(key, features)
        if causal:
            groups = rows_by_chunk(rows, logs, seen)
        else:
            logs = logs.masked_fill(~seen, -inf)
            peak = finite(logs.amax(dim=-2, keepdim=True))
            groups = [(rows, peak, torch.exp(logs - peak))]
        parts = []
        for some, peak, right in groups:
            left = torch.softmax(log_features(query[some], features) + peak, dim=-1)
            parts.append(left @ right.transpose(-1, -2))
        weights = torch.cat(parts)
        if causal:
            later = torch.arange(len(key), device=rows.device) > rows[:, None]
            weights = weights.masked_fill(later, 0.0)
        return (weights / weights.sum(dim=-1, keepdim=True).clamp(min=LEAST_SUM))[:, columns]


def log_features(
    x: Float[Tensor, "*batch token d_k"], features: Float[Tensor, "feature d_k"]
) -> Float[Tensor, "*batch token feature"]:
    """Return W x - ‖x‖²/2 with x divided by ⁴√d: the logarithm of √m · φ(x)."""
    scale = x.size(-1) ** -0.5
    logs = x @ (features * scale**0.5).transpose(-1, -2)
    return logs.sub_((x * x).sum(dim=-1, keepdim=True) * (scale / 2))


def _whole(
    query: Tensor, key: Tensor, value: Tensor, features: Tensor, seen: Tensor | None
) -> Tensor:
    """Return Σ_j φ(q_i) · φ(k_j) value_j up to a factor for each i, in blocks of the cache size."""
    size = min(1024, max(64, _BLOCK // (prod(query.shape[:-2]) * len(features))))
    peak = key.new_full((), -inf)
    mixed = key.new_zeros(())
    keys = _key_features(key, features, seen, size)
    for logs, part in zip(keys, value.split(size, dim=-2), strict=True):
        largest = torch.maximum(peak, logs.detach().amax(dim=-2, keepdim=True))
        fall = torch.exp(peak - finite(largest)).transpose(-1, -2)
        mixed = mixed * fall + logs.sub_(finite(largest)).exp_().transpose(-1, -2) @ part
        peak = largest
    left = (log_features(part, features).add_(finite(peak)) for part in query.split(size, dim=-2))
    return torch.cat([torch.softmax(part, dim=-1) @ mixed for part in left], dim=-2)


def _causal(
    query: Tensor, key: Tensor, value: Tensor, features: Tensor, seen: Tensor | None
) -> Tensor:
    """Return the same sums over keys 0 to i."""
    runs = running_sums(_key_features(key, features, seen, CHUNK), value.split(CHUNK, dim=-2))
    sums = []
    for part, run in zip(query.split(CHUNK, dim=-2), runs, strict=True):
        left = torch.softmax(log_features(part, features).add_(run.peak), dim=-1)
        sums.append(run.product(left))
    return torch.cat(sums, dim=-2)


def _key_features(
    key: Tensor, features: Tensor, seen: Tensor | None, size: int
) -> Iterator[Tensor]:
    """Yield the logarithms of the keys' features, block by block; -inf for hidden keys."""
    shown = repeat(None) if seen is None else seen.split(size, dim=-2)
    for part, here in zip(key.split(size, dim=-2), shown, strict=False):
        logs = log_features(part, features)
        yield logs if here is None else logs.masked_fill(~here, -inf)
