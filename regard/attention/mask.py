"""The kinds of masks: causal, window, padding, edges, and single connections."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
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
class BooleanMask(Mask):
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
    return BooleanMask(allowed)


def _bracket(mask: Mask) -> str:
    return f"({mask!r})" if isinstance(mask, Both) else repr(mask)


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """Query i sees keys 0 to i + offset."""

    offset: int = 0

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
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

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        return (grid.rows[:, None] + self.offset - grid.columns).abs() <= self.radius

    def __repr__(self) -> str:
        shift = f", offset={self.offset}" if self.offset else ""
        return f"window({self.radius}{shift})"


@dataclass(frozen=True, repr=False, eq=False)
class Padding(Mask):
    """In each sequence of the batch only the first (or last) `lengths` keys are real."""

    lengths: Tensor
    longest: int
    side: str

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        self._check(grid)
        lengths = self.lengths.to(grid.columns.device)
        lengths = lengths.view(-1, *(1,) * (len(grid.lead) + 1))
        if self.side == "right":
            return grid.columns < lengths
        return grid.columns >= grid.n_key - lengths

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        return self.on(grid)

    def _check(self, grid: Grid) -> None:
        if not grid.lead:
            raise MaskError(
                f"padding({self.lengths.size(0)} lengths) needs a batch axis, but the scores have "
                "only the axes (query, key): add a batch axis in front, or slice the padding off."
            )
        if grid.lead[0] != self.lengths.size(0):
            raise MaskError(
                f"padding has {self.lengths.size(0)} lengths, but the batch has {grid.lead[0]} "
                "sequences: give one length for each sequence."
            )
        if self.longest > grid.n_key:
            raise MaskError(
                f"padding says a sequence is {self.longest} long, but there are only "
                f"{grid.n_key} keys: lengths count keys and cannot be larger than that."
            )

    def __repr__(self) -> str:
        side = "" if self.side == "right" else f", side={self.side!r}"
        return f"padding({_short(self.lengths.tolist())}{side})"


@dataclass(frozen=True, repr=False, eq=False)
class Edges(Mask):
    """Attention as a graph: exactly these (query, key) pairs are connected."""

    pairs: Tensor

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        pairs = self.pairs.to(grid.rows.device)
        self._check(grid)
        row = _places(grid.rows, grid.n_query)[pairs[:, 0]]
        column = _places(grid.columns, grid.n_key)[pairs[:, 1]]
        # Pairs outside the tile stand at -1: they fall into a last row and column that are cut off.
        size = (grid.rows.size(0) + 1, grid.columns.size(0) + 1)
        allowed = grid.rows.new_zeros(size, dtype=torch.bool)
        allowed[row, column] = True
        return allowed[:-1, :-1]

    def _check(self, grid: Grid) -> None:
        if torch.compiler.is_compiling() or len(self.pairs) == 0:
            return  # reading a number out would break the graph
        query, key = self.pairs.amax(0).tolist()
        if query >= grid.n_query or key >= grid.n_key:
            raise MaskError(
                f"edges name the pair {(query, key)} or beyond, but there are {grid.n_query} "
                f"queries and {grid.n_key} keys, counted from 0."
            )

    def __repr__(self) -> str:
        return f"edges({_short([tuple(pair) for pair in self.pairs.tolist()])})"


@dataclass(frozen=True, repr=False)
class Connection(Mask):
    """The connections of one query, key or head (or of several of these at once), and no other."""

    query: int | None = None
    key: int | None = None
    head: int | None = None

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        here = grid.rows.new_ones(1, 1, dtype=torch.bool)
        if self.query is not None:
            here = here & (grid.rows == self.query)[:, None]
        if self.key is not None:
            here = here & (grid.columns == self.key)
        if self.head is not None:
            if not grid.lead or self.head >= grid.lead[-1]:
                heads = grid.lead[-1] if grid.lead else 0
                raise MaskError(
                    f"there is no head {self.head}: the scores have {heads} heads, counted from 0."
                )
            heads = torch.arange(grid.lead[-1], device=grid.rows.device)
            here = here & (heads == self.head)[:, None, None]
        return here

    def on_keys(self, grid: Grid) -> Bool[Tensor, "*lead one columns"] | None:
        return None if self.query is not None else self.on(grid)

    def __repr__(self) -> str:
        given = {"query": self.query, "key": self.key, "head": self.head}
        return f"connection({', '.join(f'{k}={v}' for k, v in given.items() if v is not None)})"


def causal(offset: int = 0) -> Mask:
    """The mask in which query i sees keys 0 to i (+ `offset`, where earlier keys are cached)."""
    if isinstance(offset, float | str):
        raise MaskError(f"causal needs a whole offset, not {offset!r}.")
    return Causal(offset)


def window(radius: int) -> Mask:
    """The mask in which a query sees the keys at most `radius` positions away."""
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 0:
        raise MaskError(f"window needs a radius of 0, 1, 2, …, not {radius!r}.")
    return Window(radius)


def padding(lengths: Sequence[int] | Tensor, *, side: str = "right") -> Mask:
    """The mask that hides padding: sequence i of the batch has `lengths[i]` real keys.

    `side` says where the padding is. The first axis of the scores is the batch.
    """
    if side not in ("right", "left"):
        raise MaskError(f"padding has side='right' or side='left', not {side!r}.")
    try:
        given = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise MaskError(
            f"padding needs one whole number for each sequence of the batch, not {lengths!r}."
        ) from None
    if given.dim() != 1 or given.is_floating_point() or given.dtype == torch.bool:
        raise MaskError(
            f"padding needs one whole number for each sequence of the batch, but was given a "
            f"{given.dtype} tensor of shape {tuple(given.shape)}."
        )
    if torch.compiler.is_compiling():  # reading a number out would break the graph
        return Padding(given, 0, side)
    low, high = (int(x) for x in torch.aminmax(given)) if len(given) else (0, 0)
    if low < 0:
        raise MaskError(f"padding was given the length {low}; lengths are 0 or more.")
    return Padding(given, high, side)


def edges(pairs: Iterable[Sequence[int]] | Tensor) -> Mask:
    """The mask in which exactly these (query, key) pairs are connected."""
    try:
        given = pairs if isinstance(pairs, Tensor) else torch.tensor([list(pair) for pair in pairs])
    except (TypeError, ValueError, RuntimeError):
        raise MaskError(
            f"edges needs (query, key) pairs of whole numbers, not {pairs!r}."
        ) from None
    given = given.view(0, 2).long() if given.numel() == 0 else given
    if given.dim() != 2 or given.size(1) != 2 or given.is_floating_point():
        raise MaskError(
            f"edges needs (query, key) pairs of whole numbers, but was given a {given.dtype} "
            f"tensor of shape {tuple(given.shape)}."
        )
    if not torch.compiler.is_compiling() and len(given) and int(given.min()) < 0:
        raise MaskError(f"edges count queries and keys from 0, but {int(given.min())} was given.")
    return Edges(given)


def split_causal(mask: Mask) -> tuple[bool, Mask]:
    """Whether the mask is causal, and the rest of it: causal() & padding(…) → True, padding(…)."""
    if isinstance(mask, Causal) and mask.offset == 0:
        return True, Everything()
    if isinstance(mask, Both):
        (left, left_rest), (right, right_rest) = split_causal(mask.left), split_causal(mask.right)
        rests = [rest for rest in (left_rest, right_rest) if not isinstance(rest, Everything)]
        rest = rests[0] if rests else Everything()
        return left or right, rest & rests[1] if len(rests) == 2 else rest
    return False, mask


def _places(indices: Tensor, n: int) -> Tensor:
    """For each of n positions, where it stands in `indices`; -1 for those that do not."""
    places = indices.new_full((n,), -1)
    places[indices] = torch.arange(indices.size(0), device=indices.device)
    return places


def _short(items: list[object], limit: int = 6) -> str:
    shown = ", ".join(str(item) for item in items[:limit])
    return f"[{shown}{f', … {len(items)} in all' if len(items) > limit else ''}]"
