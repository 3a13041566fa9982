"""Edits: changes to what a model computes, as a list that can be applied, undone and shared.

Every edit names the sites it means, by exact path or with wildcards ("encoder.layers.*.self"),
and changes one inner value of each. An edit is a description; an `Editor` applies it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from regard.attention.mask import Connection, Mask
from regard.attention.similarity import Similarity
from regard.errors import InputError, UnknownNameError, nearest
from regard.tap import Tapped, split

Change = Callable[[Any], Any]
_WITH_HEADS = 3
"""Axes a tensor has at least if one of them is the head."""


@dataclass(frozen=True)
class Place:
    """Where an edit is applied."""

    site: str
    first: int
    """Position of the first query, where queries come step by step."""
    n_heads: int
    n_query: int = 0
    """How many queries there are by now, with those of earlier steps."""
    n_key: int = 0
    stepwise: bool = False
    """Whether there may be more queries than those at hand."""


@dataclass(frozen=True, repr=False, eq=False)
class Edit(ABC):
    """One change: at every site that matches, the value called `name` becomes another."""

    target: ClassVar[str] = ""
    """Which value of the site is changed: "context", "scores", "allowed", …"""
    site: str

    @abstractmethod
    def apply(self, value: Any, place: Place) -> Any:
        """The value to put in place of this one."""

    def path(self) -> str:
        """The paths of the values that are meant, possibly with wildcards."""
        return f"{self.site}.{self.target}"

    def __repr__(self) -> str:
        kind = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)[1:]
        options = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name != "site"]
        given = [f"{name}={_brief(value)}" for name, value in options if value is not None]
        return f"{kind}({', '.join([repr(self.site), *given])})"


@dataclass(frozen=True, repr=False, eq=False)
class Ablate(Edit):
    """A head's output becomes zero, or its mean over all queries."""

    head: int | None
    to: str
    target = "context"

    def apply(self, value: Tensor, place: Place) -> Tensor:
        new = torch.zeros_like(value)
        if self.to == "mean" and place.stepwise:
            raise InputError(
                f"{place.site} is computed query by query, so the mean over all of them is not yet "
                "known: ablate to='zero'."
            )
        if self.to == "mean":
            new = value.mean(dim=-2, keepdim=True).expand_as(value)
        if self.head is None or value.dim() < _WITH_HEADS:
            return new
        off = torch.arange(place.n_heads, device=value.device) == self.head
        return torch.where(off[:, None, None], new, value)


@dataclass(frozen=True, repr=False, eq=False)
class Forbid(Edit):
    """A query may no longer see a key."""

    query: int | None
    key: int | None
    head: int | None
    target = "allowed"

    def apply(self, value: Mask, place: Place) -> Mask:
        if not _at_hand(self, place):
            return value
        row = None if self.query is None else self.query - place.first
        return self.changed(value, Connection(row, self.key, self.head))

    def changed(self, value: Mask, meant: Mask) -> Mask:
        """The mask without the connections that are meant."""
        return value & ~meant


class Allow(Forbid):
    """A query may see a key that was hidden from it."""

    def changed(self, value: Mask, meant: Mask) -> Mask:
        """The mask with the connections that are meant."""
        return value | meant


@dataclass(frozen=True, repr=False, eq=False)
class Temperature(Edit):
    """Softmax has another temperature, everywhere or in one head."""

    value: float
    head: int | None
    target = "temperature"

    def apply(self, value: float | Tensor, place: Place) -> float | Tensor:
        if self.head is None or place.n_heads == 1:
            return self.value
        heads = torch.ones(place.n_heads, 1, 1) * value
        heads[..., self.head, :, :] = self.value
        return heads


@dataclass(frozen=True, repr=False, eq=False)
class Unscaled(Edit):
    """Scores are not divided by √d_k."""

    target = "scale"

    def apply(self, value: float, place: Place) -> float:
        del value, place
        return 1.0


@dataclass(frozen=True, repr=False, eq=False)
class SetTable(Edit):
    """Some scores or weights are replaced: those of a head, a query, a key, or all."""

    value: float | Tensor
    query: int | None
    key: int | None
    head: int | None

    def apply(self, value: Tensor, place: Place) -> Tensor:
        if not _at_hand(self, place):
            return value
        row = None if self.query is None else self.query - place.first
        new = value.clone()
        every = slice(None)
        heads = () if value.dim() < _WITH_HEADS else (every if self.head is None else self.head,)
        cell = (..., *heads, every if row is None else row, every if self.key is None else self.key)
        given = torch.as_tensor(self.value, dtype=value.dtype, device=value.device)
        if row is None and self.key is None:
            given = _rows_at_hand(given, value, place)
        try:
            new[cell] = given
        except RuntimeError:
            raise InputError(
                f"{self!r} gives values of shape {tuple(given.shape)}; the place they are for has "
                f"shape {tuple(new[cell].shape)}."
            ) from None
        return new


class SetScores(SetTable):
    """Scores before mask and softmax are replaced."""

    target = "scores"


class SetWeights(SetTable):
    """Weights are replaced."""

    target = "weights"


@dataclass(frozen=True, repr=False, eq=False)
class SetValue(Edit):
    """Any tapped value is replaced, by another or by a function of it."""

    value: Any

    def path(self) -> str:
        return self.site

    def apply(self, value: Any, place: Place) -> Any:
        if callable(self.value) and not isinstance(self.value, Similarity):
            return self.value(value)
        if not isinstance(value, Tensor):
            return self.value
        given = torch.as_tensor(self.value, dtype=value.dtype, device=value.device)
        given = _rows_at_hand(given, value, place)
        try:
            return given.expand_as(value)
        except RuntimeError:
            raise InputError(
                f"{self!r} gives a value of shape {tuple(given.shape)}; the one in its place has "
                f"shape {tuple(value.shape)}."
            ) from None


def ablate(site: str, *, head: int | None = None, to: str = "zero") -> Edit:
    """Switch a head off (all heads if none is named): its output becomes zero, or its mean.

    `to="mean"` puts the mean over all queries of this input in every query's place.
    """
    if to not in ("zero", "mean"):
        raise InputError(f"a head can be ablated to='zero' or to='mean', not {to!r}.")
    _check_counts(head=head)
    return Ablate(site, head, to)


def forbid(
    site: str, *, query: int | None = None, key: int | None = None, head: int | None = None
) -> Edit:
    """Forbid a connection: this query may no longer see this key; without a query, nobody may."""
    if query is None and key is None:
        raise InputError("forbid needs a query, a key or both: who may not see whom?")
    _check_counts(query=query, key=key, head=head)
    return Forbid(site, query, key, head)


def allow(
    site: str, *, query: int | None = None, key: int | None = None, head: int | None = None
) -> Edit:
    """Allow a connection that the mask forbids, such as a look at what comes later."""
    if query is None and key is None:
        raise InputError("allow needs a query, a key or both: who may see whom?")
    _check_counts(query=query, key=key, head=head)
    return Allow(site, query, key, head)


def temperature(site: str, value: float, *, head: int | None = None) -> Edit:
    """Give the softmax another temperature; 0 puts all weight on the best key."""
    if not value >= 0:  # also true of NaN
        raise InputError(f"temperature is {value}; it must be 0 or larger.")
    _check_counts(head=head)
    return Temperature(site, float(value), head)


def unscaled(site: str) -> Edit:
    """Leave out the division by √d_k."""
    return Unscaled(site)


def set_scores(
    site: str,
    value: float | Tensor,
    *,
    query: int | None = None,
    key: int | None = None,
    head: int | None = None,
) -> Edit:
    """Put these scores in the place of the computed ones, before mask and softmax."""
    _check_counts(query=query, key=key, head=head)
    return SetScores(site, value, query, key, head)


def set_weights(
    site: str,
    value: float | Tensor,
    *,
    query: int | None = None,
    key: int | None = None,
    head: int | None = None,
) -> Edit:
    """Put these weights in the place of the computed ones, exactly: rows need not sum to 1."""
    _check_counts(query=query, key=key, head=head)
    return SetWeights(site, value, query, key, head)


def set_value(path: str, value: float | Tensor | Mask | Similarity | str | Change) -> Edit:
    """Put this in the place of any tapped value, named by its whole path.

    A function gets the value and returns the new one. A mask or a similarity has its name:
    "encoder.layers.0.self.allowed", "encoder.layers.0.self.similarity".
    """
    if "." not in path:
        raise InputError(
            f"{path!r} is not the path of a value: write the site and the value's name, such as "
            "'encoder.layers.0.self.query'."
        )
    return SetValue(path, value)


class Editor:
    """The listener that applies edits, and knows afterwards which of them met nothing."""

    changes = True

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.edits = tuple(edits)
        self._seen: dict[str, None] = {}
        self._met: set[int] = set()
        self._sizes = _Sizes()

    def wants(self, path: str) -> bool:
        site, _, name = split(path)
        return any(fnmatchcase(f"{site}.{name}", edit.path()) for edit in self.edits)

    def see(self, tapped: Tapped) -> Any:
        site, first, name = split(tapped.path)
        path = f"{site}.{name}"
        self._seen.setdefault(path)
        value = tapped.value
        if name in ("query", "key"):  # tapped first at every site
            self._sizes = self._sizes.after(name, value, first)
        for i, edit in enumerate(self.edits):
            if fnmatchcase(path, edit.path()):
                self._check_head(edit, site)
                sizes = (self._sizes.n_heads, self._sizes.n_query, self._sizes.n_key)
                place = Place(site, first, *sizes, stepwise="@" in tapped.path)
                before, value = value, edit.apply(value, place)
                # one query of a site that is computed query by query may be yet to come
                if value is not before or not place.stepwise or not hasattr(edit, "query"):
                    self._met.add(i)
        return value

    def finish(self) -> None:
        """Refuse edits that named a place nobody passed."""
        for i, edit in enumerate(self.edits):
            if i in self._met:
                continue
            if any(fnmatchcase(path, edit.path()) for path in self._seen):
                what = "key" if getattr(edit, "query", None) is None else "query"
                raise UnknownNameError(f"{edit!r} names a {what} that never came.")
            raise UnknownNameError(
                f"{edit!r} met nothing: no value {edit.path()!r} was computed; "
                f"{nearest(edit.path(), self._seen)}."
            )

    def _check_head(self, edit: Edit, site: str) -> None:
        head, n_heads = getattr(edit, "head", None), self._sizes.n_heads
        if head is not None and head >= n_heads:
            raise UnknownNameError(
                f"{site} has no head {head}; it has {n_heads}, 0 to {n_heads - 1}."
            )


class _Sizes(NamedTuple):
    """How large the site is at which values are seen now."""

    n_heads: int = 1
    n_query: int = 0
    n_key: int = 0

    def after(self, name: str, value: Tensor, first: int) -> "_Sizes":
        """The sizes once the site's queries or keys are known."""
        n_heads = value.size(-3) if value.dim() >= _WITH_HEADS else 1
        if name == "query":
            return _Sizes(n_heads, first + value.size(-2))
        return self._replace(n_heads=max(self.n_heads, n_heads), n_key=value.size(-2))


def _at_hand(edit: Forbid | SetTable, place: Place) -> bool:
    """Whether the query and key that are meant are among those of this step."""
    for what, position in (("query", edit.query), ("key", edit.key)):
        count = place.n_query if what == "query" else place.n_key
        if position is not None and position >= count:
            if place.stepwise:  # it may come in a later step
                return False
            raise UnknownNameError(f"{edit!r} names a {what} that is not there; there are {count}.")
    return edit.query is None or edit.query >= place.first


def _check_counts(**positions: int | None) -> None:
    for what, position in positions.items():
        if position is not None and position < 0:
            raise InputError(f"{what} is {position}; they are counted from 0.")


def _rows_at_hand(given: Tensor, value: Tensor, place: Place) -> Tensor:
    """Of values given for all queries, those of this step's."""
    if not place.stepwise or given.dim() < 2 or given.size(-2) == 1:
        return given
    return given[..., place.first : place.first + value.size(-2), :]


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"tensor{tuple(value.shape)}"
    return getattr(value, "__name__", "function") if callable(value) else repr(value)
