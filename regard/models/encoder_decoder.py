"""What the encoder–decoder families share: embeddings, teacher forcing and the projection."""

from abc import abstractmethod
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths
from regard.errors import InputError, check_choice
from regard.layers.embedding import TokenEmbedding
from regard.models.config import check_pad
from regard.models.summary import summarize
from regard.tap import path_at, tap

SourceIds: TypeAlias = Int[Tensor, "batch source"]
TargetIds: TypeAlias = Int[Tensor, "batch target"]
TIES = ("all", "target", "none")
"""Matrices that are one: source, target and projection; target and projection; or none."""


def check_vocabularies(config: Any) -> None:
    """Refuse vocabularies without tokens, and one embedding for two vocabularies."""
    config.check_counts("n_vocab", "n_source_vocab")
    check_pad(config.pad_id, config.n_vocab)
    check_choice("tie", config.tie, TIES)
    if config.tie == "all" and config.n_source_vocab not in (None, config.n_vocab):
        raise InputError(
            f"source and target have vocabularies of {config.n_source_vocab} and {config.n_vocab} "
            "tokens, so they cannot share one embedding: choose tie='target' or tie='none'."
        )


class EncoderDecoder(nn.Module):
    """Base of the models that read a source and write a target token by token."""

    projection: nn.Linear | None

    def __init__(self, config: Any, d_embedding: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.n_vocab, d_embedding, scaled=scaled)
        self.source_tokens = None
        if config.tie != "all":
            n_source = config.n_source_vocab or config.n_vocab
            self.source_tokens = TokenEmbedding(n_source, d_embedding, scaled=scaled)

    def forward(
        self,
        source_ids: SourceIds,
        target_ids: TargetIds,
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 vocab"]:
        """Return the logits of target tokens 1, 2, …, each given those before it.

        `target_ids` is the whole target, from its start token to its end token; it is shifted here,
        so that the decoder cannot see the token it must predict.
        """
        return self.project(self.states(source_ids, target_ids, source_lengths, target_lengths))

    def states(
        self,
        source_ids: SourceIds,
        target_ids: TargetIds,
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 d"]:
        """Return what `forward` projects, for losses that project piece by piece."""
        memory = self.encode(source_ids, source_lengths)
        if target_lengths is not None:
            target_lengths = (torch.as_tensor(target_lengths) - 1).clamp(min=0)
        inputs = shift_right(target_ids)
        return self.decode(inputs, memory, source_lengths, target_lengths=target_lengths)

    @abstractmethod
    def encode(self, source_ids: SourceIds, source_lengths: Lengths | None = None) -> Any:
        """Read the source and return what the decoder reads."""

    @abstractmethod
    def decode(
        self,
        target_ids: TargetIds,
        memory: Any,
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,
        cache: Any = None,
    ) -> Float[Tensor, "batch target d"]:
        """Return one vector for each token of the decoder's input."""

    def project(
        self, states: Float[Tensor, "*batch d"], *, first: int = 0
    ) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of the next token; `first` is the position of the first state."""
        logits = (self.projection or self.tokens.project)(states)
        bias = getattr(self, "logits_bias", None)
        logits = logits if bias is None else logits + bias
        return tap(f"{path_at('output', first)}.logits", logits, "token vocab")

    def make_projection(self) -> nn.Linear | None:
        """Build the projection onto the vocabulary, if it is not tied to the embedding."""
        n_vocab, d_embedding = self.tokens.weight.shape
        return nn.Linear(d_embedding, n_vocab, bias=False) if self.config.tie == "none" else None

    def __repr__(self) -> str:
        return str(summarize(self))


def shift_right(target_ids: TargetIds) -> Int[Tensor, "batch target-1"]:
    """Return the decoder's input: the target without its last token."""
    if target_ids.size(1) < 2:
        raise InputError("the target needs its start token and at least one token to predict.")
    return target_ids[:, :-1]
