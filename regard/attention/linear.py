"""Products of the form (A Bᵀ) V in which A Bᵀ is never made: the heart of linear attention."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

CHUNK = 64
"""Positions handled at once: the chunk × chunk part stays small, and so does their number."""
_STEEP = 40.0
"""Whatever is smaller by exp of this is lost beside 1, and its square is finite in float32."""


def causal_product(
    left: Float[Tensor, "*batch token feature"],
    right: Float[Tensor, "*batch token feature"],
    value: Float[Tensor, "*batch token d_v"],
) -> Float[Tensor, "*batch token d_v"]:
    """Σ_{j ≤ i} (left_i · right_j) value_j for every i, in O(n) time and memory.

    Inside a chunk all pairs are multiplied; what came before a chunk is summed up in one
    feature × d_v matrix.
    """
    n_token = left.size(-2)
    missing = -n_token % CHUNK
    left, right, value = (
        rearrange(
            F.pad(x, (0, 0, 0, missing)), "... (chunk token) d -> ... chunk token d", token=CHUNK
        )
        for x in (left, right, value)
    )
    inside = (left @ right.transpose(-1, -2)).tril() @ value
    sums = right.transpose(-1, -2) @ value
    # Shift, then sum: to subtract a chunk's own sum again would lose the digits of its past.
    before = F.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(dim=-3)
    result = inside + left @ before
    return rearrange(result, "... chunk token d -> ... (chunk token) d")[..., :n_token, :]


@dataclass(frozen=True)
class Running:
    """Exponentials of a chunk of keys, and what came before that chunk.

    Both are measured from a peak that knows nothing of later positions: so however large a later
    key is, it neither changes earlier results nor makes them vanish.
    """

    peak: Float[Tensor, "*batch one feature"]
    right: Float[Tensor, "*batch token feature"]
    """exp(feature - peak) of the chunk's keys; 0 for those that nobody sees."""
    value: Float[Tensor, "*batch token d_v"]
    before: Float[Tensor, "*batch feature d_v"]
    """Σ exp(feature - peak) value over all keys before the chunk."""

    def product(
        self, left: Float[Tensor, "*batch token feature"]
    ) -> Float[Tensor, "*batch token d_v"]:
        """Σ_{j ≤ i} (left_i · exp(feature_j - peak)) value_j for every i of the chunk."""
        inside = (left @ self.right.transpose(-1, -2)).tril() @ self.value
        return inside + left @ self.before


def running_sums(
    features: Iterable[Float[Tensor, "*batch _ feature"]],
    values: Iterable[Float[Tensor, "*batch _ d_v"]],
) -> Iterator[Running]:
    """Chunk by chunk what causal attention with the key features exp(features) needs, in O(n).

    Features of keys that nobody sees are -inf.
    """
    last = before = None
    for (chunk, peak), value in zip(_with_peaks(features), values, strict=True):
        right = _exp(chunk, peak)
        sums = right.transpose(-1, -2) @ value
        if before is None or last is None:
            before = torch.zeros_like(sums)
        else:
            before = before * torch.exp((last - peak).clamp(-_STEEP, 0.0)).transpose(-1, -2)
        yield Running(peak, right, value, before)
        last, before = peak, before + sums


def rows_by_chunk(
    rows: Tensor, features: Float[Tensor, "token feature"], seen: Bool[Tensor, "token one"]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The rows in groups, each with its peak and exp(feature - peak) of all keys.

    These are the numbers that `running_sums` would have for them.
    """
    features = features.masked_fill(~seen, -inf)
    peaks = [peak for _, peak in _with_peaks(features.split(CHUNK))]
    numbers, counts = torch.unique_consecutive(rows // CHUNK, return_counts=True)
    for number, group in zip(numbers.tolist(), rows.split(counts.tolist()), strict=True):
        yield group, peaks[number], _exp(features, peaks[number])


def in_single(x: Tensor) -> Tensor:
    """Halves as float32, because their sums lose too many digits; others as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _with_peaks(chunks: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each chunk with its peak: the largest feature up to the first position of it that is seen."""
    largest = None
    for chunk in chunks:
        plain = chunk.detach()
        at = (plain[..., :1] > -inf).to(torch.uint8).argmax(dim=-2, keepdim=True)
        first = plain.take_along_dim(at, dim=-2)
        peak = first if largest is None else torch.maximum(largest, first)
        yield chunk, peak.masked_fill(peak == -inf, 0.0)
        inside = plain.amax(dim=-2, keepdim=True)
        largest = inside if largest is None else torch.maximum(largest, inside)


def _exp(features: Tensor, peak: Tensor) -> Tensor:
    return (features - peak).clamp(max=_STEEP).exp()
