"""Vectors that sum to a value of a model, on their way through its norms and linear layers.

A norm divides by a scale that depends on the sum of all parts; it is held at its actual value,
which makes the norm linear and the sum exact. An activation is likewise held at its actual gain,
activation(x) / x. Parts of a model that was only watched pass through its own functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.analysis.readout import stream_at
from regard.errors import InputError
from regard.trace.found_stream import FoundStream, Sublayer
from regard.trace.stream_graph import (
    DROPOUT,
    LAYOUT,
    SCALES,
    SUMS,
    TensorCall,
    find_linear,
    linear_weights,
)
from regard.trace.trace import Trace

_EDITED = 1e-3
"""Relative difference from which a recorded stream counts as changed by an edit."""


@dataclass(frozen=True)
class AttributionPart:
    """The share of one part of the model in a logit."""

    path: str
    """Path of the value that was written, such as "decoder.layers.0.cross.output"."""
    kind: str
    """"embedding", "head", "bias" (of attention), "attention" (if its heads cannot be separated),
    "feed_forward", "norm" (the shift of a norm), "readout" (a bias after the residual stream) or
    "edit" (a replaced residual stream)."""
    head: int | None
    value: float


@dataclass(frozen=True)
class LinearParts:
    """Vectors that sum to a value of the model, each with its origin."""

    labels: tuple[AttributionPart, ...]
    vectors: Float[Tensor, "part *token d"]

    def add(self, path: str, kind: str, vectors: Tensor) -> "LinearParts":
        label, new = AttributionPart(path, kind, None, 0.0), vectors.double().expand_as(self.total)
        return LinearParts((*self.labels, label), torch.cat([self.vectors, new[None]]))

    def add_heads(self, path: str, vectors: Float[Tensor, "head *token d"]) -> "LinearParts":
        labels = [AttributionPart(path, "head", head, 0.0) for head in range(len(vectors))]
        return LinearParts((*self.labels, *labels), torch.cat([self.vectors, vectors]))

    @property
    def total(self) -> Tensor:
        return self.vectors.sum(0)

    def normalize(self, norm: nn.Module, path: str) -> "LinearParts":
        """Pass the parts through a norm whose scale is that of their sum."""
        weight, bias, eps = (getattr(norm, name, None) for name in ("weight", "bias", "eps"))
        return self.rescale(weight, bias, eps, path, center=isinstance(norm, nn.LayerNorm))

    def rescale(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float | None,
        path: str,
        *,
        center: bool,
    ) -> "LinearParts":
        """Pass the parts through layer normalization, or that of the root mean square."""
        centered, total = self.vectors, self.total
        if center:
            centered, total = (x - x.mean(-1, keepdim=True) for x in (centered, total))
        eps = torch.finfo(torch.float32).eps if eps is None else eps
        scaled = centered / (total.square().mean(-1, keepdim=True) + eps).sqrt()
        parts = LinearParts(self.labels, scaled if weight is None else scaled * weight.double())
        return parts if bias is None else parts.add(path, "norm", bias)

    def transform(self, linear: nn.Linear, path: str) -> "LinearParts":
        """Pass the parts through a linear layer, whose bias becomes a part."""
        return self.multiply(linear.weight, linear.bias, path)

    def multiply(
        self, weight: Float[Tensor, "out d"], bias: Tensor | None, path: str, kind: str = "readout"
    ) -> "LinearParts":
        """Pass the parts through a matrix, whose bias becomes a part."""
        parts = LinearParts(self.labels, self.vectors @ weight.double().T)
        return parts if bias is None else parts.add(path, kind, bias)

    def activate(self, activation: Callable[[Tensor], Tensor]) -> "LinearParts":
        """Pass the parts through an activation, held at its gain for their sum."""
        x = self.total
        near = torch.where(x.abs() < 1e-9, torch.full_like(x, 1e-9), x)
        return LinearParts(self.labels, self.vectors * (activation(near) / near))

    def settle(self, trace: Trace, path: str, rows: slice, batch: int) -> "LinearParts":
        """Add a part for the difference from the recorded value if an edit replaced that."""
        if path not in trace.values:
            return self
        recorded = stream_at(trace, path, batch)[rows].double()
        rest = recorded - self.total
        if float(rest.abs().max()) <= _EDITED * max(1.0, float(recorded.abs().max())):
            return self
        return self.add(path, "edit", rest)


_SELECTIONS = frozenset(("__getitem__", "mean", "sum", "select", "narrow", "roll", "pad", "cat"))
_ACTIVATIONS = frozenset(("gelu", "relu", "silu", "tanh", "sigmoid", "softplus", "mish", "elu"))
_NORM_ARGUMENTS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
}


def pass_through(
    parts: LinearParts, base: TensorCall, target: TensorCall, path: str, kind: str = "norm"
) -> LinearParts:
    """Pass the parts of one call's result through the calls that follow, up to another one.

    Args:
        base: the call whose result the parts sum to.
        path: path of the parts that biases on the way become, which are of this `kind`.
    """
    if target is base:
        return parts
    read = target.inputs[:1] if target.name in LAYOUT else target.inputs
    given = [(t, n) for t, n in read if n is not None and _depends(n, base)]
    if not given:
        raise InputError("the logits do not depend on the residual stream")

    def before(node: TensorCall) -> LinearParts:
        return pass_through(parts, base, node, path, kind)

    if target.name in SUMS:
        return _add(target, [before(n) for _, n in given], path, kind)
    if target.name in SCALES:
        return _scale(target, given, before)
    if len(given) > 1:
        raise _not_linear(target)
    return _apply(target, before(given[0][1]), path, kind)


def _apply(target: TensorCall, parts: LinearParts, path: str, kind: str) -> LinearParts:
    """Pass the parts through a call that reads nothing else that depends on them."""
    others, options = target.args[1:], target.kwargs
    if target.name in _NORM_ARGUMENTS:
        given = dict(zip(_NORM_ARGUMENTS[target.name], target.args, strict=False)) | options
        eps = given.get("eps", 1e-5 if target.name == "layer_norm" else None)
        center = target.name == "layer_norm"
        return parts.rescale(given.get("weight"), given.get("bias"), eps, path, center=center)
    if (weights := linear_weights(target)) is not None:
        return parts.multiply(weights[1], weights[2], path, kind)
    if target.name in _ACTIVATIONS:
        return parts.activate(lambda x: target.func(x, *others, **options))
    if target.name in LAYOUT or target.name in _SELECTIONS:
        return _each(parts, lambda x: target.func(x, *others, **options))
    if target.name in DROPOUT:
        return parts
    raise _not_linear(target)


def _depends(node: TensorCall, base: TensorCall) -> bool:
    waiting, seen = [node], set()
    while waiting:
        at = waiting.pop()
        if at is base:
            return True
        new = [p for _, p in at.inputs if p is not None and id(p) not in seen]
        seen |= {id(one) for one in new}
        waiting += new
    return False


def _add(target: TensorCall, given: list[LinearParts], path: str, kind: str) -> LinearParts:
    """Add two values that depend on the parts, or one of them and a constant."""
    sign = 1 if target.name == "add" else -1
    if len(given) == 2:
        if len(given[0].labels) != len(given[1].labels):
            raise _not_linear(target)
        return LinearParts(given[0].labels, given[0].vectors + sign * given[1].vectors)
    constants = [t for t, n in target.inputs if n is None]
    numbers = [one for one in target.args if isinstance(one, int | float)]
    constant = (constants or [torch.tensor(float(x)) for x in numbers])[0]
    return given[0].add(path, kind, sign * constant)


def _scale(
    target: TensorCall,
    given: list[tuple[Tensor, TensorCall]],
    before: Callable[[TensorCall], LinearParts],
) -> LinearParts:
    """Multiply with a constant or with the scale of a norm, which is held."""
    free = [n for t, n in given if t.shape[-1:] != (1,)] if len(given) > 1 else [given[0][1]]
    if len(free) != 1:
        raise _not_linear(target)
    parts = before(free[0])
    kept = next(t for t, n in given if n is free[0])
    others: list[Any] = [one for one in target.args if one is not kept]
    factor = others[0].double() if isinstance(others[0], Tensor) else others[0]
    divided = target.name not in ("mul", "multiply")
    return LinearParts(parts.labels, parts.vectors / factor if divided else parts.vectors * factor)


def _each(parts: LinearParts, function: Callable[[Tensor], Tensor]) -> LinearParts:
    return LinearParts(parts.labels, torch.stack([function(one).double() for one in parts.vectors]))


def _not_linear(node: TensorCall) -> InputError:
    return InputError(f"{node.name} is on the way to the logits, which regard cannot split")


def found_parts(trace: Trace, stream: FoundStream, batch: int) -> LinearParts:
    """Return what the last linear layer of a model reads, as a sum of what was written."""
    start = stream.start.double()
    parts = LinearParts((), start.new_zeros(0, *start.shape))
    parts = parts.add(stream.embedding, "embedding", start)
    at = stream.stations[0].residual.main_node
    for station in stream.stations:
        main = station.residual.main_node
        if at is not None and main is not None:  # the layout may have changed
            parts = pass_through(parts, at, main, f"{stream.side}.norm")
        at = station.node
        for one in station.sublayers:
            written = _written(trace, one, batch)
            labels = (*parts.labels, *written.labels)
            parts = LinearParts(labels, torch.cat([parts.vectors, written.vectors]))
        path = station.path.replace(".residual", ".norm")
        parts = pass_through(parts, station.residual.node, station.node, path)
    linear = _last_linear(stream)
    source = linear.parent(_weights(linear)[0])
    assert source is not None
    return pass_through(parts, stream.stations[-1].node, source, f"{stream.side}.norm")


def project_found(
    parts: LinearParts, stream: FoundStream, entry: int, place: tuple[int, ...]
) -> tuple[Float[Tensor, " part"], tuple[AttributionPart, ...], float]:
    """Return each part's share of a logit, the parts, and the bias of the logit.

    Args:
        parts: those that `found_parts` returns.
        place: index of the logits: of the sequence in the batch, and of the position.
    """
    assert stream.output is not None
    linear, (logits, target) = _last_linear(stream), stream.output
    _, weight, bias = _weights(linear)
    row = slice(entry, entry + 1)
    own = None if bias is None else bias[row]
    shares = parts.multiply(weight[row], own, "output.logits", "logit_bias")
    shares = pass_through(shares, linear, _narrow(target, linear, row, logits), "", "logit_bias")
    values = shares.vectors[(slice(None), *place, 0)]
    biases = [i for i, label in enumerate(shares.labels) if label.kind == "logit_bias"]
    others = [i for i in range(len(values)) if i not in biases]
    labels = tuple(shares.labels[i] for i in others)
    return values[others], labels, float(values[biases].sum())


def found_effect(
    stream: FoundStream, vector: Float[Tensor, " d"], place: tuple[int, ...]
) -> Float[Tensor, " entry"]:
    """Return what a vector at a place of the stream's end adds to the logits there."""
    end = stream.stations[-1]
    alone = torch.zeros_like(end.value, dtype=torch.float64)
    alone[place] = vector.double()
    parts = LinearParts((), torch.empty(0, *alone.shape, dtype=torch.float64))
    parts = parts.add("", "feed_forward", alone).add("", "embedding", end.value.double() - alone)
    linear = _last_linear(stream)
    source = linear.parent(_weights(linear)[0])
    assert source is not None
    read = pass_through(parts, end.node, source, "")
    return (read.vectors[(0, *place)] @ _weights(linear)[1].double().T).float()


def _narrow(node: TensorCall, linear: TensorCall, row: slice, logits: Tensor) -> TensorCall:
    """Return the calls after the last linear layer, for one entry of the logits alone."""
    if node is linear:
        return node

    def cut(tensor: Any) -> Any:
        wide = isinstance(tensor, Tensor) and tensor.shape[-1:] == logits.shape[-1:]
        return tensor[..., row] if wide and node.parent(tensor) is None else tensor

    inputs = tuple(
        (cut(t), None if n is None else _narrow(n, linear, row, logits)) for t, n in node.inputs
    )
    pairs = {id(t): new for (t, _), (new, _) in zip(node.inputs, inputs, strict=True)}
    args = tuple(pairs.get(id(one), one) for one in node.args)
    return replace(node, inputs=inputs, args=args)


def _last_linear(stream: FoundStream) -> TensorCall:
    linear = None if stream.output is None else find_linear(stream.output[1], deep=True)
    if linear is None:
        raise InputError("the logits are not the result of a linear layer, so they cannot be split")
    return linear


def _weights(linear: TensorCall) -> tuple[Tensor, Tensor, Tensor | None]:
    weights = linear_weights(linear)
    assert weights is not None
    return weights


def _written(trace: Trace, one: Sublayer, batch: int) -> LinearParts:
    """Return what attention or a feed-forward layer has written, by head if possible."""
    part, path = one.part, f"{one.path}.output"
    empty = LinearParts((), part.output.double().new_zeros(0, *part.output.shape))
    if one.site is None:
        return empty.add(path, "feed_forward", part.output)
    weights = None if part.linear is None else linear_weights(part.linear)
    if weights is None or part.linear is None or not _is_joined(trace, one.site, weights[0], batch):
        return empty.add(path, "attention", part.output)
    joined, weight, bias = weights
    heads = trace[one.site].n_heads
    contexts = rearrange(joined.double(), "... (head d) -> head ... d", head=heads)
    columns = rearrange(weight.double(), "out (head d) -> head d out", head=heads)
    written = torch.stack([x @ c for x, c in zip(contexts, columns, strict=True)])
    parts = LinearParts((), written.new_zeros(0, *written.shape[1:])).add_heads(path, written)
    if bias is not None:
        parts = parts.add(path, "bias", bias)
    return pass_through(parts, part.linear, part.node, f"{one.path}.norm")


def _is_joined(trace: Trace, path: str, joined: Tensor, batch: int) -> bool:
    """Return True if a linear layer reads the contexts of all heads side by side."""
    site = trace[path]
    context = site.all_batches("context")
    if context.dim() < 3 or joined.size(-1) != site.n_heads * context.size(-1):
        return False
    flat = context.transpose(-3, -2).flatten(-2)
    same = flat.numel() == joined.numel()
    turned = flat.dim() == 3 and flat.transpose(0, 1).shape == joined.shape != flat.shape
    flat = flat.transpose(0, 1) if turned else flat
    return same and torch.allclose(flat.reshape(joined.shape), joined, rtol=1e-3, atol=1e-4)
