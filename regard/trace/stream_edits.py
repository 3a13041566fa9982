"""Edits of residual streams and feed-forward layers of a model that is watched as it is.

Which call computes "decoder.layers.0.self.residual" is known only after a run. So the model runs
twice if an edit may name such a value: in the rehearsal its streams are found, and the place of the
call that computes each value is noted. In the run that follows, values are replaced there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.tap import listen_only, tap
from regard.trace.found_stream import FoundStream, find_streams
from regard.trace.recorder import Recorder
from regard.trace.stream_graph import StreamGraph
from regard.trace.trace import Trace
from regard.trace.watched_model import WATCHES, LocalListener, Watch

CallPlace = tuple[str, str, int, int | str]
"""The part of the model that makes a call, the function, how often the part has called it before,
and the index among the results."""
STREAM_VALUES = ("output", "residual", "activation", "joined")
"""The names of the values that are found in streams."""


@dataclass(eq=False)
class StreamEditor:
    """Notes places of calls in the rehearsal, and replaces values there in the run after it."""

    watch: Watch
    places: dict[CallPlace, tuple[str, FoundStream]] = field(default_factory=dict)
    """The path of a value by the place of the call that computes it; empty in the rehearsal."""
    values: dict[str, Tensor] = field(default_factory=dict)
    """What the model continues with, by path."""
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _call: tuple[str, str, int] | None = None

    def enter(self, name: str, frame: FrameType | None) -> None:
        """Note where the next call is made."""
        path = self.watch.locate(frame)[0]
        self._call = None
        if path is not None:
            self._counts[path, name] += 1
            self._call = (path, name, self._counts[path, name])

    def place(self, index: int | str) -> CallPlace | None:
        """Return the place of one result of the current call; None outside the model."""
        return None if self._call is None else (*self._call, index)

    def replace(self, index: int | str, value: Tensor) -> Tensor:
        """Return what listeners put in the place of one result of the current call."""
        place = self.place(index)
        if place is None or place not in self.places:
            return value
        path, stream = self.places[place]
        plain = stream.plain(value)
        others = [one for one in WATCHES.get() if one is not self.watch and not one.muted]
        try:
            for one in others:
                one.muted = True
            new = tap(path, plain, "token d_model")
        finally:
            for one in others:
                one.muted = False
        self.values[path] = new
        if new is plain:
            return value
        return (new.transpose(0, 1) if stream.turned else new).reshape(value.shape).to(value)

    def check(self, streams: Iterable[FoundStream]) -> None:
        """Refuse the run if the edits have changed which calls compute the values."""
        found = {path: value for one in streams for path, value in one.values()}
        for path, value in self.values.items():
            seen = found.get(path)
            if seen is None or seen.shape != value.shape or not torch.equal(seen, value):
                raise InputError(
                    f"{path} cannot be replaced because the edited model computes it elsewhere: "
                    "use a hook of its module."
                )


@contextmanager
def rehearsal(calls: Any, model: Any) -> Iterator[tuple[StreamGraph, Watch, Recorder]]:
    """Follow a run of which nothing else gets to know, and restore buffers and the random state."""
    trace, recorder = Trace(), Recorder()
    dry = Watch(model, trace)
    dry.stream_editor = StreamEditor(dry)
    buffers = list(model.buffers()) if isinstance(model, nn.Module) else []
    kept = [one.clone() for one in buffers]
    device = next((one.device for one in model.parameters() if one.is_cuda), None)
    token = WATCHES.set((dry,))
    before = calls.follower, calls.streams
    calls.start()
    try:
        with (
            torch.random.fork_rng([] if device is None else [device]),
            listen_only(LocalListener(dry, recorder)),
        ):
            yield calls.streams, dry, recorder
    finally:
        calls.follower, calls.streams = before
        WATCHES.reset(token)
        with torch.no_grad():
            for one, old in zip(buffers, kept, strict=True):
                one.copy_(old)


def places_of(
    graph: StreamGraph, streams: Iterable[FoundStream]
) -> dict[CallPlace, tuple[str, FoundStream]]:
    """Return the path of every value of the streams that a call computes, by its place."""
    found = {}
    for stream in streams:
        for path, value in stream.tensors():
            node = graph.node(value)
            if node is not None and node.place is not None:
                found.setdefault(node.place, (path, stream))
    return found


@contextmanager
def editing_streams(calls: Any, one: Watch) -> Iterator[None]:
    """Rehearse every call of a watched module inside the block, so that streams can be edited."""
    if not isinstance(one.model, nn.Module):
        yield
        return

    def rehearse(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if one not in WATCHES.get():
            return
        if kwargs.get("past_key_values") is not None:
            raise InputError(
                "residual streams and feed-forward layers cannot be changed in steps with a cache: "
                "call the model on the whole input, or change its attention instead."
            )
        with rehearsal(calls, module) as (graph, dry, recorder):
            dry.trace.output = module.forward(*args, **kwargs)
            dry.trace.sites.update(recorder.sites())
            streams = list(find_streams(dry.trace, graph, dry))
            one.stream_editor = StreamEditor(one, places_of(graph, streams))

    hook = one.model.register_forward_pre_hook(rehearse, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
