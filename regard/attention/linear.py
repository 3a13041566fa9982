"""Products of the form (A Bᵀ) V in which A Bᵀ is never made: the heart of linear attention."""

from collections.abc import Iterator
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
    left, right, value = (chunks(x) for x in (left, right, value))
    sums = right.transpose(-1, -2) @ value
    # Shift, then sum: to subtract a chunk's own sum again would lose the digits of its past.
    before = F.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(dim=-3)
    return joined(_inside(left, right, value) + left @ before, n_token)


@dataclass(frozen=True)
class Running:
    """Exponentials of the keys' features in chunks, and their sums over all earlier chunks.

    Each chunk measures features from its own peak, which knows nothing of later positions: so
    however large a later key is, it neither changes earlier sums nor makes them vanish.
    """

    peak: Float[Tensor, "*batch chunk one feature"]
    right: Float[Tensor, "*batch chunk token feature"]
    """exp(feature - peak) of every key; 0 for those that nobody sees."""
    value: Float[Tensor, "*batch chunk token d_v"]
    before: Float[Tensor, "*batch chunk feature d_v"]
    """Σ exp(feature - peak) value over the keys of earlier chunks."""

    def product(
        self, left: Float[Tensor, "*batch chunk token feature"]
    ) -> Float[Tensor, "*batch chunk token d_v"]:
        """Σ_{j ≤ i} (left_i · exp(feature_j - peak)) value_j for every i."""
        return _inside(left, self.right, self.value) + left @ self.before


def running_sums(
    features: Float[Tensor, "*batch token feature"],
    value: Float[Tensor, "*batch token d_v"],
    seen: Bool[Tensor, "*lead token one"] | None,
) -> Running:
    """What causal attention with the key features exp(features) needs, in O(n) time and memory."""
    if seen is not None:
        features = features.masked_fill(~seen, -inf)
    features, value = chunks(features, fill=-inf), chunks(value)
    peak = _peaks(features, None if seen is None else chunks(seen))
    right = _exp(features, peak)
    fall = torch.exp((peak[..., :-1, :, :] - peak[..., 1:, :, :]).clamp(-_STEEP, 0.0))
    sums = (right.transpose(-1, -2) @ value).unbind(-3)
    before = [torch.zeros_like(sums[0])]
    for chunk, factor in zip(sums, fall.transpose(-1, -2).unbind(-3), strict=False):
        before.append((before[-1] + chunk) * factor)
    return Running(peak, right, value, torch.stack(before, dim=-3))


def rows_by_chunk(
    rows: Tensor, features: Float[Tensor, "token feature"], seen: Bool[Tensor, "token one"]
) -> Iterator[tuple[Tensor, Float[Tensor, "token feature"]]]:
    """The rows in groups, each with exp(feature - peak) of all keys, as `running_sums` has them."""
    features = features.masked_fill(~seen, -inf)
    peaks = _peaks(chunks(features, fill=-inf), chunks(seen))
    numbers, counts = torch.unique_consecutive(rows // CHUNK, return_counts=True)
    for number, group in zip(numbers, rows.split(counts.tolist()), strict=True):
        yield group, _exp(features, peaks[number])


def in_single(x: Tensor) -> Tensor:
    """Halves as float32, because their sums lose too many digits; others as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def chunks(x: Tensor, *, fill: float = 0.0) -> Tensor:
    """The positions in chunks, the last of which is filled up."""
    missing = -x.size(-2) % CHUNK
    x = F.pad(x, (0, 0, 0, missing), value=fill) if missing else x
    return rearrange(x, "... (chunk token) d -> ... chunk token d", token=CHUNK)


def joined(x: Tensor, n_token: int) -> Tensor:
    """Chunks as one sequence again."""
    return rearrange(x, "... chunk token d -> ... (chunk token) d")[..., :n_token, :]


def _inside(left: Tensor, right: Tensor, value: Tensor) -> Tensor:
    return (left @ right.transpose(-1, -2)).tril() @ value


def _peaks(features: Tensor, seen: Tensor | None) -> Tensor:
    """Each chunk's peak: the largest feature up to the first position of the chunk that is seen."""
    features = features.detach()
    if seen is None:
        first = features[..., :1, :]
    else:
        at = seen.to(torch.uint8).argmax(dim=-2, keepdim=True)
        first = features.take_along_dim(at.expand(*features.shape[:-2], 1, 1), dim=-2)
    largest = features.amax(dim=-2, keepdim=True).cummax(dim=-3).values
    largest = torch.cat([torch.full_like(largest[..., :1, :, :], -inf), largest], dim=-3)
    peak = torch.maximum(largest[..., :-1, :, :], first)
    return peak.masked_fill(peak == -inf, 0.0)


def _exp(features: Tensor, peak: Tensor) -> Tensor:
    return torch.exp((features - peak).clamp(max=_STEEP))
