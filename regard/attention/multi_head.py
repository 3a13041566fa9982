"""Attention in several learned subspaces at once."""

from collections.abc import Callable
from typing import Unpack

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.attend import FormOptions, attend
from regard.attention.kv_cache import KeyValueCache
from regard.attention.mask import Mask
from regard.attention.similarity import Similarity
from regard.errors import InputError, ShapeError
from regard.tap import tap

Form = Callable[..., Tensor]
"""A form of attention: (query, key, value, **FormOptions) → context."""
Rotate = Callable[[Tensor, int], Tensor]
"""Turns queries or keys by their positions: (vectors, position of the first) → vectors."""


class ExactForm(nn.Module):
    """Attention by its definition, with a similarity that may have weights to learn."""

    def __init__(self, similarity: str | Similarity = "scaled_dot") -> None:
        super().__init__()
        self.similarity = similarity

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Unpack[FormOptions]
    ) -> Tensor:
        return attend(query, key, value, similarity=self.similarity, **options)


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` learned subspaces (Vaswani et al. 2017, section 3.2.2).

    x_query ── to_query ──┐
    x_key ──── to_key ────┼── attend, per head ── concat ── to_output ──▶
    x_key ──── to_value ──┘

    Args:
        d_model: width of the queries' inputs and of the result.
        n_heads: how many subspaces.
        d_k: width of each head's queries and keys; d_model / n_heads unless given.
        d_v: width of each head's values; like d_k unless given.
        d_input: width of the inputs of keys and values, where it is not d_model.
        n_kv_heads: how many heads of keys and values the query heads share in groups.
        bias: whether the four projections have biases.
        dropout: on the weights, while training.
        form: how the heads attend; exact scaled dot-product attention unless given.
        path: the site's name in traces.
    """

    def __init__(  # noqa: PLR0913  the paper's table varies each of these by itself
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        d_input: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        form: Form | None = None,
        path: str = "attention",
    ) -> None:
        super().__init__()
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        _check_sizes(**sizes, d_k=d_k, d_v=d_v, d_input=d_input)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_k = d_k or _share(d_model, n_heads)
        self.d_v = d_v or self.d_k
        if self.n_heads % self.n_kv_heads:
            raise InputError(
                f"{n_heads} query heads cannot share {n_kv_heads} key/value heads evenly; "
                f"n_kv_heads must divide {n_heads}."
            )
        self.d_model, self.d_input = d_model, d_input or d_model
        self.to_query = nn.Linear(d_model, self.n_heads * self.d_k, bias=bias)
        # In some forms (Reformer) queries are their own keys: then one projection serves both.
        shared = getattr(form, "shares_query_and_key", False)
        width = self.n_kv_heads * self.d_k
        self.to_key = None if shared else nn.Linear(self.d_input, width, bias=bias)
        self.to_value = nn.Linear(self.d_input, self.n_kv_heads * self.d_v, bias=bias)
        self.to_output = nn.Linear(self.n_heads * self.d_v, d_model, bias=bias)
        self.form = form or attend
        self.dropout = dropout
        self.path = path

    def forward(
        self,
        x_query: Float[Tensor, "batch query d_model"],
        x_key: Float[Tensor, "batch key d_input"] | None = None,
        *,
        allowed: Mask | Tensor | None = None,
        cache: KeyValueCache | None = None,
        rotate: Rotate | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """What each position of `x_query` takes from `x_key` (from itself where that is absent).

        With a cache, self-attention reads the keys of earlier steps before its own; the caller's
        mask speaks of all of them. `first` is the position of the first query, which only a cache
        of self-attention knows by itself.
        """
        if first is None:
            first = cache.length if cache is not None and cache.grows else 0
        # With a cache more queries may follow, of which listeners must know from the first step on.
        site = self.path if cache is None and first == 0 else f"{self.path}@{first}"
        _check_width("queries", x_query, self.d_model)
        query = self._heads(self.to_query(x_query), self.n_heads)
        if rotate is not None:
            query = rotate(query, first)
        key, value = self._keys_and_values(x_query if x_key is None else x_key, cache, rotate)
        if self.n_kv_heads != self.n_heads:
            group = self.n_heads // self.n_kv_heads
            key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        dropout = self.dropout if self.training else 0.0
        context = self.form(query, key, value, allowed=allowed, dropout=dropout, site=site)
        joined = rearrange(context, "batch head query d_v -> batch query (head d_v)")
        joined = tap(f"{site}.joined", joined, "query d_heads")
        return tap(f"{site}.output", self.to_output(joined), "query d_model")

    def _keys_and_values(
        self, x_key: Tensor, cache: KeyValueCache | None, rotate: Rotate | None
    ) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.filled:
            return cache.read()
        _check_width("keys", x_key, self.d_input)
        key = self._heads((self.to_key or self.to_query)(x_key), self.n_kv_heads)
        value = self._heads(self.to_value(x_key), self.n_kv_heads)
        if rotate is not None:
            key = rotate(key, cache.length if cache is not None else 0)
        return (key, value) if cache is None else cache.extend(key, value)

    def _heads(self, x: Tensor, n_heads: int) -> Tensor:
        return rearrange(x, "batch token (head d) -> batch head token d", head=n_heads)


def _check_width(which: str, x: Tensor, width: int) -> None:
    if x.size(-1) != width:
        raise ShapeError(
            f"the inputs of the {which} are {x.size(-1)} wide, but attention was made for {width}: "
            "give inputs of that width, or make it with other d_model and d_input."
        )


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise InputError(f"{name} is {size}; it must be 1 or larger.")


def _share(d_model: int, n_heads: int) -> int:
    if d_model % n_heads:
        raise InputError(
            f"a width of {d_model} cannot be shared by {n_heads} heads evenly; choose n_heads that "
            f"divides {d_model}, or give d_k."
        )
    return d_model // n_heads
