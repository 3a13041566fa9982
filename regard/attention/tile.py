"""The scores of an attention site: all of them, or a tile of rows (queries) and columns (keys)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


def broadcast_lead(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to; a RuntimeError if they do not.

    torch.broadcast_shapes does the same but imports sympy, which takes longer than a translation.
    """
    lead = [1] * max(map(len, shapes))
    for shape in shapes:
        for axis, n in enumerate(shape, len(lead) - len(shape)):
            if n != 1 and lead[axis] not in (1, n):
                raise RuntimeError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
            lead[axis] = lead[axis] if n == 1 else n
    return tuple(lead)


def select_head(tensor: Tensor, index: tuple[int, ...]) -> Tensor:
    """Return the last two axes at one index of the leading ones, which may be 1 or absent."""
    lead = tensor.shape[:-2]
    index = index[len(index) - len(lead) :]
    return tensor[tuple(0 if n == 1 else i for n, i in zip(lead, index, strict=True))]


@dataclass(frozen=True)
class Grid:
    """Rows (queries) and columns (keys) of the scores of all heads and sequences."""

    lead: tuple[int, ...]
    """Sizes of the axes before query and key; the first is the batch, the last the head."""
    n_query: int
    n_key: int
    rows: Tensor
    columns: Tensor

    @classmethod
    def whole(cls, lead: Sequence[int], n_query: int, n_key: int, device: torch.device) -> "Grid":
        """Build the grid of all scores of a site."""
        rows = torch.arange(n_query, device=device)
        return cls(tuple(lead), n_query, n_key, rows, torch.arange(n_key, device=device))

    def is_whole(self) -> bool:
        """Return True if no row or column is left out (the order is always ascending)."""
        return self.rows.size(0) == self.n_query and self.columns.size(0) == self.n_key


@dataclass(frozen=True)
class Tile:
    """Some rows and columns of one head of one sequence, and the grid they are cut from."""

    grid: Grid
    index: tuple[int, ...]
    """Indices into the leading axes: (), (head,) or (batch, head)."""

    def of(self, tensor: Tensor) -> Tensor:
        """Return this tile of a tensor that broadcasts against (*lead, rows, columns)."""
        picked = select_head(tensor, self.index)
        return picked.expand(len(self.grid.rows), len(self.grid.columns))

    def with_rows(self, rows: Tensor) -> "Tile":
        return Tile(replace(self.grid, rows=rows), self.index)

    def with_columns(self, columns: Tensor | None = None) -> "Tile":
        """Return the same tile with other columns; with all keys if None."""
        if columns is None:
            columns = torch.arange(self.grid.n_key, device=self.grid.rows.device)
        return Tile(replace(self.grid, columns=columns), self.index)

    def scalar(self, value: float | Tensor) -> float | Tensor:
        """Return this head's entry of a temperature, which may differ between heads and queries."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        if value.dim() > 1 and value.size(-2) > 1:
            value = value[..., self.grid.rows, :]
        return self.of(value)[:, :1]
