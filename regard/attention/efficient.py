"""Efficient attention: keys and values are multiplied first, so n × n becomes d × d.

    softmax form:  ρ(Q) (σ(K)ᵀ V)       ρ: softmax of each query over its channels
                                        σ: softmax of each key channel over positions
    scaling form:  (Q/√n) ((K/√n)ᵀ V)   dot-product attention with 1/n in place of a softmax

Shen et al. 2018; the cost is O(n · d²). The n × n pattern that is implied, ρ(Q) σ(K)ᵀ, has rows
that sum to 1 in the softmax form and can be looked at like any other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.attend import check_dropout, check_inputs, tap_inputs
from regard.attention.mask import Everything, Grid, Mask, split_causal
from regard.attention.pattern import Pattern, Tile
from regard.attention.similarity import as_similarity
from regard.errors import InputError, MaskError
from regard.tap import tap

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


def upcast_half(x: Tensor) -> Tensor:
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


NORMALIZATIONS = ("softmax", "scaling")


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
    """Attention in O(n · d²); not the same as softmax attention, but of the same kind.

    `allowed` may be padding, causal or both: a mask of single pairs has no place in a computation
    that never looks at pairs. For the same reason there are no weights to drop out.
    """
    check_dropout(dropout)
    check_inputs(query, key, value, as_similarity("dot"))
    if normalization not in NORMALIZATIONS:
        raise InputError(
            f"efficient attention is normalized by 'softmax' or 'scaling', not {normalization!r}."
        )
    query, key, value, mask = tap_inputs(query, key, value, allowed, site=site)
    tap(f"{site}.pattern", EfficientPattern(normalization, mask), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    causal, seen = key_mask("efficient attention", mask, grid)
    hidden = value if seen is None else value.masked_fill(~seen, 0.0)
    compute = _KERNELS[normalization, causal]
    context = compute(upcast_half(query), upcast_half(key), upcast_half(hidden), seen).to(
        value.dtype
    )
    return tap(f"{site}.context", context, "query d_v")


@dataclass(frozen=True)
class EfficientPattern(Pattern):
    """The pattern that efficient attention implies without ever making it."""

    normalization: str
    allowed: Mask

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        rows, columns = tile.grid.rows, tile.grid.columns
        causal, seen = keys_seen("efficient attention", self.allowed, tile)
        query, key = upcast_half(query), upcast_half(key)
        if self.normalization == "scaling":
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
