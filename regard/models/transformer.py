"""The Transformer: an encoder reads the source, a decoder writes the target token by token.

Vaswani et al. 2017, "Attention Is All You Need".
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.mask import Lengths, causal, padding
from regard.layers.initialize import initialize
from regard.layers.position import token_positions
from regard.layers.stack import Cache, InputEmbedding, Stack, cache_length, without_padding
from regard.models.config import StackConfig, check_causal
from regard.models.encoder_decoder import EncoderDecoder, SourceIds, TargetIds, check_vocabularies


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
    """source ids ── embed ── encoder ──▶ memory ──┐
    target ids ── embed ──────────────── decoder ──┴──▶ states ── project ──▶ logits

    The decoder makes its causal mask itself, and `forward` shifts the target itself.
    """  # noqa: D205, D415  a picture

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
