"""Longformer: a sliding window, with gaps if wanted, and a few global tokens that see and are seen.

    ● ● · · · ●        window of radius 1, the last token global:
    ● ● ● · · ●        every query sees its neighbors and the global token,
    · ● ● ● · ●        which sees everything, with projections of its own if it has them
    · · ● ● ● ●
    · · · ● ● ●
    ● ● ● ● ● ●

Beltagy et al. 2020; the cost is O(n · w).
"""

from dataclasses import dataclass
from math import inf
from typing import Unpack

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import FormOptions, check_dropout, check_inputs, tap_inputs
from regard.attention.efficient import upcast_half
from regard.attention.fused import fused_attention
from regard.attention.mask import BooleanMask, Everything, Grid, Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern, Tile
from regard.attention.similarity import as_similarity
from regard.attention.sliding_window import LongformerMask, reach, windowed_attention
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, ShapeError
from regard.tap import tap


@dataclass(frozen=True)
class GlobalHeads:
    """What global tokens ask and read, where they have projections of their own."""

    query: Float[Tensor, "*batch global d_k"]
    key: Float[Tensor, "*batch key d_k"]
    value: Float[Tensor, "*batch key d_v"]


def longformer_attention(
    query: Float[Tensor, "*batch query d_k"],
    key: Float[Tensor, "*batch key d_k"],
    value: Float[Tensor, "*batch key d_v"],
    *,
    reach: LongformerMask,
    global_heads: GlobalHeads | None = None,
    allowed: Mask | Tensor | None = None,
    dropout: float = 0.0,
    site: str = "attention",
) -> Float[Tensor, "*batch query d_v"]:
    """Exact attention of each query to those it reaches, in O(n · w) time and memory.

    Args:
        reach: the window and the global tokens (see `reach`).
        global_heads: what global tokens ask and read; their own query and everybody's keys and
            values unless given.
        allowed: any mask; of the keys in reach a query sees those that it allows.
    """
    check_inputs(query, key, value, as_similarity("scaled_dot"))
    check_dropout(dropout)
    _check_reach(reach, query.size(-2), key.size(-2))
    query, key, value, mask = tap_inputs(query, key, value, allowed, site=site)
    own = None if global_heads is None else _tap_heads(global_heads, site)
    asked = () if own is None else (own.query.detach(), own.key.detach())
    tap(f"{site}.pattern", LongformerPattern(reach, reach & mask, *asked), "")
    grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
    key, value = _without_hidden(mask, grid, key, value)
    context = windowed_attention(query, key, value, reach=reach, mask=mask, dropout=dropout)
    if reach.global_tokens:
        tokens = grid.rows.new_tensor(reach.global_tokens)
        if own is None:
            own = GlobalHeads(query[..., tokens, :], key, value)
        else:
            own = GlobalHeads(own.query, *_without_hidden(mask, grid, own.key, own.value))
        everything = _attend_to_everything(own, tokens, mask, grid, dropout)
        context = context.index_copy(-2, tokens, everything)
    return tap(f"{site}.context", context, "query d_v")


class Longformer(nn.Module):
    """Longformer attention with its settings and projections: a form for multi-head attention.

    Args:
        radius: how many steps a query sees to each side.
        dilation: tokens in a step.
        global_tokens: positions that see everything and are seen by everybody, such as [CLS] at 0.
        n_heads: given with `d_k` (and `d_v`, if that differs), global tokens have projections of
            their own, made from all heads' queries, keys and values. They start as identities:
            what global tokens ask and read is at first the same as for others.
    """

    def __init__(
        self,
        radius: int,
        *,
        dilation: int = 1,
        global_tokens: tuple[int, ...] | list[int] = (),
        n_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
    ) -> None:
        super().__init__()
        self.reach = reach(radius, dilation=dilation, global_tokens=global_tokens)
        self.n_heads = n_heads
        if n_heads is None:
            return
        if not d_k or not self.reach.global_tokens:
            raise InputError(
                "projections for global tokens need global_tokens, n_heads and d_k; without "
                "n_heads there are none."
            )
        self.to_global_query = _identity(n_heads * d_k)
        self.to_global_key = _identity(n_heads * d_k)
        self.to_global_value = _identity(n_heads * (d_v or d_k))

    def forward(
        self,
        query: Float[Tensor, "*batch query d_k"],
        key: Float[Tensor, "*batch key d_k"],
        value: Float[Tensor, "*batch key d_v"],
        **options: Unpack[FormOptions],
    ) -> Float[Tensor, "*batch query d_v"]:
        return longformer_attention(
            query,
            key,
            value,
            reach=self.reach,
            global_heads=None if self.n_heads is None else self._global_heads(query, key, value),
            **options,
        )

    def _global_heads(self, query: Tensor, key: Tensor, value: Tensor) -> GlobalHeads:
        _check_reach(self.reach, query.size(-2), key.size(-2))
        if query.dim() < 3 or query.size(-3) != self.n_heads:
            raise ShapeError(
                f"this Longformer has global projections for {self.n_heads} heads, but the queries "
                f"have shape {tuple(query.shape)}: the third axis from the end counts heads."
            )
        query = query[..., list(self.reach.global_tokens), :]
        project = zip(
            (self.to_global_query, self.to_global_key, self.to_global_value),
            (query, key, value),
            strict=True,
        )
        return GlobalHeads(*(self._over_heads(linear, x) for linear, x in project))

    def _over_heads(self, linear: nn.Module, x: Tensor) -> Tensor:
        joined = linear(rearrange(x, "... head token d -> ... token (head d)"))
        return rearrange(joined, "... token (head d) -> ... head token d", head=x.size(-3))

    def extra_repr(self) -> str:
        return repr(self.reach)


@dataclass(frozen=True)
class LongformerPattern(Pattern):
    """The weights of a Longformer: exact ones of those in reach."""

    reach: LongformerMask
    allowed: Mask
    """Whom the query reaches and may see."""
    global_query: Tensor | None = None
    global_key: Tensor | None = None

    def weights(
        self, query: Float[Tensor, "query d_q"], key: Float[Tensor, "key d_k"], tile: Tile
    ) -> Float[Tensor, "rows columns"]:
        rows = tile.grid.rows
        scores = upcast_half(query[rows]) @ upcast_half(key).transpose(-1, -2)
        if self.global_query is not None and self.global_key is not None:
            own_query, own_key = (
                upcast_half(x[tile.index]) for x in (self.global_query, self.global_key)
            )
            for number, token in enumerate(self.reach.global_tokens):
                here = (rows == token)[:, None]
                scores = torch.where(here, own_key @ own_query[number], scores)
        full = tile.with_columns(torch.arange(tile.grid.n_key, device=rows.device))
        seen = full.of(self.allowed.on(full.grid))
        scores = (scores * key.size(-1) ** -0.5).masked_fill(~seen, -inf)
        return softmax_over_keys(scores)[:, tile.grid.columns]


def _attend_to_everything(
    own: GlobalHeads, tokens: Tensor, mask: Mask, grid: Grid, dropout: float
) -> Tensor:
    """The context of the global tokens."""
    measure = as_similarity("scaled_dot")
    rows = Everything()
    if not isinstance(mask, Everything):
        rows = mask.on(Grid(grid.lead, grid.n_query, grid.n_key, tokens, grid.columns))
        rows = BooleanMask(rows.expand(*grid.lead, len(tokens), grid.n_key))
    exact = ExactPattern(measure, measure.scale(own.key.size(-1)), 1.0, rows)
    return fused_attention(own.query, own.key, own.value, pattern=exact, dropout=dropout)


def _without_hidden(mask: Mask, grid: Grid, *tensors: Tensor) -> list[Tensor]:
    """The same with zeros at keys that nobody sees: not even NaN may come from there."""
    seen = split_causal(mask)[1].on_keys(grid)
    if seen is None or isinstance(mask, Everything):
        return list(tensors)
    return [x.masked_fill(~seen.transpose(-1, -2), 0.0) for x in tensors]


def _tap_heads(own: GlobalHeads, site: str) -> GlobalHeads:
    return GlobalHeads(
        tap(f"{site}.global_query", own.query, "global d_k"),
        tap(f"{site}.global_key", own.key, "key d_k"),
        tap(f"{site}.global_value", own.value, "key d_v"),
    )


def _check_reach(reach: LongformerMask, n_query: int, n_key: int) -> None:
    if n_query != n_key:
        raise ShapeError(
            f"a Longformer's window needs as many queries as keys, not {n_query} and {n_key}: it "
            "is a form of self-attention."
        )
    if reach.global_tokens and reach.global_tokens[-1] >= n_key:
        raise InputError(
            f"token {reach.global_tokens[-1]} is to be global, but there are only {n_key} tokens, "
            "counted from 0."
        )


def _identity(width: int) -> nn.Linear:
    linear = nn.Linear(width, width)
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
