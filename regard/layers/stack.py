"""Layers of encoders and decoders, stacks of them, and the embedding in front.

The initialization schemes of all models:

    xavier_uniform   U(±sqrt(6 / (n_in + n_out)))     Glorot and Bengio 2010
    xavier_normal    N(0, 2 / (n_in + n_out))         (variances, not their roots)
    lecun            N(0, 1 / n_in)                   LeCun et al. 1998
    normal           N(0, 0.02²)                      as in BERT and GPT-2

Biases start at 0 and norms at 1. Embeddings start with N(0, 1 / d_model), so that they have unit
variance after multiplication by sqrt(d_model), as do logits that share the matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths, Mask, padding
from regard.attention.multi_head import KeyValueCache, MultiHeadAttention, Rotate
from regard.errors import InputError, check_choice
from regard.layers.attention_forms import CACHEABLE, SELF_ONLY, AttentionConfig
from regard.layers.embedding import LearnedPositions, SinusoidalPositions, TokenEmbedding
from regard.layers.feed_forward import Dropout, FeedForward
from regard.tap import path_at, tap

_MATRICES: dict[str, Callable[[Tensor], object]] = {
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "lecun": lambda weight: nn.init.normal_(weight, std=weight[0].numel() ** -0.5),
    "lecun_uniform": lambda weight: nn.init.kaiming_uniform_(weight, nonlinearity="linear"),
    "he": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "he_uniform": lambda weight: nn.init.kaiming_uniform_(weight, nonlinearity="relu"),
    "normal": lambda weight: nn.init.normal_(weight, std=0.02),
}
INITIALIZATIONS = tuple(_MATRICES)


@torch.no_grad()
def initialize(model: nn.Module, scheme: str = "xavier_uniform") -> None:
    """Initialize every matrix, bias, embedding and norm of the model."""
    check_choice("initialization", scheme, _MATRICES)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            _MATRICES[scheme](module.weight)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, TokenEmbedding | LearnedPositions | nn.Embedding):
            std = 0.02 if scheme == "normal" else module.weight.size(-1) ** -0.5
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.weight.fill_(1.0)
            if isinstance(module, nn.LayerNorm):
                module.bias.zero_()


NORMS = ("layer", "rms")
Stream: TypeAlias = Float[Tensor, "batch token d_model"]
Cache: TypeAlias = dict[str, KeyValueCache]
"""The cached keys and values of every attention site, by path."""


def make_norm(kind: str, d_model: int, *, eps: float = 1e-5) -> nn.Module:
    """Build layer normalization (Ba et al. 2016) or root-mean-square normalization (Zhang 2019)."""
    check_choice("norm_kind", kind, NORMS)
    return (nn.LayerNorm if kind == "layer" else nn.RMSNorm)(d_model, eps=eps)


@dataclass(frozen=True, kw_only=True)
class LayerConfig(AttentionConfig):
    """The settings of a layer; the configurations of models made of layers extend them."""

    d_model: int
    n_heads: int
    d_ff: int
    d_k: int | None = None  # width of a head's queries and keys; d_model / n_heads by default
    d_v: int | None = None  # width of a head's values; d_k by default
    n_kv_heads: int | None = None
    """Key/value heads shared by groups of query heads; n_heads by default."""
    dropout: float = 0.0  # on embeddings and on what each sub-layer adds to the residual stream
    attention_dropout: float = 0.0
    activation_dropout: float | None = None  # inside the feed-forward; `dropout` by default
    norm: str = "post"  # LayerNorm(x + f(x)) for "post", x + f(LayerNorm(x)) for "pre"
    norm_kind: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "relu"
    attention_bias: bool = True
    feed_forward_bias: bool = True

    @property
    def alibi(self) -> bool:
        """True if positions are expressed by ALiBi."""
        return False

    @property
    def n_tokens(self) -> int:
        """The longest input, for forms of attention that must know it."""
        return 512

    @property
    def d_head(self) -> int:
        return self.d_k or self.d_model // self.n_heads

    def make_norm(self) -> nn.Module:
        return make_norm(self.norm_kind, self.d_model, eps=self.norm_eps)

    def make_attention(self, path: str, *, cross: bool = False) -> MultiHeadAttention:
        """Build the multi-head attention of the site `path`."""
        sizes = {"n_heads": self.n_heads, "d_k": self.d_head, "d_v": self.d_v}
        exact = cross and self.attention in SELF_ONLY
        config = AttentionConfig() if exact else self
        alibi = self.alibi and not cross
        return MultiHeadAttention(
            self.d_model,
            self.n_heads,
            d_k=self.d_k,
            d_v=self.d_v,
            n_kv_heads=self.n_kv_heads,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            form=config.make_form(**sizes, n_tokens=self.n_tokens, alibi=alibi),
            path=path,
        )


class SubLayer(nn.Module):
    """Attention or feed-forward with a residual around it.

    post-norm (the paper):        x = norm(x + dropout(f(x)))
    pre-norm (reference code):    x = x + dropout(f(norm(x)))
    """

    def __init__(self, inner: MultiHeadAttention | FeedForward, config: LayerConfig) -> None:
        super().__init__()
        self.inner = inner
        self.norm = config.make_norm()
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm == "pre"

    def forward(self, x: Stream, *inputs: object, first: int, **options: object) -> Stream:
        """Return the residual stream after this sub-layer, whose first token is at `first`."""
        here = path_at(self.inner.path, first)
        normed = tap(f"{here}.input", self.norm(x) if self.norm_first else x, "token d_model")
        x = x + self.dropout(self.inner(normed, *inputs, first=first, **options))
        return tap(f"{here}.residual", x if self.norm_first else self.norm(x), "token d_model")


class Layer(nn.Module):
    """A layer of an encoder or decoder; with `cross=True` it also reads an encoder's output."""

    def __init__(self, config: LayerConfig, *, path: str, cross: bool = False) -> None:
        super().__init__()
        self.path = path
        self.self_attention = SubLayer(config.make_attention(f"{path}.self"), config)
        self.cross_attention = None
        if cross:
            attention = config.make_attention(f"{path}.cross", cross=True)
            self.cross_attention = SubLayer(attention, config)
        dropout = config.activation_dropout
        feed_forward = FeedForward(
            config.d_model,
            config.d_ff,
            activation=config.activation,
            bias=config.feed_forward_bias,
            dropout=config.dropout if dropout is None else dropout,
            path=f"{path}.feed_forward",
        )
        self.feed_forward = SubLayer(feed_forward, config)

    def forward(
        self,
        x: Stream,
        memory: Float[Tensor, "batch source d_model"] | None = None,
        *,
        allowed: Mask | None = None,
        memory_allowed: Mask | None = None,
        cache: Cache | None = None,
        rotate: Rotate | None = None,
    ) -> Stream:
        own = cache[f"{self.path}.self"] if cache is not None else None
        first = own.length if own is not None else 0
        x = self.self_attention(x, first=first, allowed=allowed, cache=own, rotate=rotate)
        if self.cross_attention is not None:
            read = cache[f"{self.path}.cross"] if cache is not None else None
            x = self.cross_attention(x, memory, first=first, allowed=memory_allowed, cache=read)
        return self.feed_forward(x, first=first)


class InputEmbedding(nn.Module):
    """Token vectors plus position vectors, with an optional norm, and dropout.

    Args:
        positions: position vectors to add; None if attention handles positions.
        n_types: number of token types (2 in BERT: first and second sentence).
    """

    def __init__(
        self,
        d_model: int,
        *,
        positions: SinusoidalPositions | LearnedPositions | None = None,
        norm: nn.Module | None = None,
        n_types: int = 0,
        dropout: float = 0.0,
        path: str = "encoder",
    ) -> None:
        super().__init__()
        self.positions = positions
        self.types = nn.Embedding(n_types, d_model) if n_types else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.path = f"{path}.embedding"

    def forward(
        self,
        tokens: Stream,
        where: Int[Tensor, "rows token"],
        *,
        types: Int[Tensor, "batch token"] | None = None,
        first: int = 0,
    ) -> Stream:
        """Return the input of the first layer; `where` holds the position of each token."""
        here = path_at(self.path, first)
        x = tap(f"{here}.tokens", tokens, "token d_model")
        if self.types is not None:
            ids = where.new_zeros(1, x.size(1)) if types is None else types
            x = x + tap(f"{here}.types", self.types(ids), "token d_model")
        if self.positions is not None:
            vectors = self.positions(where, x, stop=first + x.size(1))
            x = x + tap(f"{here}.positions", vectors, "token d_model")
        x = x if self.norm is None else self.norm(x)
        return tap(f"{here}.output", self.dropout(x), "token d_model")


class Stack(nn.Module):
    """`n_layers` layers in sequence; in pre-norm, with one more norm at the end.

    With `cross=True` every layer also reads the output of an encoder.
    """

    def __init__(
        self, config: LayerConfig, n_layers: int, *, path: str, cross: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(config, path=f"{path}.layers.{i}", cross=cross) for i in range(n_layers)
        )
        self.norm = config.make_norm() if config.norm == "pre" else None
        self.path = path
        self.form = config.attention

    def forward(
        self,
        x: Stream,
        memory: Float[Tensor, "batch source d_model"] | None = None,
        *,
        allowed: Mask | None = None,
        memory_allowed: Mask | None = None,
        cache: Cache | None = None,
        rotate: Rotate | None = None,
    ) -> Stream:
        first = cache_length(cache)
        shared = {"memory_allowed": memory_allowed, "cache": cache, "rotate": rotate}
        for layer in self.layers:
            x = layer(x, memory, allowed=allowed, **shared)
        x = x if self.norm is None else self.norm(x)
        return tap(f"{path_at(self.path, first)}.output", x, "token d_model")

    @property
    def cacheable(self) -> bool:
        """True if new tokens can be read without reading the earlier ones again."""
        return self.form in CACHEABLE

    def new_cache(self) -> Cache:
        """Return an empty cache for every attention site, by path."""
        if not self.cacheable:
            raise InputError(f"{self.form} attention cannot use cached keys: leave out the cache.")
        sites: Cache = {}
        for i, layer in enumerate(self.layers):
            sites[f"{self.path}.layers.{i}.self"] = KeyValueCache()
            if layer.cross_attention is not None:
                sites[f"{self.path}.layers.{i}.cross"] = KeyValueCache(grows=False)
        return sites


def without_padding(lengths: Lengths | None) -> Mask | None:
    """Return the mask that hides padding on the right, or None without lengths."""
    return None if lengths is None else padding(lengths)


def cache_length(cache: Cache | None) -> int:
    """Return the number of positions read so far, which is the position of the next token."""
    if not cache:
        return 0
    return next(site.length for site in cache.values() if site.grows)
