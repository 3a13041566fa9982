"""Batches: the tensors of several examples, one class for each kind of data."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE_INDEX = -100
"""The label of an example that does not count, as in torch's cross-entropy."""


@dataclass(frozen=True)
class Batch:
    """Tensors that go through a model together."""

    _no_targets: ClassVar[tuple[str, float]]
    """A field, and its value for an example with nothing to predict."""

    def _map(self, function: Any) -> Any:
        changed = {one.name: function(getattr(self, one.name)) for one in fields(self)}
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Any:
        return self._map(lambda tensor: tensor.to(device))

    def repeated(self) -> Any:
        """Return every example, followed by every example again."""
        return self._map(lambda tensor: torch.cat([tensor, tensor]))

    def n_targets(self) -> int:
        """Return the number of predictions that the loss is summed over."""
        name, value = self._no_targets
        found = getattr(self, name)
        predicted = found != value if name in ("labels", "predicted") else (found - 1).clamp(min=0)
        return int(predicted.sum())

    def without_targets(self) -> Any:
        """Return the first example with nothing to predict, for a process without a share."""
        first, (name, value) = self._map(lambda tensor: tensor[:1]), self._no_targets
        return replace(first, **{name: torch.full_like(getattr(first, name), value)})


@dataclass(frozen=True)
class PairBatch(Batch):
    """Source and target ids, from start token to end token, padded on the right."""

    _no_targets = ("target_lengths", 1)
    source_ids: Int[Tensor, "batch source"]
    target_ids: Int[Tensor, "batch target"]
    source_lengths: Int[Tensor, " batch"]
    target_lengths: Int[Tensor, " batch"]


@dataclass(frozen=True)
class TextBatch(Batch):
    """Running text; every token but the first is predicted from the tokens before it."""

    _no_targets = ("lengths", 1)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Text with some tokens hidden, and the original tokens."""

    _no_targets = ("predicted", False)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch token"]
    predicted: Bool[Tensor, "batch token"]
    """True for tokens that are to be predicted."""


@dataclass(frozen=True)
class LabeledTextBatch(Batch):
    """Texts and their classes."""

    _no_targets = ("labels", IGNORE_INDEX)
    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images and their classes."""

    _no_targets = ("labels", IGNORE_INDEX)
    images: Float[Tensor, "batch channel height width"]
    labels: Int[Tensor, " batch"]
