"""Masks: which query may see which key.

A mask is a description. It costs O(1) or O(n) memory until a kernel asks for the part it needs
as a boolean tensor, in which True means "may see".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.errors import MaskError


@dataclass(frozen=True)
class Grid:
    """The scores a mask is asked about: all of them, or some rows (queries) and columns (keys)."""

    lead: tuple[int, ...]
    """Sizes of the axes before query and key; the first is the batch, the last the head."""
    n_query: int
    n_key: int
    rows: Tensor
    columns: Tensor

    @classmethod
    def whole(cls, lead: Sequence[int], n_query: int, n_key: int, device: torch.device) -> "Grid":
        """All scores of a site."""
        rows = torch.arange(n_query, device=device)
        return cls(tuple(lead), n_query, n_key, rows, torch.arange(n_key, device=device))

    def is_whole(self) -> bool:
        """Whether no row or column is left out (the order is always ascending)."""
        return self.rows.size(0) == self.n_query and self.columns.size(0) == self.n_key


class Mask(ABC):
    """Which query may see which key; combine masks with `&`, `|` and `~`."""

    @abstractmethod
    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        """True where a query may see a key; broadcasts against (*grid.lead, rows, columns)."""

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        """The same with a query axis of 1, if all queries see the same keys; otherwise None."""
        del grid
        return None

    def admits_all(self, grid: Grid) -> bool:
        """Whether it is plain, without computing anything, that nothing is forbidden."""
        del grid
        return False

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return Both(self, as_mask(other))

    def __rand__(self, other: Tensor) -> "Mask":
        return Both(as_mask(other), self)

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Either(self, as_mask(other))

    def __ror__(self, other: Tensor) -> "Mask":
        return Either(as_mask(other), self)

    def __invert__(self) -> "Mask":
        return Not(self)

    def tensor(
        self, n_query: int, n_key: int | None = None, *, lead: Sequence[int] = ()
    ) -> Bool[Tensor, "*lead query key"]:
        """The mask as a boolean tensor of exactly these sizes."""
        n_key = n_query if n_key is None else n_key
        grid = Grid.whole(lead, n_query, n_key, torch.device("cpu"))
        return self.on(grid).expand(*lead, n_query, n_key)

    def draw(self, n_query: int, n_key: int | None = None, *, lead: Sequence[int] = ()) -> str:
        """A picture in characters: a row for each query, ● where it may see, · where not."""
        whole = self.tensor(n_query, n_key, lead=lead).flatten(end_dim=-3) if lead else None
        pictures = [self.tensor(n_query, n_key)] if whole is None else list(whole)
        return "\n\n".join(
            "\n".join(" ".join("●" if cell else "·" for cell in row) for row in picture.tolist())
            for picture in pictures
        )


@dataclass(frozen=True, repr=False)
class Everything(Mask):
    """Every query sees every key."""

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        return grid.rows.new_ones(1, 1, dtype=torch.bool)

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        return grid.rows.new_ones(1, grid.columns.size(0), dtype=torch.bool)

    def admits_all(self, grid: Grid) -> bool:
        del grid
        return True

    def __repr__(self) -> str:
        return "everything()"


@dataclass(frozen=True, repr=False, eq=False)
class Table(Mask):
    """A boolean tensor: (query, key), or exactly as many axes as the scores."""

    allowed: Tensor

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        table = self.allowed.to(grid.rows.device)
        self._check(grid)
        if not grid.is_whole():
            table = table if table.size(-2) == 1 else table[..., grid.rows, :]
            table = table if table.size(-1) == 1 else table[..., grid.columns]
        return table

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        return self.on(grid) if self.allowed.size(-2) == 1 else None

    def _check(self, grid: Grid) -> None:
        wanted = (*grid.lead, grid.n_query, grid.n_key)
        given = tuple(self.allowed.shape)
        target = wanted[-2:] if len(given) == 2 else wanted
        fits = len(given) == len(target) and all(
            g in (1, t) for g, t in zip(given, target, strict=True)
        )
        if not fits:
            raise MaskError(
                f"the mask `allowed` has shape {given}, but the scores have shape {wanted}: give "
                f"it the two axes (query, key) or all {len(wanted)} axes, each of the scores' size "
                "or 1. Other shapes would broadcast over the wrong axes."
            )

    def __repr__(self) -> str:
        return f"table{tuple(self.allowed.shape)}"


@dataclass(frozen=True, repr=False)
class Both(Mask):
    """What both masks allow."""

    left: Mask
    right: Mask

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        return self.left.on(grid) & self.right.on(grid)

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        left, right = self.left.on_keys(grid), self.right.on_keys(grid)
        return None if left is None or right is None else left & right

    def admits_all(self, grid: Grid) -> bool:
        return self.left.admits_all(grid) and self.right.admits_all(grid)

    def __repr__(self) -> str:
        return f"{_bracket(self.left)} & {_bracket(self.right)}"


@dataclass(frozen=True, repr=False)
class Either(Mask):
    """What at least one of two masks allows."""

    left: Mask
    right: Mask

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        return self.left.on(grid) | self.right.on(grid)

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        left, right = self.left.on_keys(grid), self.right.on_keys(grid)
        return None if left is None or right is None else left | right

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


@dataclass(frozen=True, repr=False)
class Not(Mask):
    """What a mask forbids."""

    mask: Mask

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        return ~self.mask.on(grid)

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        keys = self.mask.on_keys(grid)
        return None if keys is None else ~keys

    def __repr__(self) -> str:
        return f"~{_bracket(self.mask)}"


def as_mask(allowed: Mask | Tensor | None) -> Mask:
    """A mask object for whatever a caller may give as `allowed`."""
    if isinstance(allowed, Mask):
        return allowed
    if allowed is None:
        return Everything()
    if not isinstance(allowed, Tensor):
        raise MaskError(
            f"`allowed` is a boolean tensor or a mask such as regard.causal(), not a "
            f"{type(allowed).__name__}."
        )
    if allowed.dtype != torch.bool:
        raise MaskError(
            f"the mask `allowed` is a {allowed.dtype} tensor; give a boolean one in which True "
            "means that the query may see the key."
        )
    if allowed.dim() < 2:
        raise MaskError(
            f"the mask `allowed` has shape {tuple(allowed.shape)}; it needs at least the two axes "
            "(query, key)."
        )
    return Table(allowed)


def _bracket(mask: Mask) -> str:
    return f"({mask!r})" if isinstance(mask, Both) else repr(mask)
