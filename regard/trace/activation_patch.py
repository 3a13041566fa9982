"""Activation patching: carry values of one run into another.

    other = model.trace("The animal didn't cross the street because it was too wide.")
    model.trace(text, edits=[regard.patch("encoder.layers.2.self.context", other, head=3)])

Vig et al. 2020; Meng et al. 2022. If the answer moves towards that of the other run, the value
carried what made the difference. As JSON, `source` is the request of the other run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from regard.errors import InputError, UnknownNameError, nearest
from regard.trace.edit import Edit, EditTarget, index_field

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
