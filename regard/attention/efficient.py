"""Efficient attention: keys and values are multiplied first, so n × n becomes d × d.

    softmax form:  ρ(Q) (σ(K)ᵀ V)       ρ: softmax of each query over its channels
                                        σ: softmax of each key channel over positions
    scaling form:  (Q/√n) ((K/√n)ᵀ V)   dot-product attention with 1/n in place of a softmax

Shen et al. 2018; the cost is O(n · d²). The implied n × n pattern, ρ(Q) σ(K)ᵀ, has rows that sum to
1 in the softmax form and can be inspected like any other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.form import AttentionForm, FormInputs, key_mask, tile_key_mask
from regard.attention.mask import Mask
from regard.attention.pattern import Pattern
from regard.attention.softmax import finite, upcast_half
from regard.attention.tile import Tile
from regard.errors import check_choice
from regard.tap import tap

CHUNK = 64  # positions at once: the chunk × chunk part and the number of chunks stay small
NORMALIZATIONS = ("softmax", "scaling")
LEAST_SUM = 0.5
"""Sums of exponentials are relative to the largest, so they are at least 1, or 0 without keys."""
_STEEP = 40.0  # exp(-40) vanishes when added to 1, and exp(40)² is still finite in float32


class Efficient(AttentionForm):
    """Attention in O(n · d²), similar to softmax attention but not equal to it.

    Masks may be padding, causal or both. There are no weights of pairs, so dropout has no effect.
    `normalization` is "softmax" or "scaling" (see the module's formulas).
    """

    title = "efficient attention"

    def __init__(self, normalization: str = "softmax") -> None:
        super().__init__()
        check_choice("normalization", normalization, NORMALIZATIONS)
        self.normalization = normalization

    def compute(self, given: FormInputs) -> Tensor:
        tap(f"{given.site}.pattern", EfficientPattern(self.normalization, given.mask), "")
        causal, seen = key_mask(self.title, given.mask, given.grid)
        value = given.value if seen is None else given.value.masked_fill(~seen, 0.0)
        query, key, value = (upcast_half(x) for x in (given.query, given.key, value))
        if self.normalization == "scaling":
            context = _scaling(query, key, value, seen, causal)
        else:
            context = (_causal_softmax if causal else _softmax)(query, key, value, seen)
        return context.to(given.value.dtype)

    def extra_repr(self) -> str:
        return f"normalization={self.normalization!r}"


def efficient_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    allowed: Mask | Tensor | None = None,
    normalization: str = "softmax",
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*batch query d_v"]:
    """Attend in O(n · d²); see `Efficient`."""
    return Efficient(normalization)(query, key, value, allowed=allowed, dropout=dropout, site=site)


@dataclass(frozen=True)
class EfficientPattern(Pattern):
    """The pattern that efficient attention implies without computing it."""

    normalization: str
    allowed: Mask

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        rows, columns = tile.grid.rows, tile.grid.columns
        causal, seen = tile_key_mask(Efficient.title, self.allowed, tile)
        query, key = upcast_half(query), upcast_half(key)
        if self.normalization == "scaling":
            counts = seen.cumsum(0)[rows] if causal else seen.sum(0)
            key = key.masked_fill(~seen, 0.0)[columns]
            weights = query[rows] / counts.clamp(min=1) @ key.transpose(-1, -2)
        elif causal:
            parts = []
            for some, _, right in rows_by_chunk(rows, key, seen):
                total = right.cumsum(dim=-2)[some].clamp(min=LEAST_SUM)
                parts.append(torch.softmax(query[some], dim=-1) / total @ right.transpose(-1, -2))
            weights = torch.cat(parts)[:, columns]
        else:
            right = _exponentials(key, seen)
            right = (right / right.sum(dim=-2, keepdim=True).clamp(min=LEAST_SUM))[columns]
            weights = torch.softmax(query[rows], dim=-1) @ right.transpose(-1, -2)
        return weights.masked_fill(columns > rows[:, None], 0.0) if causal else weights


def _softmax(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """ρ(Q) (σ(K)ᵀ V)."""
    parts = _exponentials(key, seen)
    # Dividing the small d × d matrix is cheaper than dividing the tall one.
    total = parts.sum(dim=-2).unsqueeze(-1).clamp(min=LEAST_SUM)
    return torch.softmax(query, dim=-1) @ (parts.transpose(-1, -2) @ value / total)


def _causal_softmax(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> Tensor:
    """The softmax form over keys 0 to i: running sums, and running totals."""
    key = key if seen is None else key.masked_fill(~seen, -inf)
    values = F.pad(value, (0, 1), value=1.0).split(CHUNK, dim=-2)  # the ones sum up to totals
    left = torch.softmax(query, dim=-1).split(CHUNK, dim=-2)
    context = []
    for part, run in zip(left, running_sums(key.split(CHUNK, dim=-2), values), strict=True):
        total = run.right.cumsum(dim=-2) + run.before[..., -1].unsqueeze(-2)
        context.append(run.product(part / total.clamp(min=LEAST_SUM))[..., :-1])
    return torch.cat(context, dim=-2)


def _scaling(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, causal: bool
) -> Tensor:
    """Q (Kᵀ V) / n, where n counts the keys that are seen; if causal, over keys 0 to i."""
    if seen is None:
        seen = torch.ones(key.size(-2), 1, dtype=torch.bool, device=key.device)
    else:
        key = key.masked_fill(~seen, 0.0)
    if causal:
        return causal_product(query / seen.cumsum(dim=-2).clamp(min=1), key, value)
    counts = seen.sum(dim=-2, keepdim=True).clamp(min=1)
    return query @ (key.transpose(-1, -2) @ value / counts)


def causal_product(
    left: Float[Tensor, "*batch token feature"],
    right: Float[Tensor, "*batch token feature"],
    value: Float[Tensor, "*batch token d_v"],
) -> Float[Tensor, "*batch token d_v"]:
    """Return Σ_{j ≤ i} (left_i · right_j) value_j for every i, in O(n) time and memory.

    Inside a chunk all pairs are multiplied; earlier chunks are summed in one feature × d_v matrix.
    """
    n_token = left.size(-2)
    missing = -n_token % CHUNK
    padded = (F.pad(x, (0, 0, 0, missing)) for x in (left, right, value))
    left, right, value = (x.unflatten(-2, (-1, CHUNK)) for x in padded)
    inside = (left @ right.transpose(-1, -2)).tril() @ value
    sums = right.transpose(-1, -2) @ value
    # Shift, then sum: subtracting a chunk's own sum afterwards would lose digits.
    before = F.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(dim=-3)
    return (inside + left @ before).flatten(-3, -2)[..., :n_token, :]


@dataclass(frozen=True)
class CausalChunk:
    """Exponentials of a chunk of keys, and the sum over all keys before it.

    Both are relative to a peak that does not depend on later positions: a later key, however large,
    neither changes earlier results nor makes them vanish.
    """

    peak: Float[Tensor, "*batch one feature"]
    right: Float[Tensor, "*batch token feature"]
    """exp(feature - peak) of the chunk's keys; 0 for hidden ones."""
    value: Float[Tensor, "*batch token d_v"]
    before: Float[Tensor, "*batch feature d_v"]
    """Σ exp(feature - peak) value over all keys before the chunk."""

    def product(self, left: Tensor) -> Tensor:
        """Return Σ_{j ≤ i} (left_i · exp(feature_j - peak)) value_j for every i of the chunk."""
        inside = (left @ self.right.transpose(-1, -2)).tril() @ self.value
        return inside + left @ self.before


def running_sums(
    features: Iterable[Float[Tensor, "*batch _ feature"]],
    values: Iterable[Float[Tensor, "*batch _ d_v"]],
) -> Iterator[CausalChunk]:
    """Yield the sums of causal attention with key features exp(features), chunk by chunk, in O(n).

    Features of hidden keys are -inf.
    """
    last = before = None
    for (chunk, peak), value in zip(_with_peaks(features), values, strict=True):
        right = _exp(chunk, peak)
        sums = right.transpose(-1, -2) @ value
        if before is None or last is None:
            before = torch.zeros_like(sums)
        else:
            before = before * torch.exp((last - peak).clamp(-_STEEP, 0.0)).transpose(-1, -2)
        yield CausalChunk(peak, right, value, before)
        last, before = peak, before + sums


def rows_by_chunk(
    rows: Tensor, features: Float[Tensor, "token feature"], seen: Bool[Tensor, "token one"]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the rows of each chunk with its peak and exp(feature - peak) of all keys.

    The numbers are those of `running_sums`.
    """
    features = features.masked_fill(~seen, -inf)
    peaks = [peak for _, peak in _with_peaks(features.split(CHUNK))]
    numbers, counts = torch.unique_consecutive(rows // CHUNK, return_counts=True)
    for number, group in zip(numbers.tolist(), rows.split(counts.tolist()), strict=True):
        yield group, peaks[number], _exp(features, peaks[number])


def _with_peaks(chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each chunk with the largest feature up to its first position that is seen."""
    largest = None
    for chunk in chunks:
        plain = chunk.detach()
        at = (plain[..., :1] > -inf).to(torch.uint8).argmax(dim=-2, keepdim=True)
        first = plain.take_along_dim(at, dim=-2)
        peak = first if largest is None else torch.maximum(largest, first)
        yield chunk, finite(peak)
        inside = plain.amax(dim=-2, keepdim=True)
        largest = inside if largest is None else torch.maximum(largest, inside)


def _exp(features: Tensor, peak: Tensor) -> Tensor:
    return (features - peak).clamp(max=_STEEP).exp()


def _exponentials(key: Tensor, seen: Tensor | None) -> Tensor:
    """Return the exponentials of the keys, each channel relative to its largest."""
    key = key if seen is None else key.masked_fill(~seen, -inf)
    peak = key.detach().amax(dim=-2, keepdim=True)
    return (key - finite(peak)).exp_()
