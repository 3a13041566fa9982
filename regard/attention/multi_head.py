"""Multi-head attention, and the cache of keys and values for decoding step by step."""

from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.attend import attend
from regard.attention.mask import Mask
from regard.attention.tile import Grid, Tile
from regard.errors import InputError, ShapeError, check_counts
from regard.tap import Tapped, listen, path_of, tap


class KeyValueCache:
    """The keys and values that one attention site has seen so far.

    `grows=False` is for cross-attention: keys and values are computed in the first step and only
    read afterwards.
    """

    def __init__(self, *, grows: bool = True) -> None:
        self.grows = grows
        self.length = 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    @property
    def filled(self) -> bool:
        """True if cross-attention can be read without computing keys and values again."""
        return not self.grows and self._key is not None

    def read(self) -> tuple[Tensor, Tensor]:
        if self._key is None or self._value is None:
            raise LookupError("nothing was written to this cache")
        return self._key[..., : self.length, :], self._value[..., : self.length, :]

    def extend(
        self, key: Float[Tensor, "*batch key d_k"], value: Float[Tensor, "*batch key d_v"]
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values and return all of them."""
        if not self.grows or self._key is None or self._value is None:
            self._key, self._value, self.length = key, value, key.size(-2)
            return key, value
        end = self.length + key.size(-2)
        self._key = _with_capacity(self._key, self.length, end)
        self._value = _with_capacity(self._value, self.length, end)
        self._key[..., self.length : end, :] = key
        self._value[..., self.length : end, :] = value
        self.length = end
        return self.read()

    def keep(self, rows: Int[Tensor, "rows"]) -> None:
        """Keep these rows of the batch, in this order, as beams move and finish."""
        if self._key is not None and self._value is not None:
            self._key, self._value = self._key[rows], self._value[rows]


def _with_capacity(old: Tensor, length: int, wanted: int) -> Tensor:
    """Return a buffer for at least `wanted` positions; it doubles, so that growing is cheap."""
    if old.size(-2) >= wanted and old.size(-2) > length:
        return old
    new = old.new_empty(*old.shape[:-2], max(2 * old.size(-2), wanted, 32), old.size(-1))
    new[..., :length, :] = old[..., :length, :]
    return new


Rotate = Callable[[Tensor, int], Tensor]
"""Rotates queries or keys by their positions: (vectors, position of the first) → vectors."""


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` trained subspaces (Vaswani et al. 2017, section 3.2.2).

    query ── to_query ──┐
    key ──── to_key ────┼── attend, per head ── concat ── to_output ──▶
    value ── to_value ──┘

    Calls look like those of `nn.MultiheadAttention(batch_first=True)`: `mha(x)`,
    `mha(query, key, value)`, or `mha(query, key, value, need_weights=True)` for the pair
    (output, weights). In contrast to it, weights are returned only on request and for each head,
    and a mask is `allowed`, with True where a query may see a key.

    Args:
        d_model: width of the queries' inputs and of the result.
        d_k: width of each head's queries and keys; d_model / n_heads by default.
        d_v: width of each head's values; d_k by default.
        d_input: width of the inputs of keys and values; d_model by default.
        n_kv_heads: number of key/value heads, shared by groups of query heads.
        form: the form of attention; exact scaled dot-product attention by default.
        path: the site's name in traces.
    """

    def __init__(  # noqa: PLR0913  a layer has as many settings
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
        form: Callable[..., Tensor] | None = None,
        path: str = "attention",
    ) -> None:
        super().__init__()
        check_counts(d_model=d_model, d_k=d_k, d_v=d_v, d_input=d_input)
        check_heads(d_model, n_heads, d_k=d_k, n_kv_heads=n_kv_heads)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_k = d_k or d_model // n_heads
        self.d_v = d_v or self.d_k
        self.d_model, self.d_input = d_model, d_input or d_model
        self.to_query = nn.Linear(d_model, self.n_heads * self.d_k, bias=bias)
        # In a Reformer the queries are the keys: one projection serves both.
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
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_input"] | None = None,
        value: Float[Tensor, "batch key d_input"] | None = None,
        *,
        allowed: Mask | Tensor | None = None,
        need_weights: bool = False,
        cache: KeyValueCache | None = None,
        rotate: Rotate | None = None,
        first: int | None = None,
    ) -> (
        Float[Tensor, "batch query d_model"]
        | tuple[Float[Tensor, "batch query d_model"], Float[Tensor, "batch head query key"]]
    ):
        """Attend from each position of `query` to `key`.

        Args:
            key: inputs of the keys; `query` by default, which is self-attention.
            value: inputs of the values; `key` by default.
            allowed: which query may see which key; with a cache, of all keys in it.
            cache: keys and values of earlier steps.
            first: position of the first query; by default the length of a growing cache.
        """
        if need_weights:
            options = {"allowed": allowed, "cache": cache, "rotate": rotate, "first": first}
            with listen(recorder := WeightsRecorder()):
                output = self(query, key, value, **options)
            return output, recorder.weights()
        if first is None:
            first = cache.length if cache is not None and cache.grows else 0
        # With a cache more queries may follow, so listeners get "@0" from the first step on.
        path = path_of(self.path, self)
        site = path if cache is None and first == 0 else f"{path}@{first}"
        _check_width("queries", query, self.d_model)
        heads = self._heads(self.to_query(query), self.n_heads)
        if rotate is not None:
            heads = rotate(heads, first)
        key = query if key is None else key
        keys, values = self._keys_and_values(key, key if value is None else value, cache, rotate)
        if self.n_kv_heads != self.n_heads:
            group = self.n_heads // self.n_kv_heads
            keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
        dropout = self.dropout if self.training else 0.0
        context = self.form(heads, keys, values, allowed=allowed, dropout=dropout, site=site)
        joined = rearrange(context, "batch head query d_v -> batch query (head d_v)")
        joined = tap(f"{site}.joined", joined, "query d_heads")
        return tap(f"{site}.output", self.to_output(joined), "query d_model")

    def _keys_and_values(
        self, key: Tensor, value: Tensor, cache: KeyValueCache | None, rotate: Rotate | None
    ) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.filled:
            return cache.read()
        _check_width("keys", key, self.d_input)
        _check_width("values", value, self.d_input)
        keys = self._heads((self.to_key or self.to_query)(key), self.n_kv_heads)
        values = self._heads(self.to_value(value), self.n_kv_heads)
        if rotate is not None:
            keys = rotate(keys, cache.length if cache is not None else 0)
        return (keys, values) if cache is None else cache.extend(keys, values)

    def _heads(self, x: Tensor, n_heads: int) -> Tensor:
        return rearrange(x, "batch token (head d) -> batch head token d", head=n_heads)


def check_heads(d_model: int, n_heads: int, *, d_k: int | None, n_kv_heads: int | None) -> None:
    """Refuse heads that cannot share the width or the key/value heads evenly."""
    check_counts(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if d_k is None and d_model % n_heads:
        raise InputError(
            f"d_model is {d_model}, which {n_heads} heads cannot share evenly: choose n_heads that "
            f"divides {d_model}, or give d_k."
        )
    if n_kv_heads is not None and n_heads % n_kv_heads:
        raise InputError(
            f"n_kv_heads is {n_kv_heads}, which {n_heads} heads cannot share evenly: choose a "
            f"divisor of {n_heads}."
        )


class WeightsRecorder:
    """A listener that keeps what is needed to return the weights of one attention."""

    changes = False

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def wants(self, path: str) -> bool:
        return path.endswith(".weights")

    def see(self, tapped: Tapped) -> Any:
        self.seen[tapped.path.rpartition(".")[2]] = tapped.value
        return tapped.value

    def weights(self) -> Tensor:
        """Return the weights of every head; forms that compute none imply them."""
        if "weights" in self.seen:
            return self.seen["weights"]
        if not self.seen:
            raise InputError("a compiled module has no weights to return: call the plain module.")
        query, key, pattern = (self.seen[name] for name in ("query", "key", "pattern"))
        batch, n_heads, n_query = query.shape[:3]
        grid = Grid.whole((batch, n_heads), n_query, key.size(-2), query.device)
        weights = [
            pattern.weights(query[b, h], key[b, h], Tile(grid, (b, h)))
            for b in range(batch)
            for h in range(n_heads)
        ]
        return torch.stack(weights).unflatten(0, (batch, n_heads))


def _check_width(which: str, x: Tensor, width: int) -> None:
    if x.size(-1) != width:
        raise ShapeError(
            f"the inputs of the {which} are {x.size(-1)} wide, but this attention was built for "
            f"{width}: give inputs of that width, or build it with another d_model or d_input."
        )
