"""One layer of a stack: attention and feed-forward, each with its residual and its norm."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask
from regard.attention.multihead import MultiHeadAttention, Rotate
from regard.layers.dropout import Dropout
from regard.layers.feed_forward import FeedForward
from regard.layers.form import OF_ONE_TEXT, FormPlan, make_form
from regard.layers.norm import make_norm
from regard.tap import at, tap


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
        here = at(self.inner.path, first)
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
