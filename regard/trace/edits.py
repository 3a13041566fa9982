"""Edits: changes to what a model computes, as data that can be applied, undone and shared.

An edit names sites by path, possibly with wildcards ("encoder.layers.*.self"), and one tapped value
there; an `Editor` applies it. Positions and heads count from 0, and None means all. As JSON:

    {"kind": "forbid", "site": "encoder.layers.0.self", "head": 1, "query": 2, "key": 4}
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from inspect import getdoc
from math import inf, isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attention.mask import Connection, Mask
from regard.attention.similarity import Similarity
from regard.errors import InputError, UnknownNameError, nearest

AXES_WITH_HEADS = 3  # tensors with at least this many axes have a head axis


@dataclass(frozen=True)
class EditTarget:
    """The site an edit is applied to, as far as it has been computed."""

    site: str = ""
    first: int = 0
    """Position of the first query of this step."""
    n_heads: int = 1
    n_query: int = 0
    """Number of queries so far, including those of earlier steps."""
    n_key: int = 0
    stepwise: bool = False
    """True if later steps may compute more queries."""
    device: torch.device | None = None


def _index(axis: str) -> Any:
    schema = {"type": "integer", "minimum": 0, "x-axis": axis}
    return field(default=None, kw_only=True, metadata=schema)


@dataclass(frozen=True, repr=False, eq=False)
class _JsonFields:
    """Dataclass fields with a JSON schema as metadata: checked, printed and written as JSON."""

    kind: ClassVar[str] = ""
    """Name in JSON; empty if the edit cannot be written as JSON."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, schema = getattr(self, one.name), one.metadata
            if value is None or isinstance(value, Tensor):
                continue
            what = f"{one.name} of {type(self).__name__}"
            if value not in schema.get("enum", (value,)):
                known = " or ".join(map(repr, schema["enum"]))
                raise InputError(f"{what} is {value!r}; it must be {known}.")
            if "minimum" in schema and not value >= schema["minimum"]:  # also true of NaN
                raise InputError(f"{what} is {value}; it must be {schema['minimum']} or larger.")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `edit_from_dict` reads."""
        written: dict[str, Any] = {"kind": self.kind}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.metadata.get("x-infinity") and value == inf:
                value = "inf"
            if not self.kind or not _is_json(value):
                raise InputError(f"{self!r} cannot be written as JSON: use finite numbers only.")
            if value is not None:
                written[one.name] = value
        return written


def _is_json(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return number or value is None or isinstance(value, str)


@dataclass(frozen=True, repr=False, eq=False)
class Edit(_JsonFields, ABC):
    """One change: every tapped value whose path matches is replaced by another."""

    @property
    @abstractmethod
    def value_path(self) -> str:
        """Path of the values to change, possibly with wildcards."""

    @abstractmethod
    def apply(self, value: Any, target: EditTarget) -> Any:
        """Return the value to use instead of this one."""

    def __repr__(self) -> str:
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)[1:]
        values = [(one, getattr(self, one.name)) for one in fields(self)]
        parts = [_short_repr(value) for one, value in values if not one.kw_only]
        named = [(one, value) for one, value in values if one.kw_only and value != one.default]
        parts += [f"{one.name}={value!r}" for one, value in named]
        return f"{name}({', '.join(parts)})"


def _short_repr(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"<tensor {'×'.join(map(str, value.shape))}>"
    return getattr(value, "__name__", "function") if callable(value) else repr(value)


@dataclass(frozen=True, repr=False, eq=False)
class SiteEdit(Edit):
    """An edit of one named value of attention sites."""

    value_name: ClassVar[str] = ""
    site: str = field(metadata={"type": "string"})

    @property
    def value_path(self) -> str:
        return f"{self.site}.{self.value_name}"


@dataclass(frozen=True, repr=False, eq=False)
class Ablate(SiteEdit):
    """Switch a head off: replace its output by zero, or by its mean over all queries."""

    kind, value_name = "ablate", "context"
    head: int | None = _index("head")
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
    head: int | None = _index("head")

    def apply(self, value: float | Tensor, target: EditTarget) -> float | Tensor:
        if self.head is None or target.n_heads == 1:
            return self.value
        heads = torch.ones(target.n_heads, 1, 1, device=target.device) * value
        heads[..., self.head, :, :] = self.value
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

    query: int | None = _index("query")
    key: int | None = _index("key")
    head: int | None = _index("head")

    def is_computed(self, target: EditTarget) -> bool:
        """Return True if this step computes the query and has the key."""
        for what, count in (("query", target.n_query), ("key", target.n_key)):
            position = getattr(self, what)
            if position is not None and position >= count:
                if target.stepwise:  # a later step may compute it
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
        return value.new_full((), given)
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


@dataclass(frozen=True)
class SetToken(_JsonFields):
    """Replace a token of the input, before the model runs."""

    kind = "token"
    side: str = field(metadata={"enum": ["source", "target"]})
    position: int = field(metadata={"type": "integer", "minimum": 0, "x-axis": "position"})
    token: str | int = field(metadata={"type": ["string", "integer"]})
    """An entry of the vocabulary, or its id."""


KINDS: dict[str, type[Edit] | type[SetToken]] = {
    one.kind: one
    for one in (Temperature, Unscaled, Ablate, Forbid, Allow, SetScores, SetWeights, SetToken)
}


def edit_schema() -> dict[str, Any]:
    """Return the JSON schema of edits; "x-axis" marks positions and heads."""
    return {"oneOf": [_kind_schema(kind) for kind in KINDS.values()]}


def _kind_schema(kind: type[Edit] | type[SetToken]) -> dict[str, Any]:
    properties: dict[str, Any] = {"kind": {"const": kind.kind}}
    for one in fields(kind):
        schema = {**one.metadata, **({} if one.default is MISSING else {"default": one.default})}
        if schema.pop("x-infinity", False):
            schema = {"anyOf": [schema, {"const": "inf"}]}
        properties[one.name] = schema
    return {
        "title": kind.kind,
        "description": (getdoc(kind) or "").split("\n")[0],
        "type": "object",
        "properties": properties,
        "required": ["kind", *(one.name for one in fields(kind) if one.default is MISSING)],
        "additionalProperties": False,
    }


def edit_from_dict(given: Any) -> Edit | SetToken:
    """Return the edit that a JSON object describes."""
    if not isinstance(given, Mapping):
        raise InputError(f"an edit must be a JSON object with a kind, not {given!r}.")
    title = given.get("kind")
    kind = KINDS.get(str(title))
    if kind is None:
        raise UnknownNameError(f"there is no edit {title!r}; {nearest(str(title), KINDS)}.")
    known = {one.name: one for one in fields(kind)}
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
        return value
    if value == "inf" and schema.get("x-infinity"):
        return inf
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types = {"integer": int, "number": (int, float), "string": str}
    fits = any(isinstance(value, types[name]) for name in names)
    if not fits or value == "" or not _is_json(value):
        raise InputError(f"{what} is {value!r}; its type must be {' or '.join(names)}.")
    return float(value) if names == ["number"] else value
