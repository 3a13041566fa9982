"""The residual stream of any model, found by following what its functions add to what.

    stream ─┬───────────────────────────────▶ + ─▶ stream
            └─▶ norm ─▶ attention ─▶ linear ──┘

The depth of a tensor is the smallest number of mixing functions (linear layers, products, …) on the
way to it. Norms, scalings, sums and changes of layout keep it. Where a deeper tensor that comes
from attention is added to a shallower one, the shallower one is the residual stream. From then on,
whatever is added to it is a part that was written to it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

NORMS = frozenset(("layer_norm", "rms_norm"))
LINEAR = frozenset(("linear", "addmm", "matmul", "mm"))
LAYOUT = frozenset(
    (
        *("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "view_as"),
        *("transpose", "permute", "contiguous", "swapaxes", "movedim", "mT", "T", "t", "clone"),
        *("to", "float", "double", "half", "bfloat16", "type_as", "type", "detach", "alias"),
    )
)
"""Functions that keep every number; conversions may round it."""
DROPOUT = frozenset(("dropout", "dropout1d", "feature_dropout"))
SCALES = frozenset(("mul", "multiply", "div", "true_divide", "divide"))
SUMS = frozenset(("add", "sub", "subtract"))
_CHEAP = frozenset(
    (
        *("pow", "square", "tanh", "gelu", "silu", "relu", "relu6", "leaky_relu", "elu", "sigmoid"),
        *("erf", "exp", "neg", "hardswish", "mish", "softplus", "clamp", *SCALES, *SUMS),
    )
)
"""Functions whose inputs are not kept inside a sublayer, since they can be computed again."""
_GONE = torch.empty(0)
"""Stands for an input that is not kept."""
_STARTS = frozenset(("embedding", "linear", "addmm", "conv1d", "conv2d", "conv3d", *NORMS))
"""Functions whose result is followed although nothing that they read is."""


class TensorTable:
    """Facts about tensors, which are forgotten when the tensors die."""

    def __init__(self) -> None:
        self._facts: dict[int, tuple[Any, ref[Tensor]]] = {}
        self._self: ref[TensorTable] = ref(self)

    def get(self, tensor: Tensor) -> Any:
        found = self._facts.get(id(tensor))
        return None if found is None else found[0]

    def __setitem__(self, tensor: Tensor, fact: Any) -> None:
        key = id(tensor)
        self._facts[key] = (fact, ref(tensor, partial(_forget, self._self, key)))


def _forget(table: "ref[TensorTable]", key: int, _: object) -> None:
    """Forget a tensor that has died."""
    if (alive := table()) is not None:
        alive._facts.pop(key, None)


@dataclass(eq=False)
class SiteCall:
    """One call of attention: the name of its site in each watch, and what it reads."""

    names: dict[int, str]
    """The path of the site by the id of the watch."""
    crosses: bool
    n_query: int
    linear: tuple[Tensor, Tensor, Tensor | None] | None = None
    """Input, weight and bias of the output projection, if it is part of the call."""


@dataclass(eq=False, slots=True)
class TensorCall:
    """One function call whose result is followed."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[tuple[Tensor, "TensorCall | None"], ...]
    """Its tensors, each with the call that computed it; None for constants and inputs."""
    depth: int
    stream: "Residual | None" = None
    """The last sum of the residual stream whose numbers it holds, perhaps normalized."""
    sites: tuple[SiteCall, ...] = ()
    """The attention sites that it comes from, since the last sum of the stream."""
    place: Any = None
    """Where it was called in a rehearsal, as `stream_edits.CallPlace`."""

    def parent(self, tensor: Any) -> "TensorCall | None":
        """Return the call that computed one of the arguments."""
        return next((node for one, node in self.inputs if one is tensor), None)

    def call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return what the function gives for other arguments."""
        if self.func.__name__[-1:] == "_" and isinstance(args[0], Tensor):
            args[0] = args[0].clone()
        result = self.func(*args, **kwargs)
        if isinstance(result, tuple | list):
            result = result[int(self.name.rpartition("[")[2][:-1])]
        return result

    def release(self) -> None:
        """Let go of the inputs that can be computed again."""
        calls = {id(tensor): node for tensor, node in self.inputs if node is not None}
        self.args = tuple(calls.get(id(one), one) for one in self.args)
        self.inputs = tuple((one if node is None else _GONE, node) for one, node in self.inputs)

    def restore(self) -> None:
        """Compute released inputs again."""
        calls = {id(node): node for one, node in self.inputs if one is _GONE and node is not None}
        again = {}
        for key, node in calls.items():
            node.restore()
            again[key] = node.call(list(node.args), node.kwargs)
        self.args = tuple(again.get(id(one), one) for one in self.args)
        self.inputs = tuple((again.get(id(node), one), node) for one, node in self.inputs)


@dataclass(frozen=True, eq=False)
class WrittenPart:
    """One vector for each position that was added to the stream."""

    output: Tensor
    node: TensorCall
    sites: tuple[SiteCall, ...]
    linear: TensorCall | None
    """The linear layer that it comes from, perhaps scaled or normalized since."""


@dataclass(eq=False)
class Residual:
    """One sum of the residual stream and what is written to it."""

    value: Tensor
    node: TensorCall
    main: Tensor
    """The stream before, as it is added: after a norm in post-norm models."""
    main_node: TensorCall | None
    before: "Residual | None"
    parts: tuple[WrittenPart, ...]
    normed: tuple[Tensor, TensorCall] | None = None
    """The first norm of it."""
    replaced: bool = False
    """True if an edit has replaced the value, which is then not the sum of its parts."""

    def chain(self) -> "list[Residual]":
        """Return the sums of this stream up to this one, in the order of computation."""
        found, one = [], self
        while one is not None:
            found.append(one)
            one = one.before
        return found[::-1]


@dataclass
class StreamGraph:
    """Follows tensors from the embedding to the logits."""

    nodes: TensorTable = field(default_factory=TensorTable)
    ends: list[Residual] = field(default_factory=list)
    """The last sum of every stream."""
    latest: tuple[Tensor, TensorCall] | None = None
    """The last result of a linear layer, perhaps scaled since, which may be the logits."""

    def node(self, tensor: Any) -> TensorCall | None:
        """Return the call that computed a tensor; None if it is not followed."""
        return self.nodes.get(tensor) if isinstance(tensor, Tensor) else None

    def before(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments as they are before a function that changes the first one."""
        if not any(self.node(one) for one in args):
            return args
        kept, node = args[0].detach().clone(), self.node(args[0])
        if node is not None:
            self.nodes[kept] = node
            if node.stream is not None and node.stream.value is args[0]:
                node.stream.value = kept
        return (kept, *args[1:])

    def note(self, name: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Remember how a tensor was computed."""
        if isinstance(result, Tensor):
            if result.is_floating_point():
                self._note_one(name, func, args, kwargs, result)
        elif isinstance(result, tuple | list):
            for index, one in enumerate(result):
                if isinstance(one, Tensor) and one.is_floating_point():
                    self._note_one(f"{name}[{index}]", func, args, kwargs, one)

    def note_site(self, site: SiteCall, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        """Remember that a tensor is what attention returned."""
        inputs = self._inputs(args, kwargs)
        node = TensorCall(
            "attention", func, args, kwargs, inputs, _depth(inputs) + 1, sites=(site,)
        )
        if site.linear is not None:
            joined, *weights = site.linear
            self.nodes[joined] = node
            inputs = ((joined, node), *((x, None) for x in weights if x is not None))
            function = torch.nn.functional.linear
            node = TensorCall(
                "linear", function, site.linear, {}, inputs, node.depth + 1, sites=(site,)
            )
        self.nodes[result] = node

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Continue with another tensor in the place of one that was noted."""
        node = self.nodes.get(old)
        if node is None:
            return
        self.nodes[new] = node
        if self.latest is not None and self.latest[0] is old:
            self.latest = (new, node)
        stream = node.stream
        if stream is not None and stream.value is old:
            stream.value, stream.replaced = new, True
        elif stream is not None and stream.normed is not None and stream.normed[0] is old:
            stream.normed = (new, node)

    def _inputs(self, args: Any, kwargs: Any) -> tuple[tuple[Tensor, TensorCall | None], ...]:
        get = self.nodes.get
        return tuple([(one, get(one)) for one in _tensors((*args, *kwargs.values()))])

    def _note_one(self, name: str, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        inputs = self._inputs(args, kwargs)
        followed = [node for _, node in inputs if node is not None]
        if not followed and (name not in _STARTS or not inputs):
            return
        node = TensorCall(name, func, args, kwargs, inputs, _depth(inputs))
        if len(followed) == 1:
            node.sites = followed[0].sites
        else:
            node.sites = tuple(dict.fromkeys(site for one in followed for site in one.sites))
        if name == "add" and len(inputs) == 2 and self._note_sum(node, result):
            return
        kept = keeps_stream(node)
        if kept is None:
            node.depth += bool(followed) or name != "embedding"
        else:
            self._keep(node, kept, result)
        self.nodes[result] = node
        if name in _CHEAP and node.stream is None and self._is_inside(result):
            node.release()
        follows = self.latest is not None and kept is not None and kept[1] is self.latest[1]
        if name in LINEAR or follows:
            self.latest = (result, node)

    def _is_inside(self, result: Tensor) -> bool:
        """Return True for the hidden values of a sublayer, which are wider than the stream."""
        return bool(self.ends) and result.shape[-1] != self.ends[-1].value.shape[-1]

    def _keep(
        self, node: TensorCall, kept: tuple[Tensor, TensorCall | None], result: Tensor
    ) -> None:
        """Note a call whose result holds the numbers of one argument, scaled or normalized."""
        parent = kept[1]
        node.depth = 0 if parent is None else parent.depth
        node.stream = None if parent is None else parent.stream
        if node.stream is not None and node.name in NORMS and node.stream.normed is None:
            node.stream.normed = (result, node)

    def _note_sum(self, node: TensorCall, result: Tensor) -> bool:
        """Note a sum; return True if it is one of a residual stream."""
        pairs = [(t, n) for t, n in node.inputs if not isinstance(t, nn.Parameter)]
        if len(pairs) < 2 or any(t.shape != result.shape for t, _ in pairs) or result.dim() < 2:
            return False
        ranked = sorted(pairs, key=lambda pair: -1 if pair[1] is None else pair[1].depth)
        (main, main_node), (leaf, leaf_node) = ranked
        if leaf_node is None or leaf_node.depth <= (main_node.depth if main_node else 0):
            return False
        stream = None if main_node is None else main_node.stream
        if stream is None and not (leaf_node.sites and _reads(leaf_node, main, main_node)):
            return False
        parts = tuple(split_sum(leaf, leaf_node))
        start = 0 if main_node is None else main_node.depth
        own = TensorCall(node.name, node.func, node.args, node.kwargs, node.inputs, start)
        own.stream = Residual(result, own, main, main_node, stream, parts)
        if stream in self.ends:
            self.ends.remove(stream)
        self.ends.append(own.stream)
        self.nodes[result] = own
        for part in parts:
            _cut(part)
        return True


def keeps_stream(node: TensorCall) -> tuple[Tensor, TensorCall | None] | None:
    """Return the argument whose numbers a call keeps, scaled or normalized; None if it mixes."""
    if not node.inputs:
        return None
    first, width = node.inputs[0], node.inputs[0][0].shape[-1:]
    if node.name in NORMS or node.name in LAYOUT or node.name in DROPOUT:
        return first
    if node.name in SCALES or node.name in SUMS:
        free = [pair for pair in node.inputs if pair[1] and pair[0].shape[-1:] != (1,)]
        if len(free) == 1:
            return free[0]
        if node.name in SUMS and free and free[0][0].shape[-1:] == width:
            return min(free, key=lambda pair: pair[1].depth if pair[1] else 0)
        return first if len(node.inputs) == 1 else None
    return None


def split_sum(tensor: Tensor, node: TensorCall) -> Iterator[WrittenPart]:
    """Yield the parts of a written vector: both of parallel attention and feed-forward."""
    pairs = [pair for pair in node.inputs if pair[1] is not None]
    both = node.name == "add" and len(pairs) == 2
    if both and all(n is not None and (n.sites or find_linear(n)) for _, n in pairs):
        sites = [n.sites for _, n in pairs if n is not None]
        if sites[0] != sites[1]:
            for one, inner in pairs:
                assert inner is not None
                yield from split_sum(one, inner)
            return
    yield WrittenPart(tensor, node, node.sites, find_linear(node))


def find_linear(node: TensorCall, *, deep: bool = False) -> TensorCall | None:
    """Return the linear layer that a tensor comes from, perhaps scaled or normalized since.

    With `deep`, any function of one tensor may follow it, such as a selection of positions.
    """
    at: TensorCall | None = node
    while at is not None:
        if at.name in LINEAR and linear_weights(at) is not None:
            return at
        kept = keeps_stream(at)
        if kept is None and deep:
            known = [pair for pair in at.inputs if pair[1] is not None]
            kept = known[0] if len(known) == 1 else None
        at = None if kept is None else kept[1]
    return None


def linear_weights(node: TensorCall) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Return input, weight (output × input) and bias of a linear layer; None if it is not one."""
    args: list[Any] = list(node.args)
    if node.name == "linear":
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | node.kwargs
        return given["input"], given["weight"], given.get("bias")
    if node.name not in LINEAR or len(args) < 2 or node.kwargs:
        return None
    weight = args[-1]
    plain = isinstance(weight, Tensor) and weight.dim() == 2 and node.parent(weight) is None
    if not plain:
        return None
    return args[-2], weight.T, args[0] if node.name == "addmm" else None


def _reads(node: TensorCall, tensor: Tensor, source: TensorCall | None) -> bool:
    """Return True if a call depends on a tensor, or on another result of the same call."""
    waiting, seen = [node], set()
    while waiting:
        at = waiting.pop()
        if at is source or any(_has_numbers_of(one, tensor) for one, _ in at.inputs):
            return True
        for _, parent in at.inputs:
            if parent is not None and id(parent) not in seen:
                seen.add(id(parent))
                waiting.append(parent)
    return False


def _has_numbers_of(one: Tensor, other: Tensor) -> bool:
    """Return True for the same tensor, or one of them in another layout of the same memory."""
    return one is other or (
        one.numel() == other.numel() and one.data_ptr() == other.data_ptr() != 0
    )


def _cut(part: WrittenPart) -> None:
    """Forget how the input of a part's linear layer was computed, which frees memory."""
    if part.linear is not None:
        part.linear.inputs = tuple((tensor, None) for tensor, _ in part.linear.inputs)
    else:
        part.node.inputs, part.node.args, part.node.kwargs = (), (), {}


def _depth(inputs: tuple[tuple[Tensor, TensorCall | None], ...]) -> int:
    return min([node.depth for _, node in inputs if node is not None], default=0)


def _tensors(values: Any) -> list[Tensor]:
    found = []
    for one in values:
        if isinstance(one, Tensor):
            found.append(one)
        elif isinstance(one, tuple | list):
            found += [x for x in one if isinstance(x, Tensor)]
    return found
