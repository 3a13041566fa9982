"""Edits: changes to what a model computes, as data that can be applied, undone and shared.

An edit names sites by path, possibly with wildcards ("encoder.layers.*.self"), and one tapped value
there; an `Editor` applies it. Positions and heads count from 0, and None means all. As JSON:

    {"kind": "forbid", "site": "encoder.layers.0.self", "head": 1, "query": 2, "key": 4}
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from inspect import getdoc
from math import inf
from typing import Any

import torch
from torch import Tensor

from regard.attention.mask import Connection, Mask
from regard.attention.similarity import Similarity
from regard.errors import InputError, UnknownNameError, nearest
from regard.trace.edit import (
    AXES_WITH_HEADS,
    Edit,
    EditTarget,
    JsonFields,
    Patch,
    SiteEdit,
    index_field,
    is_json,
    json_fields,
)


@dataclass(frozen=True, repr=False, eq=False)
class Ablate(SiteEdit):
    """Switch a head off: replace its output by zero, or by its mean over all queries."""

    kind, value_name = "ablate", "context"
    head: int | None = index_field("head")
    to: str = field(default="zero", kw_only=True, metadata={"enum": ["zero", "mean"]})

    def apply(self, value: Tensor, target: EditTarget) -> Tensor:
        mean = self.to == "mean"
        if mean and target.stepwise:
            raise InputError(
                f"{target.site} is computed query by query, so the mean over all queries is not "
                "known yet: ablate to='zero'."
            )
        new = value.mean(-2, keepdim=True).expand_as(value) if mean else torch.zeros_like(value)
        if self.head is None or value.dim() < AXES_WITH_HEADS:
            return new
        off = torch.arange(target.n_heads, device=value.device) == self.head
        return torch.where(off[:, None, None], new, value)


@dataclass(frozen=True, repr=False, eq=False)
class Temperature(SiteEdit):
    """Set the temperature of the softmax; 0 puts all weight on the best key."""

    kind, value_name = "temperature", "temperature"
    value: float = field(metadata={"type": "number", "minimum": 0, "x-infinity": True})
    head: int | None = index_field("head")

    def apply(self, value: float | Tensor, target: EditTarget) -> float | Tensor:
        if self.head is None or target.n_heads == 1:
            return self.value
        heads = torch.ones(target.n_heads, 1, 1, device=target.device) * value
        # a tensor, because a number that is too large for float32 would be refused
        heads[..., self.head, :, :] = torch.tensor(self.value, dtype=heads.dtype)
        return heads


@dataclass(frozen=True, repr=False, eq=False)
class Unscaled(SiteEdit):
    """Leave out the division of scores by √d_k."""

    kind, value_name = "unscaled", "scale"

    def apply(self, value: float, target: EditTarget) -> float:
        return 1.0


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CellEdit(SiteEdit):
    """An edit of some cells of a site's query × key tables."""

    waits = True
    query: int | None = index_field("query")
    key: int | None = index_field("key")
    head: int | None = index_field("head")

    def is_computed(self, target: EditTarget) -> bool:
        """Return True if this step computes the query and has the key."""
        for what, count in (("query", target.n_query), ("key", target.n_key)):
            position = getattr(self, what)
            if position is not None and position >= count:
                if target.may_grow:  # a later step may compute it
                    return False
                raise UnknownNameError(
                    f"{self!r} names {what} {position}, but {target.site} has only {count}."
                )
        return self.query is None or self.query >= target.first

    def row(self, target: EditTarget) -> int | None:
        return None if self.query is None else self.query - target.first


@dataclass(frozen=True, repr=False, eq=False)
class Forbid(CellEdit):
    """Hide a key from a query; without a query, from all of them."""

    kind, value_name = "forbid", "allowed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.query is None and self.key is None:
            raise InputError(f"{self.kind} needs a query, a key or both.")

    def apply(self, value: Mask, target: EditTarget) -> Mask:
        if not self.is_computed(target):
            return value
        cells = Connection(self.row(target), self.key, self.head)
        return value | cells if isinstance(self, Allow) else value & ~cells


@dataclass(frozen=True, repr=False, eq=False)
class Allow(Forbid):
    """Show a query a key that the mask hides, such as a later token."""

    kind = "allow"


@dataclass(frozen=True, repr=False, eq=False)
class SetScores(CellEdit):
    """Replace scores before mask and softmax."""

    kind, value_name = "score", "scores"
    value: float | Tensor = field(metadata={"type": "number"})

    def apply(self, value: Tensor, target: EditTarget) -> Tensor:
        if not self.is_computed(target):
            return value
        indices = (self.head, self.row(target), self.key)
        cell = [slice(None) if one is None else one for one in indices]
        cell = (..., *cell[value.dim() < AXES_WITH_HEADS :])
        new, given = value.clone(), _as_type_of(value, self.value)
        if self.query is None and self.key is None:
            given = _rows_of_step(given, value, target)
        try:
            new[cell] = given
        except RuntimeError:
            raise _wrong_shape(self, given, new[cell]) from None
        return new


@dataclass(frozen=True, repr=False, eq=False)
class SetWeights(SetScores):
    """Replace weights by exactly these; rows need not sum to 1."""

    kind, value_name = "weight", "weights"


@dataclass(frozen=True, repr=False, eq=False)
class SetValue(Edit):
    """Replace any tapped value, named by its whole path.

    A function gets the value and returns the new one. Masks and similarities are values, too:
    "encoder.layers.0.self.allowed", "encoder.layers.0.self.similarity".
    """

    path: str
    value: float | Tensor | Mask | Similarity | str | Callable[[Any], Any]

    def __post_init__(self) -> None:
        if "." not in self.path:
            raise InputError(
                f"{self.path!r} is not the path of a value: give the site and the value's name, "
                "such as 'encoder.layers.0.self.query'."
            )

    @property
    def value_path(self) -> str:
        return self.path

    def apply(self, value: Any, target: EditTarget) -> Any:
        if callable(self.value) and not isinstance(self.value, Similarity):
            return self.value(value)
        if not isinstance(value, Tensor):
            return self.value
        given = _rows_of_step(_as_type_of(value, self.value), value, target)
        try:
            return given.expand_as(value)
        except RuntimeError:
            raise _wrong_shape(self, given, value) from None


def _as_type_of(value: Tensor, given: Any) -> Tensor:
    if isinstance(given, int | float):
        try:
            return value.new_full((), given)
        except (RuntimeError, OverflowError):
            raise InputError(f"{given!r} is too large for values of {value.dtype}.") from None
    return torch.as_tensor(given, dtype=value.dtype, device=value.device)


def _rows_of_step(given: Tensor, value: Tensor, target: EditTarget) -> Tensor:
    if not target.stepwise or given.dim() < 2 or given.size(-2) == 1:
        return given
    return given[..., target.first : target.first + value.size(-2), :]


def _wrong_shape(edit: Edit, given: Tensor, replaced: Tensor) -> InputError:
    return InputError(
        f"{edit!r} gives values of shape {tuple(given.shape)}, but those to replace have shape "
        f"{tuple(replaced.shape)}."
    )


# The names that users call: regard.ablate("encoder.layers.0.self", head=1).
ablate, temperature, unscaled = Ablate, Temperature, Unscaled
forbid, allow = Forbid, Allow
set_scores, set_weights, set_value = SetScores, SetWeights, SetValue
patch = Patch


@dataclass(frozen=True)
class SetToken(JsonFields):
    """Replace a token of the input, before the model runs."""

    kind = "token"
    side: str = field(metadata={"enum": ["source", "target"]})
    position: int = field(metadata={"type": "integer", "minimum": 0, "x-axis": "position"})
    token: str | int = field(metadata={"type": ["string", "integer"]})
    """An entry of the vocabulary, or its id."""


KINDS: dict[str, type[Edit] | type[SetToken]] = {
    one.kind: one
    for one in (
        *(Temperature, Unscaled, Ablate, Forbid, Allow, SetScores, SetWeights, Patch, SetToken),
    )
}


def edit_schema() -> dict[str, Any]:
    """Return the JSON schema of edits; "x-axis" marks positions and heads."""
    return {"oneOf": [_kind_schema(kind) for kind in KINDS.values()]}


def _kind_schema(kind: type[Edit] | type[SetToken]) -> dict[str, Any]:
    properties: dict[str, Any] = {"kind": {"const": kind.kind}}
    for one in json_fields(kind):
        schema = {**one.metadata, **({} if one.default is MISSING else {"default": one.default})}
        if schema.pop("x-infinity", False):
            schema = {"anyOf": [schema, {"const": "inf"}]}
        properties[one.name] = schema
    return {
        "title": kind.kind,
        "description": (getdoc(kind) or "").split("\n")[0],
        "type": "object",
        "properties": properties,
        "required": ["kind", *(one.name for one in json_fields(kind) if one.default is MISSING)],
        "additionalProperties": False,
    }


def edit_from_dict(given: Any) -> Edit | SetToken:
    """Return the edit that a JSON object describes."""
    if not isinstance(given, Mapping):
        raise InputError(f"an edit must be a JSON object with a kind, not {given!r}.")
    title = given.get("kind")
    kind = KINDS.get(str(title))
    if kind is None:
        raise UnknownNameError(f"unknown edit {title!r}; {nearest(str(title), KINDS)}.")
    known = {one.name: one for one in json_fields(kind)}
    for name in given:
        if name not in (*known, "kind"):
            raise UnknownNameError(
                f"the edit {title!r} has no field {name!r}; {nearest(str(name), known)}."
            )
    read = {}
    for name, one in known.items():
        if given.get(name) is not None:
            what = f"{name} of the edit {title!r}"
            read[name] = _field_from_json(what, given[name], one.metadata)
        elif one.default is MISSING:
            raise InputError(f"the edit {title!r} needs the field {name!r}.")
    return kind(**read)


def _field_from_json(what: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if "type" not in schema:  # a choice, which the edit itself checks
        return value if isinstance(value, str) else repr(value)
    if value == "inf" and schema.get("x-infinity"):
        return inf
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types = {"integer": int, "number": (int, float), "string": str, "object": dict}
    fits = any(isinstance(value, types[name]) for name in names)
    if not fits or value == "" or not is_json(value):
        raise InputError(f"{what} is {value!r}; its type must be {' or '.join(names)}.")
    return float(value) if names == ["number"] else value
