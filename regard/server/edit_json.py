"""Edits as JSON and back: one table says which fields each kind has and what it makes.

    {"kind": "forbid", "site": "encoder.layers.0.self", "head": 1, "query": 2, "key": 4}

Positions and heads are counted from 0; one that is left out means all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf
from typing import Any

from torch import Tensor

from regard.errors import InputError, UnknownNameError, nearest
from regard.trace.edits import (
    Ablate,
    Allow,
    Edit,
    Forbid,
    SetScores,
    SetWeights,
    Temperature,
    Unscaled,
    ablate,
    allow,
    forbid,
    set_scores,
    set_weights,
    temperature,
    unscaled,
)

SIDES = ("source", "target")


@dataclass(frozen=True)
class PutToken:
    """Another token stands at a position of the input; it is put in before the model runs."""

    side: str
    position: int
    token: str | int
    """A vocabulary entry, or its id."""


@dataclass(frozen=True)
class Kind:
    """One kind of edit: what makes it, what it is, and which fields it has besides its site."""

    make: Callable[..., Edit]
    made: type[Edit]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields besides kind and site."""
        return self.required + self.optional


_CELL = ("head", "query", "key")
KINDS = {
    "temperature": Kind(temperature, Temperature, ("value",), ("head",)),
    "unscaled": Kind(unscaled, Unscaled),
    "ablate": Kind(ablate, Ablate, (), ("head", "to")),
    "forbid": Kind(forbid, Forbid, (), _CELL),
    "allow": Kind(allow, Allow, (), _CELL),
    "score": Kind(set_scores, SetScores, ("value",), _CELL),
    "weight": Kind(set_weights, SetWeights, ("value",), _CELL),
}
TOKEN_FIELDS = ("side", "position", "token")
_NAMES = {kind.made: name for name, kind in KINDS.items()}
_COUNTS = ("head", "query", "key", "position")


def read_edits(given: Sequence[Any]) -> tuple[list[Edit], list[PutToken]]:
    """What a list of JSON objects means: changes inside the model, and other tokens put in."""
    made = [read_edit(one) for one in given]
    inner = [one for one in made if isinstance(one, Edit)]
    return inner, [one for one in made if isinstance(one, PutToken)]


def read_edit(given: Any) -> Edit | PutToken:
    """What one JSON object means."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"an edit is a JSON object such as {{'kind': 'forbid', …}}, not {given!r}."
        )
    name = given.get("kind")
    if name == "token":
        return _read_token(given)
    if name not in KINDS:
        raise UnknownNameError(
            f"there is no kind of edit {name!r}; {nearest(str(name), [*KINDS, 'token'])}."
        )
    kind = KINDS[name]
    site = given.get("site")
    if not isinstance(site, str) or not site:
        raise InputError(f"the edit {name!r} needs a site, such as 'encoder.layers.0.self'.")
    parts = _read_fields(given, name, kind.required, ("site", *kind.fields))
    value = [parts.pop("value")] if "value" in parts else []
    parts.pop("site")
    return kind.make(site, *value, **parts)


def write_edit(edit: Edit | PutToken) -> dict[str, Any]:
    """The JSON object that `read_edit` makes this edit of."""
    if isinstance(edit, PutToken):
        return {"kind": "token", **{name: getattr(edit, name) for name in TOKEN_FIELDS}}
    name = _NAMES.get(type(edit))
    if name is None:
        raise InputError(f"{edit!r} cannot be written as JSON: it holds more than numbers.")
    written: dict[str, Any] = {"kind": name, "site": edit.site}
    for field in KINDS[name].fields:
        value = getattr(edit, field)
        if isinstance(value, Tensor):
            raise InputError(f"{edit!r} cannot be written as JSON: give one number, no table.")
        if value is not None:
            written[field] = "inf" if isinstance(value, float) and isinf(value) else value
    return written


def _read_fields(
    given: Mapping[str, Any], name: str, required: Sequence[str], known: Sequence[str]
) -> dict[str, Any]:
    """The fields that are given, each checked."""
    for field in given:
        if field not in (*known, "kind"):
            raise UnknownNameError(
                f"the edit {name!r} has no field {field!r}; {nearest(str(field), known)}."
            )
    for field in required:
        if given.get(field) is None:
            raise InputError(f"the edit {name!r} needs the field {field!r}.")
    parts = {field: given[field] for field in known if given.get(field) is not None}
    return {field: _read_field(name, field, value) for field, value in parts.items()}


def _read_field(name: str, field: str, value: Any) -> Any:
    if field in _COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{field} of the edit {name!r} is {value!r}; it counts from 0.")
    elif field == "value":
        return _read_number(name, value)
    return value


def _read_number(name: str, value: Any) -> float:
    if value == "inf" and name == "temperature":
        return inf
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isfinite(float(value)):
        raise InputError(f"value of the edit {name!r} is {value!r}; it must be a number.")
    return float(value)


def _read_token(given: Mapping[str, Any]) -> PutToken:
    parts = _read_fields(given, "token", TOKEN_FIELDS, TOKEN_FIELDS)
    if parts["side"] not in SIDES:
        raise InputError(f"the side of a token is 'source' or 'target', not {parts['side']!r}.")
    token = parts["token"]
    if not isinstance(token, str | int) or isinstance(token, bool):
        raise InputError(f"a token is a vocabulary entry or an id, not {token!r}.")
    return PutToken(**parts)
