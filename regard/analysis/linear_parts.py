"""Vectors that sum to a value of a model, on their way through its norms and linear layers.

A norm divides by a scale that depends on the sum of all parts; it is held at its actual value,
which makes the norm linear and the sum exact. An activation is likewise held at its actual gain,
activation(x) / x.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.analysis.readout import stream_at
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
