"""Decoder-only models: every token sees itself and those before, and predicts the next.

GPT-like models (Radford et al. 2019) have learned positions, LayerNorm and GELU; Llama-like models
(Touvron et al. 2023) have rotary positions, RMSNorm, SwiGLU, grouped heads and no biases.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths, causal, padding
from regard.errors import InputError
from regard.layers.embedding import TokenEmbedding, token_positions
from regard.layers.stack import Cache, InputEmbedding, Stack, cache_length, initialize
from regard.models.config import StackConfig, check_causal, check_pad
from regard.models.summary import summarize
from regard.tap import path_at, tap


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """Settings of a decoder-only model; the defaults are those of GPT-2."""

    family: ClassVar[str] = "decoder"

    n_vocab: int
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    norm: str = "pre"
    activation: str = "gelu_new"
    positions: str = "learned"
    max_positions: int = 1024
    initialization: str = "normal"
    tie: bool = True  # use the embedding as the projection onto the vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        check_causal(self)
        self.check_counts("n_vocab", "n_layers")
        check_pad(self.pad_id, self.n_vocab)


def llama_config(**fields: Any) -> DecoderConfig:
    """Build a Llama-like configuration; `fields` are those of DecoderConfig."""
    llama: dict[str, Any] = {
        "norm_kind": "rms",
        "norm_eps": 1e-6,
        "activation": "swiglu",
        "positions": "rotary",
        "attention_bias": False,
        "feed_forward_bias": False,
        "dropout": 0.0,
        "tie": False,
    }
    return DecoderConfig(**(llama | fields))


class Decoder(nn.Module):
    """The decoder-only Transformer, which makes its causal mask itself.

    ids ── embed ── decoder ──▶ states ── project ──▶ logits of the next token, at every token
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.n_vocab, config.d_model)
        positions, dropout = config.make_positions(), config.dropout
        self.embedding = InputEmbedding(
            config.d_model, positions=positions, dropout=dropout, path="decoder"
        )
        self.decoder = Stack(config, config.n_layers, path="decoder")
        self.rotary = config.make_rotary()
        self.projection = None
        if not config.tie:
            self.projection = nn.Linear(config.d_model, config.n_vocab, bias=False)
        initialize(self, config.initialization)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        lengths: Lengths | None = None,
        *,
        cache: Cache | None = None,
        side: str = "right",
    ) -> Float[Tensor, "batch token vocab"]:
        """Return the logits of the next token at every token."""
        first = cache_length(cache)
        return self.project(self.states(ids, lengths, cache=cache, side=side), first=first)

    def states(
        self,
        ids: Int[Tensor, "batch token"],
        lengths: Lengths | None = None,
        *,
        cache: Cache | None = None,
        side: str = "right",
    ) -> Float[Tensor, "batch token d_model"]:
        """Return one vector for each token, which depends on no later token.

        Args:
            ids: with a cache, only the tokens that were not read before.
            lengths: number of real tokens of each sequence, including those in the cache.
            side: the side of the padding; on the left, positions count from the first real token.
        """
        first, counted = cache_length(cache), None
        allowed = causal(offset=first)
        if lengths is not None:
            allowed = allowed & padding(lengths, side=side)
            if side == "left":
                counted = torch.as_tensor(lengths)
            elif cache is not None:
                raise InputError("with a cache, pad on the left (side='left').")
        where = token_positions(ids.size(1), first=first, lengths=counted, device=ids.device)
        tokens = self.tokens(ids)
        return self.decoder(
            self.embedding(tokens, where, first=first),
            allowed=allowed,
            cache=cache,
            rotate=None if self.rotary is None else self.rotary.at(where, tokens),
        )

    def project(
        self, states: Float[Tensor, "*batch d_model"], *, first: int = 0
    ) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of the next token; `first` is the position of the first state."""
        logits = (self.projection or self.tokens.project)(states)
        return tap(f"{path_at('output', first)}.logits", logits, "token vocab")

    def new_cache(self) -> Cache:
        return self.decoder.new_cache()

    def __repr__(self) -> str:
        return str(summarize(self))
