"""Batches: the tensors of several examples, one class for each kind of data."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE_INDEX = -100
"""The label of an example that does not count, as in torch's cross-entropy."""


@dataclass(frozen=True)
class Batch:
    """Tensors that go through a model together."""

    def _map(self, function: Any) -> Any:
        return replace(
            self, **{one.name: function(getattr(self, one.name)) for one in fields(self)}
        )

    def to(self, device: torch.device | str) -> Any:
        """Return a copy on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def repeated(self) -> Any:
        """Return every example, followed by every example again."""
        return self._map(lambda tensor: torch.cat([tensor, tensor]))

    def n_targets(self) -> int:
        """Return the number of predictions that the loss is summed over."""
        raise NotImplementedError

    def without_targets(self) -> Any:
        """Return the first example with nothing to predict, for a process without a share."""
        raise NotImplementedError


@dataclass(frozen=True)
class PairBatch(Batch):
    """Source and target ids, from start token to end token, padded on the right."""

    source_ids: Int[Tensor, "batch source"]
    target_ids: Int[Tensor, "batch target"]
    source_lengths: Int[Tensor, " batch"]
    target_lengths: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.target_lengths - 1).clamp(min=0).sum())

    def without_targets(self) -> "PairBatch":
        first = self._map(lambda tensor: tensor[:1])
        return replace(first, target_lengths=torch.ones_like(first.target_lengths))


@dataclass(frozen=True)
class TextBatch(Batch):
    """Running text; every token but the first is predicted from the tokens before it."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.lengths - 1).clamp(min=0).sum())

    def without_targets(self) -> "TextBatch":
        return TextBatch(self.ids[:1], torch.ones_like(self.lengths[:1]))


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Text with some tokens hidden, and the original tokens."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch token"]
    predicted: Bool[Tensor, "batch token"]
    """True for tokens that are to be predicted."""

    def n_targets(self) -> int:
        return int(self.predicted.sum())

    def without_targets(self) -> "MaskedBatch":
        first = self._map(lambda tensor: tensor[:1])
        return replace(first, predicted=torch.zeros_like(first.predicted))


@dataclass(frozen=True)
class _LabeledBatch(Batch):
    def n_targets(self) -> int:
        return int((self.labels != IGNORE_INDEX).sum())  # type: ignore[attr-defined]

    def without_targets(self) -> Any:
        first = self._map(lambda tensor: tensor[:1])
        return replace(first, labels=torch.full_like(first.labels, IGNORE_INDEX))


@dataclass(frozen=True)
class LabeledTextBatch(_LabeledBatch):
    """Texts and their classes."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]


@dataclass(frozen=True)
class ImageBatch(_LabeledBatch):
    """Images and their classes."""

    images: Float[Tensor, "batch channel height width"]
    labels: Int[Tensor, " batch"]
