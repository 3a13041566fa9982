"""Longformer: a sliding window, optionally dilated, and global tokens that see and are seen.

    ● ● · · · ●        window of radius 1, the last token global:
    ● ● ● · · ●        every query sees its neighbors and the global token,
    · ● ● ● · ●        which sees everything, optionally through separate projections
    · · ● ● ● ●
    · · · ● ● ●
    ● ● ● ● ● ●

Beltagy et al. 2020; the cost is O(n · w).
"""

from dataclasses import dataclass
from math import inf

import torch
from einops import rearrange
from torch import Tensor, nn

from regard.attention.form import AttentionForm, FormInputs
from regard.attention.fused import fused_attention
from regard.attention.mask import BooleanMask, Everything, Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.similarity import as_similarity
from regard.attention.sliding_window import LongformerMask, windowed_attention
from regard.attention.softmax import softmax_over_keys, upcast_half
from regard.attention.tile import Grid, Tile
from regard.errors import InputError, ShapeError
from regard.tap import tap


class Longformer(AttentionForm):
    """Exact attention of each query to the tokens it reaches, in O(n · w) time and memory.

    It takes any mask, which applies to the tokens in reach.

    Args:
        radius: steps that a query sees to each side.
        dilation: tokens in a step.
        global_tokens: positions that see everything and are seen by every query, such as [CLS]
            at 0.
        n_heads: given with `d_k` (and `d_v`, if different), global tokens have separate
            projections, made from all heads' queries, keys and values. They start as identities,
            so that global tokens attend as the others do at first.
    """

    title = "a Longformer"
    self_only = True

    def __init__(
        self,
        radius: int = 64,
        *,
        dilation: int = 1,
        global_tokens: tuple[int, ...] | list[int] = (),
        n_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
    ) -> None:
        super().__init__()
        self.reach = LongformerMask(radius, dilation, tuple(global_tokens))
        self.n_heads = n_heads
        if n_heads is None:
            return
        if not d_k or not self.reach.global_tokens:
            raise InputError(
                "projections for global tokens need global_tokens, n_heads and d_k; leave n_heads "
                "out to have none."
            )
        self.to_global_query = _identity(n_heads * d_k)
        self.to_global_key = _identity(n_heads * d_k)
        self.to_global_value = _identity(n_heads * (d_v or d_k))

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        n_key, tokens = key.size(-2), self.reach.global_tokens
        if tokens and tokens[-1] >= n_key:
            raise InputError(
                f"global token {tokens[-1]} does not exist: there are only {n_key} tokens, counted "
                "from 0."
            )
        if self.n_heads is not None and query.shape[-3:-2] != (self.n_heads,):
            raise ShapeError(
                f"this Longformer has global projections for {self.n_heads} heads, but the queries "
                f"have shape {tuple(query.shape)}, whose third axis from the end is the head."
            )

    def compute(self, given: FormInputs) -> Tensor:
        mask, grid, reach = given.mask, given.grid, self.reach
        tokens = torch.tensor(reach.global_tokens, dtype=torch.long, device=grid.rows.device)
        own = self._project_global(given, tokens) if self.n_heads is not None else None
        heads = () if own is None else (own[0].detach(), own[1].detach())
        tap(f"{given.site}.pattern", LongformerPattern(reach, reach & mask, *heads), "")
        key, value = _without_hidden(mask, grid, given.key, given.value)
        context = windowed_attention(
            given.query, key, value, reach=reach, mask=mask, dropout=given.dropout
        )
        if not len(tokens):
            return context
        query = given.query[..., tokens, :]
        if own is not None:
            query, (key, value) = own[0], _without_hidden(mask, grid, *own[1:])
        measure = as_similarity("scaled_dot")
        exact = ExactPattern(measure, measure.scale(key.size(-1)), 1.0, _rows(mask, grid, tokens))
        everything = fused_attention(query, key, value, pattern=exact, dropout=given.dropout)
        return context.index_copy(-2, tokens, everything)

    def _project_global(self, given: FormInputs, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the global tokens' queries and the keys and values that they read."""
        query = _over_heads(self.to_global_query, given.query[..., tokens, :])
        key = _over_heads(self.to_global_key, given.key)
        value = _over_heads(self.to_global_value, given.value)
        return (
            tap(f"{given.site}.global_query", query, "global d_k"),
            tap(f"{given.site}.global_key", key, "key d_k"),
            tap(f"{given.site}.global_value", value, "key d_v"),
        )

    def extra_repr(self) -> str:
        return repr(self.reach)


@dataclass(frozen=True)
class LongformerPattern(Pattern):
    """The weights of a Longformer: exact attention among the tokens in reach."""

    reach: LongformerMask
    allowed: Mask
    """The pairs that are in reach and allowed."""
    global_query: Tensor | None = None
    global_key: Tensor | None = None

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        rows = tile.grid.rows
        scores = upcast_half(query[rows]) @ upcast_half(key).transpose(-1, -2)
        if self.global_query is not None and self.global_key is not None:
            own = upcast_half(self.global_query[tile.index])
            own_key = upcast_half(self.global_key[tile.index])
            for number, token in enumerate(self.reach.global_tokens):
                here = (rows == token)[:, None]
                scores = torch.where(here, own_key @ own[number], scores)
        full = tile.with_columns()
        seen = full.of(self.allowed.on(full.grid))
        scores = (scores * key.size(-1) ** -0.5).masked_fill(~seen, -inf)
        return softmax_over_keys(scores)[:, tile.grid.columns]


def _rows(mask: Mask, grid: Grid, tokens: Tensor) -> Mask:
    if isinstance(mask, Everything):
        return mask
    rows = mask.on(Grid(grid.lead, grid.n_query, grid.n_key, tokens, grid.columns))
    return BooleanMask(rows.expand(*grid.lead, len(tokens), grid.n_key))


def _without_hidden(mask: Mask, grid: Grid, *tensors: Tensor) -> list[Tensor]:
    """Set hidden keys to 0, so that not even NaN can come from them."""
    seen = split_causal(mask)[1].on_keys(grid)
    if seen is None or isinstance(mask, Everything):
        return list(tensors)
    return [x.masked_fill(~seen.transpose(-1, -2), 0.0) for x in tensors]


def _over_heads(linear: nn.Module, x: Tensor) -> Tensor:
    joined = linear(rearrange(x, "... head token d -> ... token (head d)"))
    return rearrange(joined, "... token (head d) -> ... head token d", head=x.size(-3))


def _identity(width: int) -> nn.Linear:
    linear = nn.Linear(width, width)
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
