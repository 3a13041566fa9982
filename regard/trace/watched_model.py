"""A model that is watched as it is: the paths of its parts, and the names of its sites.

A site is named after the part of the model whose method is running, which the call stack tells, so
that nothing is attached to the model.
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.tap import Tapped, numbered, path_at, split_path, tap
from regard.trace.edit import Editor
from regard.trace.notes import Softmax
from regard.trace.recorder import Recorder
from regard.trace.stream_graph import SiteCall
from regard.trace.trace import CallFacts, Trace

ROOT = "attention"
"""The path of a site that the watched model itself computes, not one of its parts."""
_PLAIN = frozenset((bool, int, float, str, type(None), torch.dtype, torch.Size))
COMPILED = (
    "a compiled function was called, and compiled code cannot be watched: call the function "
    'without torch.compile, or set torch.compiler.set_stance("force_eager") around the block.'
)
WATCHES: ContextVar[tuple["Watch", ...]] = ContextVar("regard_watches", default=())
"""The blocks with a model that this thread or task is in, the innermost last."""


@dataclass
class _SiteState:
    """A site whose queries may be computed in several calls, as far as it is known."""

    n_query: int
    key: Tensor
    forward: FrameType | None
    """The call of the model that has computed it last."""


class Watch:
    """One block with a model: the paths of its parts, and the sites computed so far."""

    def __init__(self, model: Any, trace: Trace, recorder: Recorder | None = None) -> None:
        self.trace = trace
        self.recorder = recorder or Recorder()
        self.model = model
        self.parts = _parts(model)
        function = model.func if isinstance(model, functools.partial) else model
        self._code = getattr(function, "__code__", None)
        self._forward: FrameType | None = None
        self._counts: dict[str, int] = {}
        self._states: dict[str, _SiteState] = {}
        self._step = 0
        """The position of the first query of the current step with a cache."""
        self.site: str | None = None
        """The site that is being computed, with the position of its first query."""
        self.muted = False
        """True while something outside the model is computed."""
        self.called = False
        """True once a part of the model has called a function of torch."""
        self.softmaxes: list[Softmax] = []
        self.entered: SiteCall | None = None
        """The call of attention that the current function is."""
        self.calls: list[SiteCall] = []
        self.stream_editor: Any = None
        """Replaces values of residual streams, if an edit may name one."""

    def locate(self, frame: FrameType | None) -> tuple[str | None, FrameType | None]:
        """Return the part whose method is running, and the outermost call of the model.

        The part is None outside the model.
        """
        path = outermost = None
        while frame is not None:
            code = frame.f_code
            if code is self._code:
                path, outermost = "" if path is None else path, frame
            elif code.co_varnames[:1] == ("self",):
                found = self.parts.get(id(frame.f_locals.get("self")))
                if found is not None:
                    path = found if path is None else path
                    if code.co_name in ("_call_impl", "forward", "__call__"):
                        outermost = frame
            frame = frame.f_back
        return path, outermost

    def enter(
        self,
        path: str,
        forward: FrameType | None,
        *,
        query: Tensor,
        key: Tensor,
        crosses: bool,
    ) -> str:
        """Choose the name of the site that a call computes, and return it without its step."""
        if forward is None or forward is not self._forward:
            self._forward, self._step = forward, 0
            if forward is not None:  # without one, it is not known where a run begins
                self._counts.clear()
                self.calls.clear()
        count = self._counts.get(path, 0)
        name, first = numbered(path or ROOT, count), 0
        if count:  # a loop over steps within one call of the model
            before = numbered(path or ROOT, count - 1)
            first = self._continues(before, query, key, crosses)
            name = before if first else name
        if not first:
            first = self._continues(name, query, key, crosses)
            self._counts[path] = count + 1
        self._step = first or self._step
        self._states[name] = _SiteState(first + query.size(-2), key, forward)
        self.site = path_at(name, first)
        return name

    def _continues(self, name: str, query: Tensor, key: Tensor, crosses: bool) -> int:
        """Return the number of earlier queries if this call continues the site, else 0."""
        before = self._states.get(name)
        if before is None or key.shape[:-2] != before.key.shape[:-2]:
            return 0
        n_query, n_key = query.size(-2), before.key.size(-2)
        grown = not crosses and key.size(-2) == before.n_query + n_query == n_key + n_query
        looped = n_query == 1 and before.forward is self._forward
        repeated = key.size(-2) == n_key and (looped or self._step == before.n_query)
        if not (grown or (crosses and repeated)):
            return 0
        return before.n_query if torch.equal(key[..., :n_key, :], before.key) else 0

    @property
    def in_steps(self) -> bool:
        """True if the last call continued an earlier one."""
        return self._step > 0

    def note(self, site: str, facts: CallFacts) -> None:
        """Keep facts about a call, which `trace.check` reports."""
        self.trace.facts[site] = replace(facts, training=getattr(self.model, "training", None))


class LocalListener:
    """A listener that gets the values of one watch, under the names of its model."""

    def __init__(self, one: Watch, listener: Editor | Recorder) -> None:
        self.watch, self.listener = one, listener
        self.changes = listener.changes

    def wants(self, path: str) -> bool:
        return not self.watch.muted and self.listener.wants(self._local(path))

    def see(self, tapped: Tapped) -> Any:
        if self.watch.muted:
            return tapped.value
        return self.listener.see(replace(tapped, path=self._local(tapped.path)))

    def _local(self, path: str) -> str:
        if self.watch.site is None:
            return path
        return f"{self.watch.site}.{split_path(path)[2]}"


def _parts(model: Any) -> dict[int, str]:
    """Return the path of every module and other object with methods, by id."""
    found: dict[int, str] = {}
    waiting = [("", model)]
    while waiting:
        path, part = waiting.pop()
        if id(part) in found:
            continue
        found[id(part)] = path
        inner: dict[str, Any] = {}
        if isinstance(part, nn.Module):
            inner |= part._modules
        if not type(part).__module__.startswith("torch."):
            own = getattr(part, "__dict__", {}).items()
            inner |= {name: x for name, x in own if name[0] != "_" and type(x) not in _PLAIN}
        below = []
        for name, one in inner.items():
            some = enumerate(one) if isinstance(one, list | tuple) else [("", one)]
            for index, thing in some:
                if isinstance(thing, nn.Module) or _has_methods(thing):
                    names = [str(x) for x in (path, name, index) if x != ""]
                    below.append((".".join(names), thing))
        waiting += below[::-1]  # a shared part has its first name, as in named_modules
    return found


def _has_methods(thing: Any) -> bool:
    """Return True for an object of a class that a user may have written."""
    home = type(thing).__module__.partition(".")[0]
    plain = home in ("builtins", "torch", "collections", "functools", "numpy", "enum")
    return not plain and hasattr(thing, "__dict__") and not isinstance(thing, Tensor | type)


@dataclass(frozen=True)
class Place:
    """The origin of a call, for one watch."""

    watch: Watch
    path: str
    forward: FrameType | None


def note_calls() -> None:
    """Find out which watched models have been called by now."""
    for one in WATCHES.get():
        one.called = one.called or one.locate(sys._getframe(1))[0] is not None


def find_places() -> list[Place]:
    """Return the watches whose model is running, with the part that is."""
    places = []
    for one in WATCHES.get():
        path, forward = one.locate(sys._getframe(1))
        if path is not None:
            places.append(Place(one, path, forward))
    return places


@contextmanager
def sites(
    places: Sequence[Place], query: Tensor, key: Tensor, crosses: bool, facts: CallFacts
) -> Iterator[str]:
    """Name the site for each watch, and yield the name for other listeners."""
    inside, names = [place.watch for place in places], {}
    outside = [one for one in WATCHES.get() if one not in inside]
    try:
        for one in outside:
            one.muted = True
        for place in places:
            options = {"query": query, "key": key, "crosses": crosses}
            name = place.watch.enter(place.path, place.forward, **options)
            place.watch.note(name, facts)
            names[id(place.watch)] = name
        call = SiteCall(names, crosses, query.size(-2))
        for one in inside:
            one.entered = call
            one.calls.append(call)
        site = inside[-1].site or ""
        yield site
        tap(f"{site}.crosses", crosses, "")
    finally:
        for one in (*inside, *outside):
            one.site, one.muted = None, False


def cannot_watch(what: str) -> InputError:
    """Return the error for kernels that never show their inputs."""
    return InputError(
        f"{what} cannot be watched because its kernel never shows queries and keys: use "
        'F.scaled_dot_product_attention, or attn_implementation="sdpa" in transformers.'
    )


def cannot_nest() -> InputError:
    """Return the error for nested tensors."""
    return InputError(
        "nested tensors cannot be watched because their sequences have no common axes: pad them "
        "(x.to_padded_tensor(0.0)), and hide the padding with a mask."
    )


def cannot_transform() -> InputError:
    """Return the error for attention inside torch.func."""
    return InputError(
        "attention inside torch.func (vmap, grad, jvp) cannot be watched because its tensors have "
        "no numbers of their own there: call the function without the transformation."
    )
