"""Sliding-window attention in O(n · w), the core of a Longformer.

Queries are cut into blocks, and each block is compared with the keys around it and the global ones
in one softmax. Keys are not copied: the blocks' windows are overlapping views of one buffer.
"""

from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.mask import Everything, Mask, split_causal
from regard.attention.tile import Grid
from regard.errors import InputError


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
