"""Direct attribution: how much each part of a model adds to the logit of one token or class.

    logit - bias = sum over parts of  unembedding[token] · (part, through the norms)

The parts are all that was written to the residual stream at a position: the embedding, every head
of every attention, biases, every feed-forward. A norm divides by a scale that depends on the sum of
all parts; it is held at its actual value, which makes the norm linear and the sum exact. An
activation on the way to the logits (of BERT's fill head or of a pooler) is likewise held at its
actual gain, activation(x) / x. Effects of a part by way of later layers count as theirs.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from regard.analysis.parts import AttributionPart, LinearParts, found_parts, project_found
from regard.analysis.readout import (
    FoundReadout,
    Readout,
    answered_ids,
    default_position,
    open_readout,
    positions_of,
    stream_at,
)
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import InputError, UnknownNameError
from regard.layers.feed_forward import activation_function
from regard.layers.stack import SubLayer
from regard.trace.trace import Trace


@dataclass(frozen=True, repr=False)
class Attribution:
    """The logit of a token or class at a position as a sum of parts."""

    side: str
    entries: str
    """What has logits: "tokens" or "classes"."""
    norm: str
    """The final norm: "layer", "rms" or "none" (post-norm)."""
    position: int | None
    """None for classes, which are predicted once."""
    token: int
    name: str
    relative_to: int | None
    """The token or class whose logit was subtracted."""
    relative_name: str | None
    logit: float
    """The model's logit, or the difference of two."""
    bias: float
    """The part of the logit that is the same for every input: the bias of the unembedding."""
    parts: tuple[AttributionPart, ...]
    """In the order of computation; they sum to logit - bias."""

    def ranked(self) -> list[AttributionPart]:
        """Return the parts, the largest in size first."""
        return sorted(self.parts, key=lambda part: -abs(part.value))

    def to_dict(self) -> dict[str, Any]:
        """Return the attribution as JSON values."""
        return {**asdict(self), "parts": [asdict(part) for part in self.parts]}

    def __repr__(self) -> str:
        against = "" if self.relative_name is None else f" - {self.relative_name!r}"
        place = "" if self.position is None else f" at position {self.position}"
        title = f"<Attribution of {self.name!r}{against}{place}: logit {self.logit:.4f}"
        shown = [
            f"  {part.value:+9.4f}  {part.path}{'' if part.head is None else f' head {part.head}'}"
            for part in self.ranked()[:10]
        ]
        rest = f"  {self.bias:+9.4f}  bias, and {max(0, len(self.parts) - 10)} smaller parts>"
        return "\n".join([title, *shown, rest])


@torch.no_grad()
def attribution(
    trace: Trace,
    token: str | int | None = None,
    *,
    position: int | None = None,
    relative_to: str | int | None = None,
    batch: int = 0,
) -> Attribution:
    """Split the logit of a token or class into what each part of the model adds to it.

    Args:
        token: an id, a token of the vocabulary or a class; what was answered by default.
        position: where it is predicted; by default the last token of a language model, the first
            gap of a masked text, the first token of a translation.
        relative_to: another token, whose logit is subtracted: "why this one and not that one".
        batch: index of the sequence in the batch.
    """
    readout = open_readout(trace)
    place = _position(trace, readout, position)
    logits = _logits(trace, readout, place, batch)
    chosen = _chosen(trace, readout, token, place, logits)
    other = None if relative_to is None else readout.entry(relative_to)
    parts = _written_parts(trace, readout, place, batch)
    return _split(readout, (batch, place), parts, logits, (chosen, other))


@torch.no_grad()
def attributions(
    trace: Trace, tokens: Sequence[int], *, position: int, batch: int = 0
) -> list[Attribution]:
    """Return the attribution of each of several tokens or classes at one position."""
    readout = open_readout(trace)
    place = _position(trace, readout, position)
    logits = _logits(trace, readout, place, batch)
    parts = _written_parts(trace, readout, place, batch)
    return [_split(readout, (batch, place), parts, logits, (token, None)) for token in tokens]


def _logits(trace: Trace, readout: Readout | FoundReadout, place: int, batch: int) -> Tensor:
    where = torch.tensor([place])
    return readout.logits_at(trace, readout.stations[-1], where, batch)[0].double()


def _written_parts(
    trace: Trace, readout: Readout | FoundReadout, place: int, batch: int
) -> LinearParts:
    """Return what the logits of a position are made of."""
    if isinstance(readout, FoundReadout):
        return found_parts(trace, readout.stream, batch)
    return _stream_parts(trace, readout, _rows(readout, place), batch)


def _split(
    readout: Readout | FoundReadout,
    where: tuple[int, int],
    parts: LinearParts,
    logits: Tensor,
    entries: tuple[int, int | None],
) -> Attribution:
    """Split the logit of an entry, or its difference from another one.

    `where` is the sequence in the batch and the position.
    """
    chosen, other = entries
    values, labels, bias = _project(parts, readout, chosen, where)
    logit = float(logits[chosen])
    if other is not None:
        others, _, bias_of_other = _project(parts, readout, other, where)
        values, bias = values - others, bias - bias_of_other
        logit -= float(logits[other])
    return Attribution(
        side=readout.side,
        entries=readout.entries,
        norm=readout.norm,
        position=None if readout.entries == "classes" else where[1],
        token=chosen,
        name=readout.name(chosen),
        relative_to=other,
        relative_name=None if other is None else readout.name(other),
        logit=logit,
        bias=bias,
        parts=tuple(
            replace(label, value=value)
            for label, value in zip(labels, values.tolist(), strict=True)
        ),
    )


def _position(trace: Trace, readout: Readout | FoundReadout, position: int | None) -> int:
    if position is None:
        return default_position(trace, readout)
    count = len(positions_of(trace, readout))
    if readout.entries == "classes" and position != 0:
        raise InputError("a class is predicted once, for the whole input: leave out the position.")
    if not 0 <= position < count:
        raise UnknownNameError(
            f"there is no position {position}; the model predicts at {count}, 0 to {count - 1}."
        )
    return position


def _chosen(
    trace: Trace,
    readout: Readout | FoundReadout,
    token: str | int | None,
    position: int,
    logits: Tensor,
) -> int:
    if token is not None:
        return readout.entry(token)
    written = answered_ids(trace)
    return int(logits.argmax()) if written is None else written[position]


def _rows(readout: Readout, position: int) -> slice:
    """Return the tokens that a logit depends on directly."""
    if readout.entries == "tokens":
        return slice(position, position + 1)
    pools_all = readout.model.config.pool == "mean"
    return slice(None) if pools_all else slice(2)  # the class token, and a distillation token


def _stream_parts(trace: Trace, readout: Readout, rows: slice, batch: int) -> LinearParts:
    """Return all that was written to the residual stream at some tokens, after the final norm."""
    side, norm = readout.side, readout.embedding_norm
    first = stream_at(trace, readout.stations[0], batch)[rows].double()
    parts = LinearParts((), first.new_zeros(0, *first.shape))
    for name in ("tokens", "types", "positions"):
        path = f"{side}.embedding.{name}"
        if path in trace.values:
            given = stream_at(trace, path, batch)
            parts = parts.add(path, "embedding", given if len(given) == 1 else given[rows])
    if not parts.labels:
        parts = parts.add(readout.stations[0], "embedding", first)
    elif norm is not None:
        parts = parts.normalize(norm, f"{side}.embedding.norm")
    parts = parts.settle(trace, readout.stations[0], rows, batch)
    for sub_layer, station in zip(readout.sub_layers, readout.stations[1:], strict=True):
        parts = _add_sub_layer(parts, trace, sub_layer, rows, batch)
        parts = parts.settle(trace, station, rows, batch)
    norm = readout.stack.norm
    return parts if norm is None else parts.normalize(norm, f"{side}.norm")


def _add_sub_layer(
    parts: LinearParts, trace: Trace, sub_layer: SubLayer, rows: slice, batch: int
) -> LinearParts:
    inner, path = sub_layer.inner, sub_layer.inner.path
    output = stream_at(trace, f"{path}.output", batch)[rows].double()
    if isinstance(inner, MultiHeadAttention):
        joined = stream_at(trace, f"{path}.joined", batch)[rows].double()
        contexts, columns = (
            rearrange(x, "row (head d_v) -> head row d_v", head=inner.n_heads)
            for x in (joined, inner.to_output.weight.double())
        )
        written = contexts @ columns.transpose(-1, -2)
        parts = parts.add_heads(f"{path}.output", written)
        if inner.to_output.bias is not None:
            parts = parts.add(f"{path}.output", "bias", output - written.sum(0))
    else:
        parts = parts.add(f"{path}.output", "feed_forward", output)
    if sub_layer.norm_first:
        return parts
    return parts.normalize(sub_layer.norm, f"{path}.norm")


def _project(
    parts: LinearParts, readout: Readout | FoundReadout, entry: int, where: tuple[int, int]
) -> tuple[Float[Tensor, " part"], tuple[AttributionPart, ...], float]:
    """Return each part's share of a logit, the parts, and the bias of the logit."""
    if isinstance(readout, FoundReadout):
        return project_found(parts, readout.stream, entry, readout.index(*where))
    module = readout.model.module
    if readout.entries == "classes":
        return _project_class(parts, readout, entry)
    if readout.side == "encoder":
        head = module.fill
        parts = parts.transform(head.to_hidden, "output.hidden").activate(head.activation_fn)
        parts = parts.normalize(head.norm, "output.hidden.norm")
        weight, biases = module.tokens.weight, head.bias
    else:
        projection = getattr(module, "projection", None)
        weight = module.tokens.weight if projection is None else projection.weight
        biases = getattr(module, "logits_bias", None)
    bias = 0.0 if biases is None else float(biases.flatten()[entry])
    return parts.vectors[:, 0] @ weight[entry].double(), parts.labels, bias


def _project_class(
    parts: LinearParts, readout: Readout, entry: int
) -> tuple[Float[Tensor, " part"], tuple[AttributionPart, ...], float]:
    module, config = readout.model.module, readout.model.config
    mean = config.pool == "mean"
    pooled = parts.vectors.mean(1, keepdim=True) if mean else parts.vectors[:, :1]
    first = LinearParts(parts.labels, pooled)
    if module.pooler is not None:
        activation = activation_function(config.pooler)
        first = first.transform(module.pooler, "output.pooled").activate(activation)
    values = first.vectors[:, 0] @ module.classifier.weight[entry].double()
    bias = float(module.classifier.bias[entry])
    second = getattr(module, "distillation_classifier", None)
    if second is None:
        return values, first.labels, bias
    others = parts.vectors[:, 1] @ second.weight[entry].double()
    values = values / 2  # the pooler may have added a part
    values[: len(others)] += others / 2
    return values, first.labels, (bias + float(second.bias[entry])) / 2
