"""Linformer: keys and values are projected along the sequence, so that n of them become k.

    context = softmax(Q (E K)ᵀ / √d) (F V)       E and F are k × n and learned

Wang et al. 2020; the cost is O(n · k). Every projected key is a mixture of all positions: so the
form cannot be causal, and what a query takes from each position, softmax(…) F, has signs and rows
that do not sum to 1. Shorter inputs use the first columns of E and F.
"""

from dataclasses import dataclass
from typing import Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.attend import FormOptions, check_dropout, check_inputs, tap_inputs
from regard.attention.efficient import keys_seen, upcast_half
from regard.attention.fused import fused_attention
from regard.attention.mask import Everything, Grid, Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern, Tile
from regard.attention.similarity import as_similarity
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, MaskError, ShapeError
from regard.tap import tap

SHARING = ("none", "heads", "all")


def linformer_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    key_projection: Float[Tensor, "..."],
    value_projection: Float[Tensor, "..."],
    allowed: Mask | Tensor | None = None,
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*batch query d_v"]:
    """Attention to k mixtures of the keys and values, in O(n · k).

    Args:
        key_projection: E, (projected, positions), or (head, projected, positions) if each head
            has its own; for as many positions as the longest input has, or more.
        value_projection: F, of the same shape.
        allowed: padding: keys that nobody sees are no part of the mixtures.
    """
    check_inputs(query, key, value, as_similarity("scaled_dot"))
    check_dropout(dropout)
    _check_projections(key_projection, value_projection, query.shape[:-2], key.size(-2))
    query, key, value, mask = tap_inputs(query, key, value, allowed, site=site)
    projections = key_projection.detach(), value_projection.detach()
    tap(f"{site}.pattern", LinformerPattern(*projections, mask), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    seen = _keys_seen(mask, grid)
    shorter_key = _project(key_projection, key, seen)
    shorter_value = _project(value_projection, value, seen)
    shorter_key = tap(f"{site}.projected_key", shorter_key, "projected d_k")
    shorter_value = tap(f"{site}.projected_value", shorter_value, "projected d_v")
    measure = as_similarity("scaled_dot")
    exact = ExactPattern(measure, measure.scale(key.size(-1)), 1.0, Everything())
    context = fused_attention(query, shorter_key, shorter_value, pattern=exact, dropout=dropout)
    return tap(f"{site}.context", context, "query d_v")


class Linformer(nn.Module):
    """Linformer attention with its learned projections: a form for multi-head attention.

    Args:
        n_tokens: positions of the longest input.
        n_projected: to how many keys and values they are projected.
        sharing: "none": each head has its own E and F; "heads": all heads share E and F;
            "all": and E is F.
        n_heads: how many heads, if each has its own projections.
    """

    value_projection: nn.Parameter | None

    def __init__(
        self,
        n_tokens: int,
        n_projected: int,
        *,
        sharing: str = "heads",
        n_heads: int | None = None,
    ) -> None:
        super().__init__()
        if n_tokens < 1 or n_projected < 1:
            raise InputError(
                f"a Linformer projects at least 1 position to at least 1, not {n_tokens} to "
                f"{n_projected}."
            )
        if sharing not in SHARING:
            raise InputError(
                f"a Linformer's projections are shared by 'none', 'heads' or 'all', not "
                f"{sharing!r}."
            )
        if sharing == "none" and not n_heads:
            raise InputError("a Linformer with projections for each head needs n_heads.")
        lead = (n_heads,) if sharing == "none" and n_heads else ()
        self.key_projection = nn.Parameter(torch.empty(*lead, n_projected, n_tokens))
        nn.init.normal_(self.key_projection, std=n_projected**-0.5)  # lengths are kept on average
        self.register_parameter("value_projection", None)
        if sharing != "all":
            self.value_projection = nn.Parameter(torch.empty_like(self.key_projection))
            nn.init.normal_(self.value_projection, std=n_projected**-0.5)

    def forward(
        self,
        query: Float[Tensor, "*batch query d_k"],
        key: Float[Tensor, "*batch key d_k"],
        value: Float[Tensor, "*batch key d_v"],
        **options: Unpack[FormOptions],
    ) -> Float[Tensor, "*batch query d_v"]:
        shared = self.value_projection
        return linformer_attention(
            query,
            key,
            value,
            key_projection=self.key_projection,
            value_projection=self.key_projection if shared is None else shared,
            **options,
        )

    def extra_repr(self) -> str:
        *lead, n_projected, n_tokens = self.key_projection.shape
        shared = "all" if self.value_projection is None else "heads"
        sharing = f"'none', n_heads={lead[0]}" if lead else repr(shared)
        return f"n_tokens={n_tokens}, n_projected={n_projected}, sharing={sharing}"


@dataclass(frozen=True)
class LinformerPattern(Pattern):
    """What each query takes from each position through a Linformer's mixtures; it has signs."""

    key_projection: Tensor
    value_projection: Tensor
    allowed: Mask

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        rows, columns = tile.grid.rows, tile.grid.columns
        seen = keys_seen("a Linformer", self.allowed, tile)[1]
        to_key, to_value = (
            upcast_half(projection if projection.dim() == 2 else projection[tile.index[-1]])
            for projection in (self.key_projection, self.value_projection)
        )
        shorter = _project(to_key, upcast_half(key), seen)
        scores = upcast_half(query[rows]) @ shorter.transpose(-1, -2) * query.size(-1) ** -0.5
        weights = softmax_over_keys(scores) @ to_value[:, columns]
        return weights.masked_fill(~seen[columns, 0], 0.0)


def _project(projection: Tensor, x: Tensor, seen: Tensor | None) -> Tensor:
    """The mixtures of the positions that are seen."""
    x = x if seen is None else x.masked_fill(~seen, 0.0)
    return projection[..., : x.size(-2)] @ x


def _keys_seen(mask: Mask, grid: Grid) -> Bool[Tensor, "*lead key one"] | None:
    """Which keys the mask shows to everybody (None: all of them); others are refused."""
    if split_causal(mask)[0]:
        raise MaskError(
            "a Linformer cannot be causal: its projected keys mix all positions, later ones too. "
            "Choose efficient attention, a Performer, a Longformer or exact attention."
        )
    if isinstance(mask, Everything):
        return None
    seen = mask.on_keys(grid)
    if seen is None:
        raise MaskError(
            f"a Linformer cannot use the mask {mask!r}, because it never looks at single pairs. "
            "Padding is possible; exact attention takes any mask."
        )
    return seen.transpose(-1, -2)


def _check_projections(
    key_projection: Tensor, value_projection: Tensor, lead: tuple[int, ...], n_key: int
) -> None:
    shapes = tuple(key_projection.shape), tuple(value_projection.shape)
    if shapes[0] != shapes[1] or len(shapes[0]) not in (2, 3):
        raise ShapeError(
            f"a Linformer's projections have shapes {shapes[0]} and {shapes[1]}; both must be "
            "(projected, positions) or (head, projected, positions)."
        )
    if shapes[0][-1] < n_key:
        raise ShapeError(
            f"this Linformer projects at most {shapes[0][-1]} positions, but there are {n_key} "
            "keys: make it with a larger n_tokens, or give shorter inputs."
        )
    heads = lead[-1] if lead else "no"
    if len(shapes[0]) == 3 and shapes[0][0] != heads:
        raise ShapeError(
            f"this Linformer has projections for {shapes[0][0]} heads, but the inputs have {heads}."
        )
