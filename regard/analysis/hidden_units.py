"""The hidden units of a feed-forward layer at one position, and what they write.

A unit adds its activation times its column of the output matrix to the residual stream. In pre-norm
models, that column also has a direct effect on the logits: through the last norm, with the
deviation that it has in this run, and the projection. The activation in the head of masked models
is held at its gain in this run, as in attributions.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.analysis.flow import stream
from regard.analysis.parts import AttributionPart, LinearParts, found_effect
from regard.analysis.readout import FoundReadout, open_readout
from regard.errors import InputError, UnknownNameError
from regard.layers.feed_forward import FeedForward
from regard.trace.stream_graph import linear_weights
from regard.trace.trace import Trace
from regard.trace.watch import watch

N_UNITS = 8
N_WRITTEN = 5


@dataclass(frozen=True)
class WrittenEntry:
    """A token, class or dimension that a unit writes to, and how much it adds there."""

    name: str
    amount: float


@dataclass(frozen=True)
class HiddenUnit:
    """A hidden unit: its activation, and the length of the vector that it adds."""

    index: int
    activation: float
    norm: float
    written: tuple[WrittenEntry, ...]


@dataclass(frozen=True)
class HiddenUnits:
    """The hidden units of one position that add the longest vectors."""

    path: str
    position: int
    n_units: int
    n_active: int
    """Units whose activation is larger than 0."""
    writes: str
    """"logits" of tokens or classes, or "dimensions" of the stream."""
    units: tuple[HiddenUnit, ...]


def hidden_units(
    trace: Trace, path: str, position: int, *, count: int = N_UNITS, batch: int = 0
) -> HiddenUnits:
    """Return the hidden units of a feed-forward layer that add most at a position."""
    if trace.streams:
        activation, columns, readout = _found_layer(trace, path, position, batch)
    else:
        module = feed_forward_module(trace, path)
        activation = activations(trace, module, position, batch=batch)
        columns = module.to_output.weight.detach().float()
        readout = _readout(trace, path, position, batch)
    norms = activation.abs() * columns.norm(dim=0)
    units = []
    for index in norms.topk(min(count, len(norms))).indices.tolist():
        vector = activation[index] * columns[:, index]
        effect = vector if readout is None else readout.effect(vector)
        written = _largest(effect, readout)
        units.append(HiddenUnit(index, activation[index].item(), norms[index].item(), written))
    return HiddenUnits(
        path=path,
        position=position,
        n_units=len(activation),
        n_active=int((activation > 0).sum()),
        writes="dimensions" if readout is None else "logits",
        units=tuple(units),
    )


def feed_forward_module(trace: Trace, path: str) -> FeedForward:
    """Return the feed-forward layer of a path."""
    module = getattr(trace.origin, "module", None)
    modules = () if module is None else module.modules()
    found = [m for m in modules if isinstance(m, FeedForward) and m.path == path]
    if not found:
        raise UnknownNameError(f"the model of this trace has no feed-forward layer {path!r}.")
    return found[0]


@torch.no_grad()
def activations(
    trace: Trace, module: FeedForward, position: int, *, batch: int = 0
) -> Float[Tensor, "d_ff"]:
    """Return the hidden layer at a position, computed from its input if it was not stored."""
    known = trace.values.get(f"{module.path}.activation")
    source = f"{module.path}.input" if known is None else f"{module.path}.activation"
    vectors = stream(trace, source, batch=batch)
    if not 0 <= position < len(vectors):
        raise InputError(f"position is {position}; it must be 0 to {len(vectors) - 1}.")
    if known is not None:
        return vectors[position]
    with watch() as again:
        module(vectors[None, position : position + 1].to(module.to_output.weight.dtype))
    return again.values[f"{module.path}.activation"][0, 0].float()


def _found_layer(
    trace: Trace, path: str, position: int, batch: int
) -> "tuple[Tensor, Tensor, _FoundEffect | None]":
    """Return activations, columns and the way to the logits of a model that runs as it is."""
    layers = {
        one.path: (found, one.part)
        for found in trace.streams.values()
        for station in found.stations
        for one in station.sublayers
    }
    if path not in layers:
        raise UnknownNameError(f"the model of this trace has no feed-forward layer {path!r}.")
    found, part = layers[path]
    weights = None if part.linear is None else linear_weights(part.linear)
    if weights is None or part.sites:
        raise InputError(f"{path} does not end with one linear layer, so it has no hidden units.")
    vectors = stream(trace, f"{path}.activation", batch=batch)
    if not 0 <= position < len(vectors):
        raise InputError(f"position is {position}; it must be 0 to {len(vectors) - 1}.")
    effect = None
    plain = torch.allclose(
        weights[0] @ weights[1].T + (0 if weights[2] is None else weights[2]),
        part.output.reshape(*weights[0].shape[:-1], -1),
        atol=1e-4,
    )
    if plain and not found.post_norm and found.output is not None:
        with suppress(InputError):
            readout = open_readout(trace)
            tokens = readout.entries == "tokens"
            if isinstance(readout, FoundReadout) and readout.stream is found and tokens:
                effect = _FoundEffect(readout, (batch, position))
    return vectors[position], weights[1].detach().float(), effect


@dataclass(frozen=True)
class _FoundEffect:
    """The same for a model that runs as it is, by its own functions."""

    readout: FoundReadout
    where: tuple[int, int]

    def effect(self, vector: Tensor) -> Tensor:
        return found_effect(self.readout.stream, vector, self.readout.index(*self.where))

    def name(self, index: int) -> str:
        return self.readout.name(index)


@dataclass(frozen=True)
class _Readout:
    """The linear map from a vector in the stream to logits, with the norm's deviation fixed."""

    norm: nn.Module
    deviation: float
    weight: Float[Tensor, "vocab d_model"]
    names: Any
    """A tokenizer or the labels of classes."""

    def effect(self, vector: Tensor) -> Tensor:
        centered = vector - vector.mean() if isinstance(self.norm, nn.LayerNorm) else vector
        gain = getattr(self.norm, "weight", None)
        scaled = centered / self.deviation if gain is None else centered * gain / self.deviation
        return self.weight.detach().float() @ scaled.detach().float()

    def name(self, index: int) -> str:
        if self.names is None:
            return str(index)
        return self.names[index] if isinstance(self.names, tuple) else self.names.label_of(index)


@dataclass(frozen=True)
class _FillReadout:
    """The same for the head of masked models, whose activation is held at its gain."""

    module: Any
    stream: Float[Tensor, "d_model"]
    tokenizer: Any

    def effect(self, vector: Tensor) -> Tensor:
        both = torch.stack([vector, self.stream - vector]).detach().double()
        parts = LinearParts(tuple(AttributionPart("", "", None, 0.0) for _ in both), both)
        head = self.module.fill
        parts = parts.normalize(self.module.encoder.norm, "")
        parts = parts.transform(head.to_hidden, "").activate(head.activation_fn)
        hidden = parts.normalize(head.norm, "").vectors[0]
        return (self.module.tokens.weight.detach().double() @ hidden).float()

    def name(self, index: int) -> str:
        return str(index) if self.tokenizer is None else self.tokenizer.label_of(index)


def _readout(trace: Trace, path: str, position: int, batch: int) -> _Readout | _FillReadout | None:
    """Return how a layer's output reaches the logits of its position; None if not directly."""
    model, side = trace.origin, path.partition(".")[0]
    module = model.module
    stack = getattr(module, side, None)
    norm = getattr(stack, "norm", None)
    if stack is None or norm is None:  # post-norm: every later norm rescales the stream
        return None
    weight, names = _output_matrix(model, side, position)
    last = f"{side}.layers.{len(stack.layers) - 1}.feed_forward.residual"
    fills = model.task == "masked" and getattr(module, "fill", None) is not None
    if last not in trace.values or (weight is None and not fills):
        return None
    vector = stream(trace, last, batch=batch)[position]
    if weight is None:
        return _FillReadout(module, vector, model.tokenizer)
    centered = vector - vector.mean() if isinstance(norm, nn.LayerNorm) else vector
    deviation = float((centered.square().mean() + (norm.eps or 0.0)).sqrt())
    return _Readout(norm, deviation, weight, names)


def _output_matrix(model: Any, side: str, position: int) -> tuple[Tensor | None, Any]:
    module = model.module
    if side == "decoder" and hasattr(module, "project"):
        weight = module.tokens.weight if module.projection is None else module.projection.weight
        return weight, model.target_tokenizer or model.tokenizer
    config = module.config
    reads_class_token = model.family == "vision" and config.pool == "class" and position == 0
    plain = getattr(module, "pooler", None) is None
    if reads_class_token and plain and module.classifier is not None:
        return module.classifier.weight, tuple(model.labels) if model.labels else None
    return None, None


def _largest(
    effect: Tensor, readout: _Readout | _FillReadout | _FoundEffect | None
) -> tuple[WrittenEntry, ...]:
    """Return the entries that gain most; without names, those that change most."""
    ranked = effect if readout is not None else effect.abs()
    best = ranked.topk(min(N_WRITTEN, len(effect))).indices.tolist()
    name = str if readout is None else readout.name
    return tuple(WrittenEntry(name(index), effect[index].item()) for index in best)
