"""Masks: which query may see which key, as descriptions that cost no memory until they are used."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.tile import Grid
from regard.errors import MaskError

Lengths: TypeAlias = Sequence[int] | Int[Tensor, "batch"]
"""The number of real tokens in each sequence of a padded batch."""
_Cells: TypeAlias = Bool[Tensor, "*lead rows columns"]
_Keys: TypeAlias = Bool[Tensor, "*lead one columns"] | None


class Mask(ABC):
    """The keys that each query may see; combine masks with `&`, `|` and `~`."""

    @abstractmethod
    def on(self, grid: Grid) -> _Cells:
        """Return True where a query may see a key; broadcasts to (*grid.lead, rows, columns)."""

    def on_keys(self, grid: Grid) -> _Keys:
        """Return the same with a query axis of 1 if all queries see the same keys, else None."""
        return None

    def admits_all(self, grid: Grid) -> bool:
        """Return True if it is known without any computation that nothing is forbidden."""
        return False

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return Both(self, as_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Either(self, as_mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)

    __rand__, __ror__ = __and__, __or__

    def tensor(
        self, n_query: int, n_key: int | None = None, *, lead: Sequence[int] = ()
    ) -> Bool[Tensor, "*lead query key"]:
        """Return the mask as a boolean tensor of exactly these sizes."""
        n_key = n_query if n_key is None else n_key
        grid = Grid.whole(lead, n_query, n_key, torch.device("cpu"))
        return self.on(grid).expand(*lead, n_query, n_key)

    def draw(self, n_query: int, n_key: int | None = None, *, lead: Sequence[int] = ()) -> str:
        """Draw the mask in characters: a row for each query, ● where it may see, · elsewhere."""
        whole = self.tensor(n_query, n_key, lead=lead)
        return "\n\n".join(
            "\n".join(" ".join("●" if cell else "·" for cell in row) for row in picture)
            for picture in whole.reshape(-1, *whole.shape[-2:]).tolist()
        )


@dataclass(frozen=True, repr=False)
class Everything(Mask):
    """Every query sees every key."""

    def on(self, grid: Grid) -> _Cells:
        return grid.rows.new_ones(1, 1, dtype=torch.bool)

    def on_keys(self, grid: Grid) -> _Keys:
        return grid.rows.new_ones(1, grid.columns.size(0), dtype=torch.bool)

    def admits_all(self, grid: Grid) -> bool:
        return True

    def __repr__(self) -> str:
        return "everything()"


@dataclass(frozen=True, repr=False, eq=False)
class BooleanMask(Mask):
    """A boolean tensor: (query, key), or exactly as many axes as the scores."""

    allowed: Tensor

    def on(self, grid: Grid) -> _Cells:
        scores = (*grid.lead, grid.n_query, grid.n_key)
        given = tuple(self.allowed.shape)
        target = scores[-2:] if len(given) == 2 else scores
        fits = all(size in (1, n) for size, n in zip(given, target, strict=False))
        if len(given) != len(target) or not fits:
            raise MaskError(
                f"the mask `allowed` has shape {given}, but the scores have shape {scores}: give "
                f"it the two axes (query, key) or all {len(scores)} axes, each of the scores' size "
                "or 1. Other shapes would broadcast over the wrong axes."
            )
        allowed = self.allowed.to(grid.rows.device)
        if not grid.is_whole():
            allowed = allowed if allowed.size(-2) == 1 else allowed[..., grid.rows, :]
            allowed = allowed if allowed.size(-1) == 1 else allowed[..., grid.columns]
        return allowed

    def on_keys(self, grid: Grid) -> _Keys:
        allowed = self.on(grid)
        return allowed if self.allowed.size(-2) == 1 else None

    def __repr__(self) -> str:
        return f"table{tuple(self.allowed.shape)}"


@dataclass(frozen=True, repr=False)
class _Pair(Mask):
    left: Mask
    right: Mask
    _combine: ClassVar[Callable[[Tensor, Tensor], Tensor]]

    def on(self, grid: Grid) -> _Cells:
        return self._combine(self.left.on(grid), self.right.on(grid))

    def on_keys(self, grid: Grid) -> _Keys:
        left, right = self.left.on_keys(grid), self.right.on_keys(grid)
        return None if left is None or right is None else self._combine(left, right)


class Both(_Pair):
    """The pairs that both masks allow."""

    _combine = staticmethod(operator.and_)

    def admits_all(self, grid: Grid) -> bool:
        return self.left.admits_all(grid) and self.right.admits_all(grid)

    def __repr__(self) -> str:
        return f"{_bracket(self.left)} & {_bracket(self.right)}"


class Either(_Pair):
    """The pairs that at least one of two masks allows."""

    _combine = staticmethod(operator.or_)

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


@dataclass(frozen=True, repr=False)
class Not(Mask):
    """The pairs that a mask forbids."""

    mask: Mask

    def on(self, grid: Grid) -> _Cells:
        return ~self.mask.on(grid)

    def on_keys(self, grid: Grid) -> _Keys:
        keys = self.mask.on_keys(grid)
        return None if keys is None else ~keys

    def __repr__(self) -> str:
        return f"~{_bracket(self.mask)}"


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """Query i sees keys 0 to i + offset."""

    offset: int = 0

    def on(self, grid: Grid) -> _Cells:
        return grid.columns <= grid.rows[:, None] + self.offset

    def admits_all(self, grid: Grid) -> bool:
        return self.offset >= grid.n_key - 1

    def __repr__(self) -> str:
        return f"causal(offset={self.offset})" if self.offset else "causal()"


@dataclass(frozen=True, repr=False)
class Window(Mask):
    """Query i + offset sees keys at most `radius` away."""

    radius: int
    offset: int = 0

    def on(self, grid: Grid) -> _Cells:
        return (grid.rows[:, None] + self.offset - grid.columns).abs() <= self.radius

    def __repr__(self) -> str:
        shift = f", offset={self.offset}" if self.offset else ""
        return f"window({self.radius}{shift})"


@dataclass(frozen=True, repr=False, eq=False)
class Padding(Mask):
    """Only the first (or last) `lengths` keys of each sequence in the batch are real."""

    lengths: Tensor
    longest: int
    side: str

    def on(self, grid: Grid) -> _Cells:
        n_lengths = self.lengths.size(0)
        if not grid.lead or grid.lead[0] != n_lengths:
            n_batch = f"a batch of {grid.lead[0]} sequences" if grid.lead else "no batch axis"
            raise MaskError(
                f"padding has {n_lengths} lengths, but the scores have {n_batch}: give one length "
                "for each sequence, along the first axis."
            )
        if self.longest > grid.n_key:
            raise MaskError(
                f"padding was given a length of {self.longest}, but there are only {grid.n_key} "
                "keys: a length must not exceed the number of keys."
            )
        real = length_mask(self.lengths, grid.columns, grid.n_key, side=self.side)
        return real.unflatten(1, (*(1,) * len(grid.lead), real.size(1)))

    def on_keys(self, grid: Grid) -> _Keys:
        return self.on(grid)

    def __repr__(self) -> str:
        side = "" if self.side == "right" else f", side={self.side!r}"
        return f"padding({_short(self.lengths.tolist())}{side})"


@dataclass(frozen=True, repr=False, eq=False)
class Edges(Mask):
    """Attention as a graph: exactly these (query, key) pairs are connected."""

    pairs: Tensor

    def on(self, grid: Grid) -> _Cells:
        pairs = self.pairs.to(grid.rows.device)
        if len(pairs) and not torch.compiler.is_compiling():  # reading numbers breaks the graph
            query, key = self.pairs.amax(0).tolist()
            if query >= grid.n_query or key >= grid.n_key:
                raise MaskError(
                    f"edges reach query {query} and key {key}, but there are {grid.n_query} "
                    f"queries and {grid.n_key} keys, counted from 0."
                )
        row = _inverse(grid.rows, grid.n_query)[pairs[:, 0]]
        column = _inverse(grid.columns, grid.n_key)[pairs[:, 1]]
        # Pairs outside the tile have index -1: they fall into a last row and column, cut off below.
        size = (grid.rows.size(0) + 1, grid.columns.size(0) + 1)
        allowed = grid.rows.new_zeros(size, dtype=torch.bool)
        allowed[row, column] = True
        return allowed[:-1, :-1]

    def __repr__(self) -> str:
        return f"edges({_short([tuple(pair) for pair in self.pairs.tolist()])})"


@dataclass(frozen=True, repr=False)
class Connection(Mask):
    """Only the connections of one query, key or head, or of a combination of them."""

    query: int | None = None
    key: int | None = None
    head: int | None = None

    def on(self, grid: Grid) -> _Cells:
        here = grid.rows.new_ones(1, 1, dtype=torch.bool)
        for index, positions in ((self.query, grid.rows[:, None]), (self.key, grid.columns)):
            here = here if index is None else here & (positions == index)
        if self.head is not None:
            n_heads = grid.lead[-1] if grid.lead else 0
            if self.head >= n_heads:
                raise MaskError(
                    f"head {self.head} does not exist: there are {n_heads}, counted from 0."
                )
            heads = torch.arange(n_heads, device=grid.rows.device)
            here = here & (heads == self.head)[:, None, None]
        return here

    def on_keys(self, grid: Grid) -> _Keys:
        return None if self.query is not None else self.on(grid)

    def __repr__(self) -> str:
        given = {"query": self.query, "key": self.key, "head": self.head}
        return f"connection({', '.join(f'{k}={v}' for k, v in given.items() if v is not None)})"


def causal(offset: int = 0) -> Mask:
    """Let query i see keys 0 to i (+ `offset`, if earlier keys are cached)."""
    if isinstance(offset, float | str):
        raise MaskError(f"causal needs an integer offset, not {offset!r}.")
    return Causal(offset)


def window(radius: int) -> Mask:
    """Let a query see the keys at most `radius` positions away."""
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 0:
        raise MaskError(f"window needs a radius of 0, 1, 2, …, not {radius!r}.")
    return Window(radius)


def padding(lengths: Lengths, *, side: str = "right") -> Mask:
    """Hide padding on this side: sequence i of the batch (the first axis) has lengths[i] keys."""
    if side not in ("right", "left"):
        raise MaskError(f"padding has side='right' or side='left', not {side!r}.")
    given = _integers(lengths, "padding needs one integer for each sequence of the batch", n_axes=1)
    if torch.compiler.is_compiling():  # reading a number out would break the graph
        return Padding(given, 0, side)
    low, high = (int(x) for x in torch.aminmax(given)) if len(given) else (0, 0)
    if low < 0:
        raise MaskError(f"padding was given the length {low}; lengths are 0 or more.")
    return Padding(given, high, side)


def edges(pairs: Iterable[Sequence[int]] | Tensor) -> Mask:
    """Connect exactly these (query, key) pairs."""
    given = _integers(pairs, "edges needs (query, key) pairs of integers", n_axes=2)
    if not torch.compiler.is_compiling() and len(given) and int(given.min()) < 0:
        raise MaskError(f"edges count queries and keys from 0, but {int(given.min())} was given.")
    return Edges(given)


def as_mask(allowed: Mask | Tensor | None) -> Mask:
    """Return a mask object for any value of `allowed` that a caller may pass."""
    if isinstance(allowed, Mask):
        return allowed
    if allowed is None:
        return Everything()
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
        kind = f"{allowed.dtype} tensor" if isinstance(allowed, Tensor) else type(allowed).__name__
        raise MaskError(
            f"`allowed` is a {kind}; give a mask such as regard.causal(), or a boolean tensor in "
            "which True means that the query may see the key."
        )
    return BooleanMask(allowed)


def split_causal(mask: Mask) -> tuple[bool, Mask]:
    """Split off a causal part: causal() & padding(…) gives (True, padding(…))."""
    if isinstance(mask, Causal) and mask.offset == 0:
        return True, Everything()
    if isinstance(mask, Both):
        (left, one), (right, other) = split_causal(mask.left), split_causal(mask.right)
        if isinstance(one, Everything) or isinstance(other, Everything):
            return left or right, other if isinstance(one, Everything) else one
        return left or right, one & other
    return False, mask


def length_mask(
    lengths: Int[Tensor, "batch"], positions: Tensor, n_token: int, *, side: str = "right"
) -> Bool[Tensor, "batch token"]:
    """Return True at the positions of real tokens, in a padded batch of `n_token` columns."""
    lengths = lengths.to(positions.device)[:, None]
    return positions < lengths if side == "right" else positions >= n_token - lengths


def _integers(values: Any, needed: str, *, n_axes: int) -> Tensor:
    """Return `values` as an integer tensor of shape (n,) or (n, 2)."""
    try:
        plain = values if isinstance(values, Tensor | list | tuple) else list(values)
        given = torch.as_tensor(plain)
    except (TypeError, ValueError, RuntimeError):
        raise MaskError(f"{needed}, not {values!r}.") from None
    if given.numel() == 0 and n_axes == 2:
        return given.view(0, 2).long()
    fits = given.dim() == n_axes and given.shape[1:] in ((), (2,))
    if not fits or given.is_floating_point() or given.dtype == torch.bool:
        raise MaskError(
            f"{needed}, but was given a {given.dtype} tensor of shape {tuple(given.shape)}."
        )
    return given


def _bracket(mask: Mask) -> str:
    return f"({mask!r})" if isinstance(mask, Both) else repr(mask)


def _inverse(indices: Tensor, n: int) -> Tensor:
    """Return the index of each of n positions within `indices`, or -1."""
    inverse = indices.new_full((n,), -1)
    inverse[indices] = torch.arange(indices.size(0), device=indices.device)
    return inverse


def _short(items: list[object], limit: int = 6) -> str:
    shown = ", ".join(str(item) for item in items[:limit])
    return f"[{shown}{f', … {len(items)} in all' if len(items) > limit else ''}]"
