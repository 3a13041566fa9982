"""The base classes of edits: what they change, how they print, and their form as JSON.

The listener that applies edits to tapped values.

Activation patching: carry values of one run into another.

    other = model.trace("The animal didn't cross the street because it was too wide.")
    model.trace(text, edits=[regard.patch("encoder.layers.2.self.context", other, head=3)])

Vig et al. 2020; Meng et al. 2022. If the answer moves towards that of the other run, the value
carried what made the difference. As JSON, `source` is the request of the other run.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from math import inf, isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.attention.pattern import WeightsPattern
from regard.errors import InputError, UnknownNameError, nearest
from regard.tap import Tapped, split_path

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
    if isinstance(value, int | float):
        try:
            return not isinstance(value, bool) and isfinite(value)
        except OverflowError:  # an integer of hundreds of digits
            return False
    return value is None or isinstance(value, str | dict)


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


_BEFORE_WEIGHTS = (
    *("query", "key", "similarity", "scale", "temperature", "allowed"),
    *("compared", "scores", "masked"),
)


class Editor:
    """Apply edits to tapped values and refuse those that matched nothing."""

    changes = True

    def __init__(self, edits: Sequence[Edit], *, may_grow: bool = False) -> None:
        """Prepare the edits; `may_grow` says that any site may be continued by later steps."""
        self.edits = check_edits(edits)
        self.may_grow = may_grow
        self._seen: dict[str, None] = {}
        self._matched: set[int] = set()
        self._target = EditTarget()

    def wants(self, path: str) -> bool:
        site, _, name = split_path(path)
        return any(fnmatchcase(f"{site}.{name}", edit.value_path) for edit in self.edits)

    def names_any(self, values: Iterable[str]) -> bool:
        """Return True if an edit may change a value of one of these names, whatever its site."""
        names = [edit.value_path.rpartition(".")[2] for edit in self.edits]
        return any(fnmatchcase(value, name) for value in values for name in names)

    def see(self, tapped: Tapped) -> Any:
        site, first, name = split_path(tapped.path)
        path, value = f"{site}.{name}", tapped.value
        self._seen.setdefault(path)
        if name in ("query", "key"):  # tapped first at every site
            self._target = _measure(self._target, name, value, first)
        if name == "pattern" and isinstance(value, WeightsPattern):
            self._check_weights_only(site)
        steps = "@" in tapped.path
        grows = steps or self.may_grow
        target = replace(self._target, site=site, first=first, stepwise=steps, may_grow=grows)
        for i, edit in enumerate(self.edits):
            if fnmatchcase(path, edit.value_path):
                _check_head(edit, target)
                before, value = value, edit.apply(value, target)
                # a later step may compute the query that an edit of a stepwise site names
                if value is not before or not (target.may_grow and edit.waits):
                    self._matched.add(i)
        return value

    def _check_weights_only(self, site: str) -> None:
        """Refuse edits of what comes before weights that do not follow from it by a softmax."""
        for edit in self.edits:
            if any(fnmatchcase(f"{site}.{name}", edit.value_path) for name in _BEFORE_WEIGHTS):
                raise InputError(
                    f"{edit!r} cannot be applied at {site} because its weights are not the softmax "
                    "of its scores over the keys: use set_weights or ablate there."
                )

    def finish(self) -> None:
        """Refuse edits that matched nothing that was computed."""
        for i, edit in enumerate(self.edits):
            if i in self._matched:
                continue
            if any(fnmatchcase(path, edit.value_path) for path in self._seen):
                named = (x for x in ("position", "query") if getattr(edit, x, None) is not None)
                what = next(named, "key")
                raise UnknownNameError(f"{edit!r} names a {what} that does not exist.")
            raise UnknownNameError(
                f"{edit!r} matched nothing: no value {edit.value_path!r} was computed; "
                f"{nearest(edit.value_path, self._seen)}."
            )


def _measure(target: EditTarget, name: str, value: Tensor, first: int) -> EditTarget:
    n_heads = value.size(-3) if value.dim() >= AXES_WITH_HEADS else 1
    if name == "query":
        return EditTarget(n_heads=n_heads, n_query=first + value.size(-2), device=value.device)
    return replace(target, n_heads=max(target.n_heads, n_heads), n_key=value.size(-2))


def _check_head(edit: Edit, target: EditTarget) -> None:
    head, n = getattr(edit, "head", None), target.n_heads
    if head is not None and head >= n:
        raise UnknownNameError(f"{target.site} has no head {head}; it has {n}, 0 to {n - 1}.")


_TABLES = ("compared", "scores", "masked", "weights")
_VECTORS = ("query", "key", "value", "context")


@dataclass(frozen=True, repr=False, eq=False)
class Patch(Edit):
    """Replace a value by that of another run: of a head, at a position, or a row of weights.

    Args:
        path: whole path of the value, such as "encoder.layers.0.self.context" or ".residual",
            possibly with wildcards.
        source: the trace of the other run, or the request that names it, which a server runs.
        head: index of a head, for values of heads; all by default.
        position: a token of context, residual and other vectors; all by default, if both runs have
            as many.
        query: a row of scores or weights; all by default.
    """

    kind = "patch"
    waits = True
    path: str = field(metadata={"type": "string"})
    source: Any = field(metadata={"type": "object"})
    head: int | None = index_field("head")
    position: int | None = index_field("position")
    query: int | None = index_field("query")
    trace: Any = field(default=None, kw_only=True)
    """The trace of the other run, once a server has run the request in `source`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        site, _, name = self.path.rpartition(".")
        if not site:
            raise InputError(
                f"{self.path!r} is not the path of a value: give the site and the value's name, "
                "such as 'encoder.layers.0.self.context'."
            )
        table = name in _TABLES
        if (self.position if table else self.query) is not None:
            right, wrong = ("query", "position") if table else ("position", "query")
            raise InputError(f"{name} has no {wrong}: choose a row with {right}.")
        if self.head is not None and name not in (*_TABLES, *_VECTORS):
            raise InputError(f"{name} is one vector for all heads: leave out the head.")

    @property
    def value_path(self) -> str:
        return self.path

    def with_trace(self, trace: Any) -> "Patch":
        """Return the same patch with the trace of the run that `source` requests."""
        return replace(self, trace=trace)

    def apply(self, value: Any, target: EditTarget) -> Any:
        if not isinstance(value, Tensor):
            raise InputError(f"{self!r} names a value that is not made of numbers.")
        name = self.path.rpartition(".")[2]
        path = f"{target.site}.{name}"
        # all keys and values of earlier steps come with each step
        first = 0 if name in ("key", "value") else target.first
        given = self._given(path, target.site, name, value)
        row = self.query if name in _TABLES else self.position
        if row is None:
            rows, of_source = slice(None), slice(first, first + value.size(-2))
            if not target.stepwise:
                of_source = slice(None)
        else:
            if not _has_row(self, row, given, value, first, target):
                return value
            rows, of_source = slice(row - first, row - first + 1), slice(row, row + 1)
        head = slice(None) if self.head is None else slice(self.head, self.head + 1)
        place = (head, rows) if name in (*_TABLES, *_VECTORS) and value.dim() > 2 else (rows,)
        new = value.clone()
        old, given = new[..., *place, :], given[..., *place[:-1], of_source, :]
        given = _known_columns(given, old) if target.stepwise and name in _TABLES else given
        _check_shape(self, given, old)
        new[..., *place, :] = given.to(new)
        return new

    @cached_property
    def _values(self) -> dict[str, Tensor]:
        return {}

    def _given(self, path: str, site: str, name: str, value: Tensor) -> Tensor:
        """Return the value of the other run, without axes that this one does not have."""
        trace = self.source if self.trace is None else self.trace
        if isinstance(trace, Mapping):
            raise InputError(f"{self!r} names another run by a request: give its trace.")
        if path not in self._values:
            if name in _VECTORS[:3] and site in trace.sites:
                self._values[path] = getattr(trace.sites[site], name)
            elif name in (*_TABLES, "context") and site in trace.sites:
                self._values[path] = trace.sites[site].all_batches(name)
            elif path in trace.values:
                self._values[path] = trace.values[path]
            else:
                known = [*trace.values, *(f"{one}.{x}" for one in trace for x in _VECTORS)]
                raise UnknownNameError(
                    f"the other run has no value {path!r}; {nearest(path, known)}."
                )
        given = self._values[path]
        if given.dim() != value.dim() or (given.dim() > 2 and len(given) not in (1, len(value))):
            raise InputError(
                f"{path} has shape {tuple(given.shape)} in the other run and {tuple(value.shape)} "
                "in this one: run both on one text."
            )
        return given


def _has_row(
    patch: Patch, row: int, given: Tensor, value: Tensor, first: int, target: EditTarget
) -> bool:
    """Return False if another step computes a row; refuse a row that one run does not have."""
    if row >= given.size(-2):
        raise UnknownNameError(
            f"{patch!r} names position {row}, but {target.site} has only {given.size(-2)} in the "
            "other run."
        )
    if first <= row < first + value.size(-2):
        return True
    if not target.stepwise:
        raise UnknownNameError(
            f"{patch!r} names position {row}, but {target.site} has only {value.size(-2)}."
        )
    return False


def _known_columns(given: Tensor, old: Tensor) -> Tensor:
    """Leave out keys that a step does not know yet, if no weight is on them."""
    known, later = given[..., : old.size(-1)], given[..., old.size(-1) :]
    return known if later.numel() and not later.any() else given


def _check_shape(patch: Patch, given: Tensor, old: Tensor) -> None:
    if given.shape[1:] != old.shape[1:]:
        raise InputError(
            f"{patch!r} gives values of shape {tuple(given.shape)}, but those to replace have "
            f"shape {tuple(old.shape)}: choose one position, or runs of the same length."
        )
