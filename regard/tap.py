"""Named inner values: shown, recorded, changed.

Model code passes every inner value worth seeing through `tap`. With nobody listening that is free.
A listener may keep the value or return another one in its place, so recording and intervening are
one mechanism, and model code knows about neither.
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
    """Where it comes from: the site's path and the value's name, joined by a dot."""
    value: Any
    axes: str
    """The names of the value's last axes, separated by spaces; leading axes have no name."""
    changed: bool
    """Whether a listener before this one has put another value in its place."""


class Listener(Protocol):
    """Somebody who looks at inner values."""

    changes: bool
    """Whether it may put other values in; those that do come before those that only look."""

    def wants(self, path: str) -> bool:
        """Whether this value must be computed even where a faster kernel would not compute it."""
        ...

    def see(self, tapped: Tapped) -> Any:
        """The value to go on with: `tapped.value`, or another in its place."""
        ...


# A tuple, so that a thread or task that inherits it cannot change it for the others.
_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listeners", default=())


@contextmanager
def listen(*listeners: Listener) -> Iterator[None]:
    """Let `listeners` see what is tapped inside the block, beside those that listen already.

    Whoever only looks sees the value that the computation goes on with, however blocks are nested.
    """
    everybody = sorted(_LISTENERS.get() + listeners, key=lambda one: not one.changes)
    token = _LISTENERS.set(tuple(everybody))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


def tap(name: str, value: Any, axes: str) -> Any:
    """The value itself, or what a listener puts in its place.

    Compiled and exported graphs have no taps: look at the plain module instead.
    """
    if torch.compiler.is_compiling():  # a ContextVar cannot be traced; asking here keeps one graph
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
    """The name of a place whose first query stands at this position; `split` reads it."""
    return f"{place}@{first}" if first else place


def split_path(path: str) -> tuple[str, int, str]:
    """The site, the position of its first query and the value's name of a tapped path.

    A site whose queries come one after another (an RNN, a decoder with a cache) is written
    `site@first`: "decoder.cross@3.query" is the query of step 3 at "decoder.cross".
    """
    place, _, name = path.rpartition(".")
    site, _, first = place.partition("@")
    return site, int(first or 0), name


def listening() -> bool:
    """Whether anybody listens at all."""
    return not torch.compiler.is_compiling() and bool(_LISTENERS.get())


def wanted(*paths: str) -> bool:
    """Whether somebody asks for one of these values, so that a kernel must compute it."""
    return listening() and any(one.wants(path) for one in _LISTENERS.get() for path in paths)
