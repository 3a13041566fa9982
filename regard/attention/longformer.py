"""Longformer: a sliding window, optionally dilated, and global tokens that see and are seen.

    ● ● · · · ●        window of radius 1, the last token global:
    ● ● ● · · ●        every query sees its neighbors and the global token,
    · ● ● ● · ●        which sees everything, optionally through separate projections
    · · ● ● ● ●
    · · · ● ● ●
    ● ● ● ● ● ●

Beltagy et al. 2020; the cost is O(n · w). Queries are cut into blocks, and each block is compared
with the keys around it and the global ones in one softmax. Keys are not copied: the blocks' windows
are overlapping views of one buffer.
"""

from dataclasses import dataclass
from math import inf, prod

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.form import AttentionForm, FormInputs
from regard.attention.fused import fused_attention
from regard.attention.mask import BooleanMask, Everything, Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.similarity import as_similarity
from regard.attention.softmax import softmax_over_keys, upcast_half
from regard.attention.tile import Grid, Tile
from regard.errors import InputError, ShapeError
from regard.tap import tap


@dataclass(frozen=True, repr=False)
class LongformerMask(Mask):
    """A window of `radius` steps of `dilation` tokens to each side, and tokens that see everything.

    Global tokens are also seen by every query.
    """

    radius: int
    dilation: int = 1
    global_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, least in (("radius", self.radius, 0), ("dilation", self.dilation, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"a Longformer's {name} is an integer of at least {least}, not {value!r}."
                )
        if not all(isinstance(token, int) and token >= 0 for token in self.global_tokens):
            raise InputError(
                f"global tokens are positions counted from 0, not {list(self.global_tokens)}."
            )
        object.__setattr__(self, "global_tokens", tuple(sorted(set(self.global_tokens))))

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        distance = grid.rows[:, None] - grid.columns
        near = (distance.abs() <= self.radius * self.dilation) & (distance % self.dilation == 0)
        everywhere = torch.tensor(self.global_tokens, dtype=torch.long, device=grid.rows.device)
        rows, columns = (torch.isin(x, everywhere) for x in (grid.rows, grid.columns))
        return near | rows[:, None] | columns

    def __repr__(self) -> str:
        gaps = f", dilation={self.dilation}" if self.dilation > 1 else ""
        tokens = f", global_tokens={list(self.global_tokens)}" if self.global_tokens else ""
        return f"longformer({self.radius}{gaps}{tokens})"


def windowed_attention(
    query: Float[Tensor, "*batch token d_k"],
    key: Float[Tensor, "*batch token d_k"],
    value: Float[Tensor, "*batch token d_v"],
    *,
    reach: LongformerMask,
    mask: Mask,
    dropout: float,
) -> Float[Tensor, "*batch token d_v"]:
    """Scaled dot-product attention to the window and the global tokens.

    With dilation, every `dilation`-th token belongs to one separate sequence. The rows of global
    tokens are computed as if they were not global.
    """
    n_token, step = query.size(-2), reach.dilation
    tokens = torch.tensor(reach.global_tokens, dtype=torch.long, device=query.device)
    extra = key[..., tokens, :], value[..., tokens, :]
    parts = []
    for first in range(min(step, n_token)):
        blocks = _Blocks(n_token, first, reach, split_causal(mask)[0])
        seen = blocks.seen(mask, query.shape[:-2], query.device)
        own = (x[..., first::step, :] for x in (query, key, value))
        part = _slide(*own, extra=extra, blocks=blocks, seen=seen, dropout=dropout)
        parts.append(F.pad(part, (0, 0, 0, -(-n_token // step) - part.size(-2))))
    if step == 1:
        return parts[0]
    return torch.stack(parts, dim=-2).flatten(-3, -2)[..., :n_token, :]


class _Blocks:
    """The tokens `first`, `first` + dilation, … cut into blocks with windows around them.

    A window is the block itself and some blocks before and after it; each of these is preceded by
    the global tokens, of which only those in front of the block itself count.
    """

    def __init__(self, n_token: int, first: int, reach: LongformerMask, causal: bool) -> None:
        self.n_token, self.first, self.reach = n_token, first, reach
        self.count = len(range(first, n_token, reach.dilation))
        self.size = max(32, -(-reach.radius // 2))  # the kernel handles 32 queries at once
        if self.count <= 5 * self.size:  # a window has two blocks on each side and its own
            self.size, self.back = self.count, 0
        else:
            self.back = -(-reach.radius // self.size)
        self.ahead = 0 if causal else self.back
        self.n_blocks = -(-self.count // self.size)

    def cut(self, x: Tensor) -> Float[Tensor, "*batch block size d"]:
        x = F.pad(x, (0, 0, 0, self.n_blocks * self.size - self.count))
        return rearrange(x, "... (block token) d -> ... block token d", token=self.size)

    def windows(self, x: Tensor, extra: Tensor) -> Float[Tensor, "*batch block width d"]:
        """Return the blocks' windows, as overlapping views."""
        blocks = self.cut(x)
        if extra.size(-2):
            front = extra.unsqueeze(-3).expand(*blocks.shape[:-2], *extra.shape[-2:])
            blocks = torch.cat([front, blocks], dim=-2)
        stride = blocks.size(-2)
        line = F.pad(blocks, (0, 0, 0, 0, self.back, self.ahead)).flatten(-3, -2)
        return line.unfold(-2, (self.back + 1 + self.ahead) * stride, stride).transpose(-1, -2)

    def seen(
        self, mask: Mask, lead: tuple[int, ...], device: torch.device
    ) -> Bool[Tensor, "*lead block size width"]:
        """Return which slots of its block's window each query sees."""
        rows, columns, near = self._positions(device)
        near = near & (columns >= 0).unsqueeze(-2)
        causal, rest = split_causal(mask)
        if causal:
            near = near & (columns.unsqueeze(-2) <= rows.unsqueeze(-1))
        if isinstance(rest, Everything):
            return near
        keys = rest.on_keys(Grid.whole(lead, self.n_token, self.n_token, device))
        if keys is not None:
            keys = keys.expand(*keys.shape[:-2], 1, self.n_token).squeeze(-2)
            return near & keys[..., columns.clamp(min=0)].unsqueeze(-2)
        blocks = [
            self._on_block(rest, lead, row[row < self.n_token], column)
            for row, column in zip(rows, columns, strict=True)
        ]
        return near & torch.stack(torch.broadcast_tensors(*blocks), dim=-3)

    def _positions(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens of each block and of its window (-1: none), and which are near."""
        block = torch.arange(self.n_blocks, device=device)[:, None, None]
        shift = torch.arange(-self.back, self.ahead + 1, device=device)[:, None]
        inside = torch.arange(self.size, device=device)
        tokens = torch.tensor(self.reach.global_tokens, dtype=torch.long, device=device)
        step = self.reach.dilation
        rows = (block[:, 0] * self.size + inside) * step + self.first
        slots = ((block + shift) * self.size + inside) * step + self.first
        outside = (slots < 0) | (slots >= self.n_token) | torch.isin(slots, tokens)
        slots = slots.masked_fill(outside, -1)
        front = tokens.expand(self.n_blocks, len(shift), -1).masked_fill(shift != 0, -1)
        columns = torch.cat([front, slots], dim=-1).flatten(-2)
        distance = (shift * self.size + inside)[None] - inside[:, None, None]
        near = F.pad(distance.abs() <= self.reach.radius, (len(tokens), 0), value=True).flatten(-2)
        return rows, columns, near

    def _on_block(self, mask: Mask, lead: tuple[int, ...], rows: Tensor, columns: Tensor) -> Tensor:
        order = columns.argsort()
        order = order[columns[order] >= 0]
        grid = Grid(lead, self.n_token, self.n_token, rows, columns[order])
        part = mask.on(grid)
        seen = part.new_zeros(*part.shape[:-2], self.size, len(columns))
        seen[..., : len(rows), order] = part
        return seen


def _slide(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    extra: tuple[Tensor, Tensor],
    blocks: _Blocks,
    seen: Tensor,
    dropout: float,
) -> Tensor:
    lead = query.shape[:-2]
    pieces = blocks.cut(query), blocks.windows(key, extra[0]), blocks.windows(value, extra[1])
    if seen.dim() == 3:
        query, key, value = (x.reshape(prod(lead), *x.shape[-3:]) for x in pieces)
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=seen[None], dropout_p=dropout
        )
    else:  # one sequence at a time, so that its mask is not copied for every head
        seen = seen.expand(*lead[:-1], *seen.shape[-4:]).reshape(-1, *seen.shape[-4:])
        sequences = (x.reshape(-1, lead[-1], *x.shape[-3:]).unbind() for x in pieces)
        context = torch.stack(
            [
                F.scaled_dot_product_attention(*three, attn_mask=mask, dropout_p=dropout)
                for *three, mask in zip(*sequences, seen.unbind(), strict=True)
            ]
        )
    context = context.reshape(*lead, blocks.n_blocks * blocks.size, context.size(-1))
    return context[..., : blocks.count, :]


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
