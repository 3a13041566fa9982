"""The base classes of edits: what they change, how they print, and their form as JSON."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from math import inf, isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.errors import InputError

AXES_WITH_HEADS = 3  # tensors with at least this many axes have a head axis


@dataclass(frozen=True)
class EditTarget:
    """The site an edit is applied to, as far as it has been computed."""

    site: str = ""
    first: int = 0  # position of the first query of this step
    n_heads: int = 1
    n_query: int = 0  # number of queries so far, including those of earlier steps
    n_key: int = 0
    stepwise: bool = False  # True if it is computed in steps
    may_grow: bool = False  # True if later steps may compute more queries
    device: torch.device | None = None


def index_field(axis: str) -> Any:
    """Return a field for a position or head on an axis; None by default."""
    schema = {"type": "integer", "minimum": 0, "x-axis": axis}
    return field(default=None, kw_only=True, metadata=schema)


@dataclass(frozen=True, repr=False, eq=False)
class JsonFields:
    """Dataclass fields with a JSON schema as metadata: checked, printed and written as JSON."""

    kind: ClassVar[str] = ""  # name in JSON; empty if the edit cannot be written as JSON

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
        for one in json_fields(type(self)) if self.kind else fields(self):
            value = getattr(self, one.name)
            if one.metadata.get("x-infinity") and value == inf:
                value = "inf"
            if not self.kind or not is_json(value):
                raise InputError(f"{self!r} cannot be written as JSON: use finite numbers only.")
            if value is not None:
                written[one.name] = value
        return written


def is_json(value: Any) -> bool:
    """Return True for finite numbers, texts, objects and None."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return number or value is None or isinstance(value, str | dict)


def json_fields(kind: type[JsonFields]) -> list[Field[Any]]:
    """Return the fields of an edit's JSON form: those with a schema."""
    return [one for one in fields(kind) if one.metadata]


@dataclass(frozen=True, repr=False, eq=False)
class Edit(JsonFields, ABC):
    """One change: every tapped value whose path matches is replaced by another."""

    waits: ClassVar[bool] = False
    """True if a later step may compute the positions that the edit names."""

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
        named = [(one, value) for one, value in named if one.metadata]
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


def check_edits(edits: Any) -> tuple[Edit, ...]:
    """Return a list of edits as a tuple; refuse everything else."""
    several = isinstance(edits, Iterable) and not isinstance(edits, Edit)
    found: tuple[Any, ...] = tuple(edits) if several else (None,)
    wrong = [one for one in found if not isinstance(one, Edit)]
    if wrong:
        given = wrong[0] if several else edits
        raise InputError(f"edits must be a list of edits, and {given!r} was given.")
    return found
