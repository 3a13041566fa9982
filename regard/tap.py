"""Named inner values that listeners can record or replace.

Model code passes every inner value of interest through `tap`, which is free without a listener. A
listener may keep the value or return another one in its place, so recording and intervening are one
mechanism, and model code knows about neither.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True, slots=True)
class Tapped:
    """One inner value on its way through `tap`."""

    path: str
    """The site's path and the value's name, joined by a dot."""
    value: Any
    axes: str
    """The names of the value's last axes, separated by spaces; leading axes have no name."""
    changed: bool
    """True if an earlier listener has replaced the value."""


class Listener(Protocol):
    """An object that receives inner values."""

    changes: bool
    """True if it may replace values; such listeners run before those that only record."""

    def wants(self, path: str) -> bool:
        """Return True if this value must be computed even if a faster kernel would skip it."""
        ...

    def see(self, tapped: Tapped) -> Any:
        """Return the value to continue with: `tapped.value`, or another in its place."""
        ...


# A tuple, so that a thread or task that inherits it cannot change it for the others.
_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listeners", default=())
# The modules that have used each path in the outermost block, in the order of their first calls.
_OWNERS: ContextVar[dict[str, list[Any]] | None] = ContextVar("regard_owners", default=None)
# True while regard computes attention whose steps are tapped.
_ATTENDING: ContextVar[bool] = ContextVar("regard_attending", default=False)


@contextmanager
def listen(*listeners: Listener) -> Iterator[None]:
    """Let `listeners` receive what is tapped inside the block, in addition to current listeners.

    A listener that only records gets the value that the computation continues with, however blocks
    are nested.
    """
    ordered = sorted(_LISTENERS.get() + listeners, key=lambda listener: not listener.changes)
    _LISTENERS.set(tuple(ordered))
    if _OWNERS.get() is None:
        _OWNERS.set({})
    try:
        yield
    finally:  # generators that suspend inside their blocks may leave them in any order
        left = list(_LISTENERS.get())
        for one in listeners:
            if one in left:
                left.remove(one)
        _LISTENERS.set(tuple(left))
        if not left:
            _OWNERS.set(None)


@contextmanager
def listen_only(*listeners: Listener) -> Iterator[None]:
    """Let only `listeners` receive what is tapped inside the block."""
    token, owners = _LISTENERS.set(listeners), _OWNERS.set({})
    try:
        yield
    finally:
        _OWNERS.reset(owners)
        _LISTENERS.reset(token)


@contextmanager
def attending() -> Iterator[None]:
    """Mark the kernels called inside the block as part of attention that is tapped already."""
    token = _ATTENDING.set(True)
    try:
        yield
    finally:
        _ATTENDING.reset(token)


def is_attending() -> bool:
    """Return True inside `attending`."""
    return _ATTENDING.get()


def numbered(path: str, index: int) -> str:
    """Return the path of the site with this index among those that share a path."""
    return f"{path}#{index}" if index else path


def path_of(path: str, owner: Any) -> str:
    """Return the path of a module's site: numbered if other modules have used the same path."""
    known = None if torch.compiler.is_compiling() else _OWNERS.get()
    if known is None:
        return path
    owners = known.setdefault(path, [])
    index = next((i for i, one in enumerate(owners) if one is owner), len(owners))
    if index == len(owners):
        owners.append(owner)
    return numbered(path, index)


def tap(name: str, value: Any, axes: str) -> Any:
    """Return the value, or what a listener puts in its place.

    Compiled and exported graphs have no taps: use the plain module to record values.
    """
    if torch.compiler.is_compiling():  # a ContextVar cannot be traced and would break the graph
        return value
    listeners = _LISTENERS.get()
    if not listeners:
        return value
    changed = False
    for listener in listeners:
        seen = listener.see(Tapped(name, value, axes, changed))
        changed = changed or seen is not value
        value = seen
    return value


def path_at(place: str, first: int) -> str:
    """Return the path of values that start at position `first`; `split_path` reads it."""
    return f"{place}@{first}" if first else place


def split_path(path: str) -> tuple[str, int, str]:
    """Split a tapped path into its site, the position of its first query and the value's name.

    A site that is read step by step (an RNN, a decoder with a cache) is written `site@first`:
    "decoder.cross@3.query" is the query of step 3 at "decoder.cross".
    """
    place, _, name = path.rpartition(".")
    site, _, first = place.partition("@")
    return site, int(first or 0), name


def listeners() -> tuple[Listener, ...]:
    """Return the current listeners."""
    return _LISTENERS.get()


def listening() -> bool:
    """Return True if there is any listener."""
    return not torch.compiler.is_compiling() and bool(_LISTENERS.get())


def wanted(*paths: str) -> bool:
    """Return True if a listener wants one of these values, so that a kernel must compute it."""
    return listening() and any(one.wants(path) for one in _LISTENERS.get() for path in paths)
