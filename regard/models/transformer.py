"""The Transformer: an encoder reads the source, a decoder writes the target token by token.

Vaswani et al. 2017, "Attention Is All You Need". `EncoderDecoder` holds what recurrent translators
share with it: embeddings, teacher forcing and the projection.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths, causal, padding
from regard.errors import InputError, check_choice
from regard.layers.embedding import TokenEmbedding, token_positions
from regard.layers.stack import (
    Cache,
    InputEmbedding,
    Stack,
    cache_length,
    initialize,
    without_padding,
)
from regard.models.config import StackConfig, check_causal, check_pad
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


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """Settings of a Transformer; the defaults are the paper's base model."""

    family: ClassVar[str] = "transformer"

    n_vocab: int
    n_source_vocab: int | None = None  # size of a separate source vocabulary
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    tie: str = "all"
    """Matrices that are one: source, target and projection; target and projection; or none."""
    scale_embedding: bool = True  # multiply embeddings by sqrt(d_model)
    logits_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_causal(self)
        self.check_counts("n_encoder_layers", "n_decoder_layers")
        check_vocabularies(self)


class Transformer(EncoderDecoder):
    """The encoder–decoder Transformer.

    source ids ── embed ── encoder ──▶ memory ──┐
    target ids ── embed ───────────── decoder ──┴──▶ states ── project ──▶ logits

    The decoder makes its causal mask itself, and `forward` shifts the target itself.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.d_model, scaled=config.scale_embedding)
        self.encoder_embedding, self.decoder_embedding = (
            InputEmbedding(
                config.d_model, positions=config.make_positions(), dropout=config.dropout, path=path
            )
            for path in ("encoder", "decoder")
        )
        self.encoder = Stack(config, config.n_encoder_layers, path="encoder")
        self.decoder = Stack(config, config.n_decoder_layers, path="decoder", cross=True)
        self.rotary = config.make_rotary()
        self.projection = self.make_projection()
        self.logits_bias = nn.Parameter(torch.zeros(config.n_vocab)) if config.logits_bias else None
        initialize(self, config.initialization)

    def encode(
        self, source_ids: SourceIds, source_lengths: Lengths | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Return one vector for each source token."""
        tokens = (self.source_tokens or self.tokens)(source_ids)
        where = token_positions(source_ids.size(1), device=source_ids.device)
        return self.encoder(
            self.encoder_embedding(tokens, where),
            allowed=without_padding(source_lengths),
            rotate=None if self.rotary is None else self.rotary.at(where, tokens),
        )

    def decode(
        self,
        target_ids: TargetIds,
        memory: Float[Tensor, "batch source d_model"],
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Return one vector for each token of the decoder's input, which sees no later token.

        With a cache (`new_cache`), `target_ids` are only the tokens that were not read before.
        `target_lengths` changes no real token's vector: padding on the right lies in its future.
        """
        first = cache_length(cache)
        tokens = self.tokens(target_ids)
        where = token_positions(target_ids.size(1), first=first, device=target_ids.device)
        allowed = causal(offset=first)
        if target_lengths is not None:
            allowed = allowed & padding(target_lengths)
        return self.decoder(
            self.decoder_embedding(tokens, where, first=first),
            memory,
            allowed=allowed,
            memory_allowed=without_padding(source_lengths),
            cache=cache,
            rotate=None if self.rotary is None else self.rotary.at(where, tokens),
        )

    def new_cache(self) -> Cache:
        return self.decoder.new_cache()
