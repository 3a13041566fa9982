"""The Transformer: an encoder reads the source, a decoder writes the target token by token.

Vaswani et al. 2017, "Attention Is All You Need".
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.kv_cache import KeyValueCache
from regard.attention.mask import causal, padding
from regard.errors import InputError
from regard.layers.embedding import TokenEmbedding
from regard.layers.initialize import initialize
from regard.layers.position import token_positions
from regard.layers.stack import InputEmbedding, Lengths, Stack, cache_length, without_padding
from regard.models.config import StackConfig, check_causal, check_choice, check_counts, check_pad
from regard.models.summary import summarize
from regard.tap import path_at, tap

TIES = ("all", "target", "none")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """What a Transformer is made of; the defaults are the paper's base model."""

    family: ClassVar[str] = "transformer"

    n_vocab: int
    n_source_vocab: int | None = None
    """Where the source has a vocabulary of its own."""
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    tie: str = "all"
    """Which matrices are one: source, target and projection; target and projection; or none."""
    scale_embedding: bool = True
    """Whether embeddings are multiplied by sqrt(d_model)."""
    logits_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_causal(self)
        check_counts(self, "n_vocab", "n_source_vocab", "n_encoder_layers", "n_decoder_layers")
        check_pad(self, self.n_vocab)
        check_choice(self, "tie", TIES)
        check_tie(self.tie, self.n_vocab, self.n_source_vocab)


class Transformer(nn.Module):
    """source ids ── embed ── encoder ──▶ memory ──┐
    target ids ── embed ──────────────── decoder ──┴──▶ states ── project ──▶ logits

    The decoder makes its causal mask itself, and `forward` shifts the target itself.
    """  # noqa: D205, D415  a picture

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        d_model, plan = config.d_model, config.plan()
        scaled = config.scale_embedding
        self.tokens = TokenEmbedding(config.n_vocab, d_model, scaled=scaled)
        self.source_tokens = None
        if config.tie != "all":
            n_source = config.n_source_vocab or config.n_vocab
            self.source_tokens = TokenEmbedding(n_source, d_model, scaled=scaled)
        self.encoder_embedding, self.decoder_embedding = (
            InputEmbedding(
                d_model, positions=config.make_positions(), dropout=config.dropout, path=path
            )
            for path in ("encoder", "decoder")
        )
        self.encoder = Stack(plan, config.n_encoder_layers, path="encoder")
        self.decoder = Stack(plan, config.n_decoder_layers, path="decoder", cross=True)
        self.rotary = config.make_rotary()
        self.projection = None
        if config.tie == "none":
            self.projection = nn.Linear(d_model, config.n_vocab, bias=False)
        self.logits_bias = nn.Parameter(torch.zeros(config.n_vocab)) if config.logits_bias else None
        initialize(self, config.initialization)

    def forward(
        self,
        source_ids: Int[Tensor, "batch source"],
        target_ids: Int[Tensor, "batch target"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 vocab"]:
        """Logits of target tokens 1, 2, … given those before each.

        `target_ids` is the whole target, from its start token to its end token: what the decoder
        reads is cut out of it here, so that it cannot see what it shall predict.
        """
        states = self.states(source_ids, target_ids, source_lengths, target_lengths)
        return self.project(states)

    def states(
        self,
        source_ids: Int[Tensor, "batch source"],
        target_ids: Int[Tensor, "batch target"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 d_model"]:
        """What `forward` projects onto the vocabulary, for losses that do so piece by piece."""
        memory = self.encode(source_ids, source_lengths)
        if target_lengths is not None:
            target_lengths = (torch.as_tensor(target_lengths) - 1).clamp(min=0)
        return self.decode(
            shift_right(target_ids), memory, source_lengths, target_lengths=target_lengths
        )

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_lengths: Lengths | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """The source as the decoder reads it: one vector for each of its tokens."""
        tokens = (self.source_tokens or self.tokens)(source_ids)
        where = token_positions(source_ids.size(1), device=source_ids.device)
        return self.encoder(
            self.encoder_embedding(tokens, where),
            allowed=without_padding(source_lengths),
            rotate=None if self.rotary is None else self.rotary.at(where, tokens),
        )

    def decode(
        self,
        target_ids: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,
        cache: dict[str, KeyValueCache] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """One vector for each token of the decoder's input, which sees itself and those before.

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

    def project(
        self, states: Float[Tensor, "*batch d_model"], *, first: int = 0
    ) -> Float[Tensor, "*batch vocab"]:
        """How well each token of the vocabulary would come next: the logits of a softmax."""
        logits = (self.projection or self.tokens.project)(states)
        if self.logits_bias is not None:
            logits = logits + self.logits_bias
        return tap(f"{path_at('output', first)}.logits", logits, "token vocab")

    def new_cache(self) -> dict[str, KeyValueCache]:
        """Room for what the decoder has read, by attention site; see `decode`."""
        return self.decoder.new_cache()

    @property
    def tied(self) -> bool:
        """Whether the embedding's matrix is the projection as well."""
        return self.projection is None

    def __repr__(self) -> str:
        return str(summarize(self))


def check_tie(tie: str, n_vocab: int, n_source_vocab: int | None) -> None:
    """Refuse one embedding for two vocabularies."""
    if tie == "all" and n_source_vocab not in (None, n_vocab):
        raise InputError(
            f"source and target have vocabularies of {n_source_vocab} and {n_vocab} tokens, so "
            "they cannot share one embedding: choose tie='target' or tie='none'."
        )


def shift_right(target_ids: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target-1"]:
    """What the decoder reads to predict tokens 1, 2, …: start token in front, last one dropped."""
    if target_ids.size(1) < 2:
        raise InputError(
            f"the target has {target_ids.size(1)} token; it needs at least its start token and "
            "one token to predict."
        )
    return target_ids[:, :-1]
