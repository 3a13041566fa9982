"""Linformer: keys and values are projected along the sequence, so that n of them become k.

    context = softmax(Q (E K)ᵀ / √d) (F V)       E and F are k × n and trained

Wang et al. 2020; the cost is O(n · k). Every projected key is a mixture of all positions: the form
cannot be causal, and the implied weights, softmax(…) F, have signs and rows that do not sum to 1.
Shorter inputs use the first columns of E and F.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.form import AttentionForm, FormInputs, key_mask, tile_key_mask
from regard.attention.fused import fused_attention
from regard.attention.mask import Everything, Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.similarity import as_similarity
from regard.attention.softmax import softmax_over_keys, upcast_half
from regard.attention.tile import Tile
from regard.errors import InputError, MaskError, ShapeError, check_choice, check_counts
from regard.tap import tap

SHARING = ("none", "heads", "all")


class Linformer(AttentionForm):
    """Attention to k mixtures of the keys and values, in O(n · k).

    The only mask it takes is padding: hidden keys are left out of the mixtures.

    Args:
        n_tokens: positions of the longest input.
        n_projected: number of keys and values after the projection.
        sharing: "none": each head has its own E and F; "heads": all heads share E and F;
            "all": E and F are also the same matrix.
        n_heads: number of heads, needed with sharing="none".
    """

    title = "a Linformer"
    value_projection: nn.Parameter | None

    def __init__(
        self,
        n_tokens: int,
        n_projected: int = 64,
        *,
        sharing: str = "heads",
        n_heads: int | None = None,
    ) -> None:
        super().__init__()
        check_counts(n_tokens=n_tokens, n_projected=n_projected)
        check_choice("sharing", sharing, SHARING)
        if sharing == "none" and not n_heads:
            raise InputError("a Linformer with sharing='none' needs n_heads.")
        self.sharing = sharing
        lead = (n_heads,) if sharing == "none" and n_heads else ()
        self.key_projection = nn.Parameter(torch.empty(*lead, n_projected, n_tokens))
        nn.init.normal_(self.key_projection, std=n_projected**-0.5)  # lengths are kept on average
        self.register_parameter("value_projection", None)
        if sharing != "all":
            self.value_projection = nn.Parameter(torch.empty_like(self.key_projection))
            nn.init.normal_(self.value_projection, std=n_projected**-0.5)

    def check(self, query: Tensor, key: Tensor) -> None:
        *own, _, n_tokens = self.key_projection.shape
        if n_tokens < key.size(-2):
            raise ShapeError(
                f"this Linformer projects at most {n_tokens} positions, but there are "
                f"{key.size(-2)} keys: build it with a larger n_tokens, or give shorter inputs."
            )
        n_heads = query.size(-3) if query.dim() > 2 else 0
        if own and own[0] != n_heads:
            raise ShapeError(
                f"this Linformer has projections for {own[0]} heads, but the inputs have {n_heads}."
            )

    def compute(self, given: FormInputs) -> Tensor:
        to_key, to_value = self.key_projection, self.value_projection
        to_value = to_key if to_value is None else to_value
        pattern = LinformerPattern(to_key.detach(), to_value.detach(), given.mask)
        tap(f"{given.site}.pattern", pattern, "")
        if split_causal(given.mask)[0]:
            raise MaskError(
                "a Linformer cannot be causal because its projected keys mix all positions, later "
                "ones too: use efficient attention, a Performer, a Longformer or exact attention."
            )
        seen = key_mask(self.title, given.mask, given.grid)[1]
        key, value = _project(to_key, given.key, seen), _project(to_value, given.value, seen)
        key = tap(f"{given.site}.projected_key", key, "projected d_k")
        value = tap(f"{given.site}.projected_value", value, "projected d_v")
        measure = as_similarity("scaled_dot")
        exact = ExactPattern(measure, measure.scale(key.size(-1)), 1.0, Everything())
        return fused_attention(given.query, key, value, pattern=exact, dropout=given.dropout)

    def extra_repr(self) -> str:
        *own, n_projected, n_tokens = self.key_projection.shape
        heads = f", n_heads={own[0]}" if own else ""
        return f"n_tokens={n_tokens}, n_projected={n_projected}, sharing={self.sharing!r}{heads}"


@dataclass(frozen=True)
class LinformerPattern(Pattern):
    """The weight of each position for each query, through the mixtures; it may be negative."""

    key_projection: Tensor
    value_projection: Tensor
    allowed: Mask

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        rows, columns = tile.grid.rows, tile.grid.columns
        seen = tile_key_mask(Linformer.title, self.allowed, tile)[1]
        to_key, to_value = (
            upcast_half(projection if projection.dim() == 2 else projection[tile.index[-1]])
            for projection in (self.key_projection, self.value_projection)
        )
        shorter = _project(to_key, upcast_half(key), seen)
        scores = upcast_half(query[rows]) @ shorter.transpose(-1, -2) * query.size(-1) ** -0.5
        weights = softmax_over_keys(scores) @ to_value[:, columns]
        return weights.masked_fill(~seen[columns, 0], 0.0)


def _project(projection: Tensor, x: Tensor, seen: Tensor | None) -> Tensor:
    x = x if seen is None else x.masked_fill(~seen, 0.0)
    return projection[..., : x.size(-2)] @ x
