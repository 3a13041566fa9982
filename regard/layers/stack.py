"""A stack of layers, and the embedding in front of it."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask
from regard.attention.masks import padding
from regard.attention.multihead import Rotate
from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.layers.form import CACHEABLE
from regard.layers.layer import Layer, LayerPlan
from regard.layers.position import Learned, Sinusoidal
from regard.tap import at, tap

Lengths = Sequence[int] | Int[Tensor, "batch"]
"""How many tokens of each sequence of a batch are real."""


class InputEmbedding(nn.Module):
    """Token vectors with position vectors added, normalised where the model does so, and dropout.

    Args:
        positions: what is added; None for models whose attention knows positions, or none at all.
        norm: a norm for the sum, as BERT has it.
        n_types: how many kinds of tokens there are (BERT's first and second sentence).
    """

    def __init__(
        self,
        d_model: int,
        *,
        positions: Sinusoidal | Learned | None = None,
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
        here = at(self.path, first)
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
        first = cached(cache)
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
        return tap(f"{at(self.path, first)}.output", x, _AXES)

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


def cached(cache: dict[str, KeyValueCache] | None) -> int:
    """How many positions were read already: the position of the next token."""
    if not cache:
        return 0
    return next(site.length for site in cache.values() if site.grows)
