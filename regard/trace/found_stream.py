"""The residual stream of a watched model: its stations and parts under regard's names.

`StreamGraph` has followed the sums. Here they get the paths that regard's own models have
("decoder.layers.0.self.residual"), and it is checked that the parts sum to what the model computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.trace.stream_graph import (
    NORMS,
    SCALES,
    Residual,
    SiteCall,
    StreamGraph,
    TensorCall,
    WrittenPart,
    find_linear,
    keeps_stream,
    linear_weights,
)
from regard.trace.trace import Trace
from regard.trace.watched_model import Watch

_ORDER = ("self", "cross", "feed_forward")
_TOLERANCE = 1e-4
NO_SUM = "nothing that attention computes is added to what it reads"


@dataclass(frozen=True, eq=False)
class Sublayer:
    """Output of attention or of a feed-forward layer, as added to the stream."""

    path: str
    part: WrittenPart
    site: str | None
    """The path of the attention site in the trace."""


@dataclass(frozen=True, eq=False)
class FoundStation:
    """The stream after one sum, and after its norm in a post-norm model."""

    path: str
    value: Tensor
    node: TensorCall
    residual: Residual
    sublayers: tuple[Sublayer, ...]


@dataclass(frozen=True, eq=False)
class FoundStream:
    """The residual stream of one side, from the embedding to the logits."""

    side: str
    start: Tensor
    stations: tuple[FoundStation, ...]
    post_norm: bool
    turned: bool
    """True if positions come before the batch."""
    output: tuple[Tensor, TensorCall] | None = None
    """What the model has computed from the end of the stream."""
    sites: dict[str, str] = field(default_factory=dict)
    """The path of the site in the trace for regard's path of each attention."""

    @property
    def embedding(self) -> str:
        """The path of the stream before the first layer."""
        return f"{self.side}.embedding.output"

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """Yield everything that was found under its path, as (batch, token, width)."""
        return ((path, self.plain(value)) for path, value in self.tensors())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield everything that was found under its path, in the layout of the model."""
        yield self.embedding, self.start
        for station in self.stations:
            for one in station.sublayers:
                given = None if one.part.linear is None else linear_weights(one.part.linear)
                name = "activation" if one.site is None else "joined"
                if given is not None and given[0].numel() % one.part.output[..., 0].numel() == 0:
                    yield f"{one.path}.{name}", given[0]
                yield f"{one.path}.output", one.part.output
            yield station.path, station.value
        end = self.output_vectors()
        if end is not None:
            yield f"{self.side}.output", end

    def final_norm(self) -> str:
        """Return the norm between the last station and the logits: "layer", "rms" or "none"."""
        assert self.output is not None
        end = self.stations[-1].node
        names = [node.name for _, node in _ancestors(self.output[1], until=end)]
        if "layer_norm" in names:
            return "layer"
        return "rms" if {"rms_norm", "rsqrt"} & set(names) else "none"

    def head(self) -> TensorCall | None:
        """Return the linear layer between the end of the stream and the output; None without one.

        A layer that writes to the stream, whose end may be the output, is not a head.
        """
        found = None if self.output is None else find_linear(self.output[1], deep=True)
        written = (one.part.linear for station in self.stations for one in station.sublayers)
        return None if any(found is one for one in written) else found

    def output_vectors(self) -> Tensor | None:
        """Return what the last linear layer reads, if it is one vector for each position."""
        if self.output is None:
            return None
        shape = self.start.shape
        for _, node in _ancestors(self.output[1]):
            given = linear_weights(node)
            if given is not None and given[0].shape == shape:
                return given[0]
        return self.output[0] if self.output[0].shape == shape else None

    def plain(self, value: Tensor) -> Tensor:
        """Return a value as (batch, token, width)."""
        lead = self.start.shape[:-1]
        if value.shape[:-1] != lead and value.numel() % lead.numel() == 0:
            value = value.reshape(*lead, -1)  # heads apart, or texts one after the other
        return value.transpose(0, 1) if self.turned else value

    def value_at(self, path: str) -> Tensor:
        """Return the stream at a station, in the layout of the model."""
        known = {one.path: one.value for one in self.stations}
        return self.start if path == self.embedding else known[path]

    @torch.no_grad()
    def replay(self, stream: Tensor) -> Tensor:
        """Return what the model computes if its stream ends with these vectors."""
        assert self.output is not None
        return replay(self.output[1], {id(self.stations[-1].node): stream})


def replay(node: TensorCall, known: dict[int, Any]) -> Any:
    """Compute the result of a call again, from other results of some of the calls before it."""
    if id(node) in known:
        return known[id(node)]

    def again(given: Any) -> Any:
        if isinstance(given, tuple | list):
            return type(given)(again(one) for one in given)
        parent = node.parent(given) if isinstance(given, Tensor) else None
        return given if parent is None or not _depends(parent, known) else replay(parent, known)

    args = [again(one) for one in node.args]
    result = node.call(args, {name: again(one) for name, one in node.kwargs.items()})
    known[id(node)] = result
    return result


def _depends(node: TensorCall, known: dict[int, Any]) -> bool:
    return any(id(one) in known for _, one in _ancestors(node))


def _ancestors(
    node: TensorCall, until: TensorCall | None = None
) -> Iterator[tuple[int, TensorCall]]:
    """Yield a call and those before it, the last first, down to another one."""
    waiting, seen = [node], {id(node), id(until)}
    while waiting:
        at = waiting.pop(0)
        yield id(at), at
        for _, parent in at.inputs:
            if parent is not None and id(parent) not in seen:
                seen.add(id(parent))
                waiting.append(parent)


def find_stream(
    graph: StreamGraph,
    watch: int,
    *,
    side: str,
    output: Tensor | None,
    calls: Sequence[SiteCall],
    end: Residual | None = None,
) -> FoundStream:
    """Return the stream that an output comes from, or say why there is none.

    Args:
        watch: id of the watch, whose names the sites get.
        output: logits or vectors that the model has returned; the last stream without it.
        calls: all calls of attention.
        end: the last sum of the stream; by default the last one that the output comes from.
    """
    node = None if output is None else graph.node(output)
    if output is not None and node is None:
        raise InputError("its result is not computed from its layers by functions that regard sees")
    last = end or _last_sum(graph, node)
    chain, written = last.chain(), _sites(last)
    missing = [one for one in calls[: calls.index(written[-1])] if one not in written]
    if missing:
        name = missing[0].names.get(watch, "one")
        raise InputError(
            f"its layers do not write to one stream: {len(missing)} of {len(calls)} attentions, "
            f"such as {name}, write elsewhere"
        )
    post = any(_is_normed(after.main_node, before.node) for before, after in pairwise(chain))
    stations = _name_stations(chain, side, watch, post)
    found = FoundStream(
        side=side,
        start=chain[0].main,
        stations=stations,
        post_norm=post,
        turned=_is_turned(chain[0].main, written[0].n_query),
        output=None if output is None or node is None else (output, node),
        sites={x.path: x.site for one in stations for x in one.sublayers if x.site is not None},
    )
    for one in chain:
        _check_sum(one)
    if node is not None:
        for _, after in list(_ancestors(node, until=stations[-1].node)):
            if _depends(after, {id(stations[-1].node): None}):
                after.restore()
    return found


def _last_sum(graph: StreamGraph, node: TensorCall | None) -> Residual:
    ends = graph.ends
    if node is not None:
        sums = (one.stream for _, one in _ancestors(node) if one.stream is not None)
        ends = [one for one in sums if one is not None]
        ends = ends[:1]
    if not ends:
        raise InputError(NO_SUM)
    return ends[-1]


def _is_normed(node: TensorCall | None, until: TensorCall) -> bool:
    """Return True if the stream was normalized between two sums."""
    while node is not None and node is not until:
        if node.name in NORMS or (node.name in SCALES and len(node.inputs) > 1):
            return True
        kept = keeps_stream(node)
        node = None if kept is None else kept[1]
    return False


def _is_turned(stream: Tensor, n_query: int) -> bool:
    return stream.dim() == 3 and stream.size(1) != n_query and stream.size(0) == n_query


def _name_stations(
    chain: Sequence[Residual], side: str, watch: int, post: bool
) -> tuple[FoundStation, ...]:
    stations, layer, used = [], -1, set()
    for index, one in enumerate(chain):
        kinds = [_kind(part) for part in one.parts]
        if "self" in kinds or not used or (kinds == ["cross"] and "cross" in used):
            layer, used = layer + 1, set()
        if used & set(kinds) or len(set(kinds)) < len(kinds):
            raise InputError(
                f"layer {layer} writes to the stream in an order that regard does not know: "
                f"{', '.join([*used, *kinds])}"
            )
        used |= set(kinds)
        paths = [f"{side}.layers.{layer}.{kind}" for kind in kinds]
        names = [part.sites[-1].names.get(watch) if part.sites else None for part in one.parts]
        sublayers = map(Sublayer, paths, one.parts, names)
        value, node = _station_value(chain, index, post)
        path = f"{side}.layers.{layer}.{max(kinds, key=_ORDER.index)}.residual"
        stations.append(FoundStation(path, value, node, one, tuple(sublayers)))
    return tuple(stations)


def _kind(part: WrittenPart) -> str:
    if not part.sites:
        return "feed_forward"
    return "cross" if part.sites[-1].crosses else "self"


def _station_value(chain: Sequence[Residual], index: int, post: bool) -> tuple[Tensor, TensorCall]:
    one = chain[index]
    if post and index + 1 < len(chain):
        after = chain[index + 1]
        if after.main_node is not None:
            return after.main, after.main_node
    if post and one.normed is not None:
        return one.normed
    return one.value, one.node


def _check_sum(one: Residual) -> None:
    """Check that stream and parts sum to what the model computed."""
    if one.replaced:
        return
    total = one.main + one.parts[0].output
    for part in one.parts[1:]:
        total += part.output
    if torch.equal(total, one.value):
        return
    apart = float((total - one.value).detach().abs().max())
    if not apart <= _TOLERANCE * max(1.0, float(one.value.detach().abs().max())):
        raise InputError(
            f"its parts do not sum to its stream, from which they differ by {apart:.1e}"
        )


def cannot_replace(path: str) -> InputError:
    """Return the error for an edit of a value that is only known after the run."""
    return InputError(
        f"{path} can be replaced only if the model is an nn.Module that computes it and is called "
        "as a whole, without a cache: call it so, or change its input or its attention instead."
    )


def note_streams(
    trace: Trace, graph: StreamGraph, one: Watch, edited: Callable[[str], bool]
) -> None:
    """Add the streams of a watched model to a trace, or the reason why there are none.

    Args:
        edited: returns True for the path of a value that an edit would change.
    """
    for found in find_streams(trace, graph, one):
        trace.streams[found.side] = found
        for path, value in found.values():
            if edited(path) and (one.stream_editor is None or path not in one.stream_editor.values):
                raise cannot_replace(path)
            trace.values.setdefault(path, value.detach())
    if one.stream_editor is not None:
        one.stream_editor.check(trace.streams.values())


def find_streams(trace: Trace, graph: StreamGraph, one: Watch) -> Iterator[FoundStream]:
    """Yield the streams of a watched model, and note the reason if one was not found."""
    sums = [end for end in graph.ends if set(_sites(end)) & set(one.calls)]
    if not one.calls or not sums:
        trace.stream_problem = NO_SUM if one.calls else ""
        return
    names = [_side(trace, end, one) for end in sums]
    for side, end in zip(names, sums, strict=True):
        own = [call for call in one.calls if call in _sites(end)]
        output = _returned(trace.output, graph, end) if end is sums[-1] else None
        try:
            if any(id(one) not in site.names for site in _sites(end)):
                raise InputError("its residual stream goes on outside of it: watch the whole model")
            if one.in_steps:
                raise InputError("it was called in steps with a cache: call it on the whole input")
            if names.count(side) > 1:
                raise InputError(f"it has {names.count(side)} streams of the kind {side}")
            yield find_stream(graph, id(one), side=side, output=output, end=end, calls=own)
        except InputError as error:
            trace.stream_problem = str(error)


def _side(trace: Trace, end: Residual, one: Watch) -> str:
    names = {site.names[id(one)] for site in _sites(end) if id(one) in site.names}
    kinds = {trace.sites[name].kind for name in names if name in trace.sites}
    return "decoder" if kinds & {"cross", "causal self"} else "encoder"


def _sites(end: Residual) -> list[SiteCall]:
    return [site for one in end.chain() for part in one.parts for site in part.sites]


def _returned(output: Any, graph: StreamGraph, end: Residual) -> Tensor | None:
    """Return the logits: what the caller has kept as the output, or the last linear layer's.

    A linear layer that writes to the stream does not compute logits.
    """
    given = getattr(output, "logits", output)
    if isinstance(given, Tensor) and graph.node(given) is not None:
        return given
    if graph.latest is None:
        return None
    last, node = graph.latest
    written = {id(part.linear) for one in end.chain() for part in one.parts}
    return None if id(find_linear(node)) in written else last
