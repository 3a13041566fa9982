"""TODO."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NO_LABEL = -100
"""The label of an example that does not count."""


@dataclass(frozen=True)
class Batch:
    """Tensors that go through a model together."""

    def to(self, device: torch.device | str) -> Any:
        """The same on another device."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: part.to(device) for name, part in parts.items()})

    def twice(self) -> Any:
        """Every example, and then every example again."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: torch.cat([part, part]) for name, part in parts.items()})

    def n_targets(self) -> int:
        """How many predictions the loss is summed over."""
        raise NotImplementedError

    def n_tokens(self) -> int:
        """How many places the model computes, padding included."""
        raise NotImplementedError

    def blank(self) -> Any:
        """The first example with nothing to predict: what a process computes that has no share."""
        raise NotImplementedError


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources and targets, from start token to end token; padding stands on the right."""

    source_ids: Int[Tensor, "batch source"]
    target_ids: Int[Tensor, "batch target"]
    source_lengths: Int[Tensor, " batch"]
    target_lengths: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.target_lengths - 1).clamp(min=0).sum())

    def n_tokens(self) -> int:
        return self.source_ids.numel() + self.target_ids.numel()

    def blank(self) -> "PairBatch":
        source, target = self.source_ids[:1], self.target_ids[:1]
        one = torch.ones_like(self.target_lengths[:1])
        return PairBatch(source, target, self.source_lengths[:1], one)


@dataclass(frozen=True)
class TextBatch(Batch):
    """Running text, in which every token but the first is to be told from those before it."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.lengths - 1).clamp(min=0).sum())

    def n_tokens(self) -> int:
        return self.ids.numel()

    def blank(self) -> "TextBatch":
        return TextBatch(self.ids[:1], torch.ones_like(self.lengths[:1]))


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Text in which some tokens are hidden, and what they were."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch token"]
    told: Bool[Tensor, "batch token"]
    """Which tokens are to be told."""

    def n_targets(self) -> int:
        return int(self.told.sum())

    def n_tokens(self) -> int:
        return self.ids.numel()

    def blank(self) -> "MaskedBatch":
        none = torch.zeros_like(self.told[:1])
        return MaskedBatch(self.ids[:1], self.lengths[:1], self.targets[:1], none)


@dataclass(frozen=True)
class LabeledTextBatch(Batch):
    """Texts and their classes."""

    ids: Int[Tensor, "batch token"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.labels != NO_LABEL).sum())

    def n_tokens(self) -> int:
        return self.ids.numel()

    def blank(self) -> "LabeledTextBatch":
        none = torch.full_like(self.labels[:1], NO_LABEL)
        return LabeledTextBatch(self.ids[:1], self.lengths[:1], none)


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images and their classes."""

    images: Float[Tensor, "batch channel height width"]
    labels: Int[Tensor, " batch"]

    def n_targets(self) -> int:
        return int((self.labels != NO_LABEL).sum())

    def n_tokens(self) -> int:
        return len(self.labels)

    def blank(self) -> "ImageBatch":
        return ImageBatch(self.images[:1], torch.full_like(self.labels[:1], NO_LABEL))
