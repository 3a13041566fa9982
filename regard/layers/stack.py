"""A stack of layers, and the embedding in front of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.kv_cache import KeyValueCache
from regard.attention.mask import Mask, padding
from regard.attention.multi_head import MultiHeadAttention, Rotate
from regard.errors import InputError
from regard.layers.attention_forms import CACHEABLE, OF_ONE_TEXT, FormPlan, make_form
from regard.layers.dropout import Dropout
from regard.layers.feed_forward import FeedForward
from regard.layers.norm import make_norm
from regard.layers.position import LearnedPositions, SinusoidalPositions
from regard.tap import path_at, tap


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The numbers from which a layer is made."""

    d_model: int
    n_heads: int
    d_ff: int
    d_k: int | None = None
    d_v: int | None = None
    n_kv_heads: int | None = None
    dropout: float = 0.0
    """On what each sub-layer adds to the residual stream."""
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    norm: str = "post"
    """Where the norm stands: LayerNorm(x + f(x)), "post", or x + f(LayerNorm(x)), "pre"."""
    norm_kind: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "relu"
    attention_bias: bool = True
    feed_forward_bias: bool = True
    form: str = "exact"
    form_size: int | None = None
    """What the form is large by; see FormPlan."""
    n_positions: int = 512
    """The longest text, for forms that must know it."""
    alibi: bool = False

    def make_norm(self) -> nn.Module:
        """A norm for the residual stream."""
        return make_norm(self.norm_kind, self.d_model, eps=self.norm_eps)

    def make_attention(self, path: str, *, cross: bool = False) -> MultiHeadAttention:
        """A multi-head attention for the site `path`, which with `cross` reads another text."""
        form = FormPlan(
            name="exact" if cross and self.form in OF_ONE_TEXT else self.form,
            n_heads=self.n_heads,
            d_k=self.d_k or self.d_model // self.n_heads,
            size=self.form_size,
            n_positions=self.n_positions,
            alibi=self.alibi and not cross,
        )
        return MultiHeadAttention(
            self.d_model,
            self.n_heads,
            d_k=self.d_k,
            d_v=self.d_v,
            n_kv_heads=self.n_kv_heads,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            form=make_form(form),
            path=path,
        )


class SubLayer(nn.Module):
    """Attention or feed-forward with a residual around it.

    post-norm (the paper):        x = norm(x + dropout(f(x)))
    pre-norm (reference code):    x = x + dropout(f(norm(x)))
    """

    def __init__(self, inner: MultiHeadAttention | FeedForward, plan: LayerPlan) -> None:
        super().__init__()
        self.inner = inner
        self.norm = plan.make_norm()
        self.dropout = Dropout(plan.dropout)
        self.norm_first = plan.norm == "pre"

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        *inputs: object,
        first: int,
        **options: object,
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after this sub-layer; `first` is the position of its first token."""
        here = path_at(self.inner.path, first)
        given = tap(f"{here}.input", self.norm(x) if self.norm_first else x, "token d_model")
        x = x + self.dropout(self.inner(given, *inputs, first=first, **options))
        return tap(f"{here}.residual", x if self.norm_first else self.norm(x), "token d_model")


class Layer(nn.Module):
    """A layer of an encoder or decoder; with `cross=True` it also reads an encoder's output."""

    def __init__(self, plan: LayerPlan, *, path: str, cross: bool = False) -> None:
        super().__init__()
        self.path = path
        attention = plan.make_attention(f"{path}.self")
        self.self_attention = SubLayer(attention, plan)
        self.cross_attention = None
        if cross:
            attention = plan.make_attention(f"{path}.cross", cross=True)
            self.cross_attention = SubLayer(attention, plan)
        feed_forward = FeedForward(
            plan.d_model,
            plan.d_ff,
            activation=plan.activation,
            bias=plan.feed_forward_bias,
            dropout=plan.activation_dropout,
            path=f"{path}.feed_forward",
        )
        self.feed_forward = SubLayer(feed_forward, plan)

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        memory: Float[Tensor, "batch source d_model"] | None = None,
        *,
        allowed: Mask | None = None,
        memory_allowed: Mask | None = None,
        cache: dict[str, KeyValueCache] | None = None,
        rotate: Rotate | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after this layer."""
        own = cache[f"{self.path}.self"] if cache is not None else None
        first = own.length if own is not None else 0
        x = self.self_attention(x, first=first, allowed=allowed, cache=own, rotate=rotate)
        if self.cross_attention is not None:
            read = cache[f"{self.path}.cross"] if cache is not None else None
            x = self.cross_attention(x, memory, first=first, allowed=memory_allowed, cache=read)
        return self.feed_forward(x, first=first)


Lengths = Sequence[int] | Int[Tensor, "batch"]
"""How many tokens of each sequence of a batch are real."""


class InputEmbedding(nn.Module):
    """Token vectors with position vectors added, normalized where the model does so, and dropout.

    Args:
        positions: what is added; None for models whose attention knows positions, or none at all.
        norm: a norm for the sum, as BERT has it.
        n_types: how many kinds of tokens there are (BERT's first and second sentence).
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
        tokens: Float[Tensor, "batch token d_model"],
        where: Int[Tensor, "rows token"],
        *,
        types: Int[Tensor, "batch token"] | None = None,
        first: int = 0,
    ) -> Float[Tensor, "batch token d_model"]:
        """What the first layer reads: `where` says at which position each token stands."""
        here = path_at(self.path, first)
        x = tap(f"{here}.tokens", tokens, "token d_model")
        if self.types is not None:
            kinds = where.new_zeros(1, x.size(1)) if types is None else types
            x = x + tap(f"{here}.types", self.types(kinds), "token d_model")
        if self.positions is not None:
            vectors = self.positions(where, x, stop=first + x.size(1))
            x = x + tap(f"{here}.positions", vectors, "token d_model")
        x = x if self.norm is None else self.norm(x)
        return tap(f"{here}.output", self.dropout(x), "token d_model")


class Stack(nn.Module):
    """`n_layers` layers one after another; in pre-norm, one more norm at the end.

    With `cross=True` every layer also reads the output of an encoder.
    """

    def __init__(self, plan: LayerPlan, n_layers: int, *, path: str, cross: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(plan, path=f"{path}.layers.{i}", cross=cross) for i in range(n_layers)
        )
        self.norm = plan.make_norm() if plan.norm == "pre" else None
        self.path = path
        self.form = plan.form

    def forward(
        self,
        x: Float[Tensor, "batch token d_model"],
        memory: Float[Tensor, "batch source d_model"] | None = None,
        *,
        allowed: Mask | None = None,
        memory_allowed: Mask | None = None,
        cache: dict[str, KeyValueCache] | None = None,
        rotate: Rotate | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """The residual stream after the last layer."""
        first = cache_length(cache)
        for layer in self.layers:
            x = layer(
                x,
                memory,
                allowed=allowed,
                memory_allowed=memory_allowed,
                cache=cache,
                rotate=rotate,
            )
        x = x if self.norm is None else self.norm(x)
        return tap(f"{path_at(self.path, first)}.output", x, _AXES)

    @property
    def cacheable(self) -> bool:
        """Whether one new token can be read after others without reading those again."""
        return self.form in CACHEABLE

    def new_cache(self) -> dict[str, KeyValueCache]:
        """An empty cache for every attention site, by its path."""
        if not self.cacheable:
            raise InputError(
                f"{self.form} attention cannot go on from keys that were kept: read the whole text "
                "again at each step, without a cache."
            )
        sites: dict[str, KeyValueCache] = {}
        for i, layer in enumerate(self.layers):
            sites[f"{self.path}.layers.{i}.self"] = KeyValueCache()
            if layer.cross_attention is not None:
                sites[f"{self.path}.layers.{i}.cross"] = KeyValueCache(grows=False)
        return sites


_AXES = "token d_model"


def without_padding(lengths: Lengths | None) -> Mask | None:
    """The mask that hides padding on the right; None where there is none."""
    return None if lengths is None else padding(lengths)


def cache_length(cache: dict[str, KeyValueCache] | None) -> int:
    """How many positions were read already: the position of the next token."""
    if not cache:
        return 0
    return next(site.length for site in cache.values() if site.grows)
