"""Reformer: tokens are hashed, and each is compared only with those in the same bucket.

    positions   0 1 2 3 4 5 6 7
    buckets     B A B B A A B A          one hash: the nearest of some random directions
    sorted      1 4 5 7 0 2 3 6          by bucket, then position; cut into chunks
                                         a chunk sees itself and the one before, bucket by bucket

Kitaev et al. 2020; the cost is O(n log n). Keys are the queries, normalized, so that similar tokens
share buckets. Several rounds with different directions find what one round misses: a query attends
to every token it met in some round, each counted once, and to itself only if it met no other.
"""

from dataclasses import dataclass
from itertools import repeat
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.form import FormInputs, RandomForm, key_mask, tile_key_mask
from regard.attention.mask import Mask
from regard.attention.pattern import Pattern
from regard.attention.softmax import softmax_over_keys, upcast_half
from regard.attention.tile import Tile
from regard.errors import InputError, check_counts
from regard.tap import tap

_BLOCK = 2**19  # scores computed at once: as many as fit the cache
_SHORT = 2**13  # codes below this fit into short integers, which are faster


class Reformer(RandomForm):
    """Attention of each query to the tokens that share a bucket with it, in O(n log n).

    Masks may be padding, causal or both; padded tokens get rows of 0. Only the shape of the keys is
    used, because the queries are the keys. A model trained with hashing does not work with full
    attention.

    Args:
        n_buckets: an even number, or 1; about the length divided by `chunk` is usual.
        chunk: tokens of a chunk: a query sees its own chunk of the bucket and the one before. If
            causal, it sees `chunk` tokens back, because chunk borders depend on later tokens.
        redraw_every: draw new directions after this many training batches; 0 never does.
    """

    title = "a Reformer"
    rotations: Tensor
    """(round, d_k, half the number of buckets); with no direction at all there is one bucket."""
    shares_query_and_key = self_only = True

    def __init__(
        self,
        d_k: int,
        *,
        n_buckets: int = 32,
        n_rounds: int = 4,
        chunk: int = 64,
        redraw_every: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_k, redraw_every)
        check_counts(n_rounds=n_rounds, chunk=chunk)
        if n_buckets < 1 or (n_buckets > 1 and n_buckets % 2):
            raise InputError(f"a Reformer has 1 bucket or an even number of them, not {n_buckets}.")
        self.chunk = chunk
        drawn = torch.randn(n_rounds, d_k, n_buckets // 2, generator=generator)
        self.register_buffer("rotations", drawn)

    def redraw(self, generator: torch.Generator | None = None) -> None:
        self.rotations.copy_(torch.randn(self.rotations.shape, generator=generator))

    def keys(self, query: Tensor, key: Tensor) -> Tensor:
        return F.normalize(query, dim=-1)

    def compute(self, given: FormInputs) -> Tensor:
        rotations = self.current(self.rotations).to(given.query)
        n_buckets = 2 * rotations.size(-1)
        chunk = min(self.chunk, max(given.grid.n_query, 1))  # a short text is not padded to a chunk
        causal, seen = key_mask(self.title, given.mask, given.grid)
        parts = given.query, given.key, given.value
        if seen is not None:
            parts = tuple(x.masked_fill(~seen, 0.0) for x in parts)
        buckets = hash_vectors(parts[0], rotations)
        if seen is not None:  # hidden tokens come last, in their own bucket
            buckets = buckets.masked_fill(~seen.transpose(-1, -2), n_buckets + 1)
        tap(f"{given.site}.pattern", ReformerPattern(buckets, chunk, given.mask), "")
        hidden = None if seen is None else ~seen.squeeze(-1).expand(given.value.shape[:-1])
        order, codes = _sort(buckets, chunk, causal)
        step, width = (1, chunk) if causal else (chunk, 1)
        largest = given.grid.n_query // step + 1 + 2 * width * (n_buckets + 2)  # bounds the codes
        codes = codes.to(torch.int16 if largest + 4 * chunk < _SHORT else torch.int32)
        return _in_groups(parts, order, codes, hidden, (chunk, causal, given.dropout))

    def extra_repr(self) -> str:
        n_rounds, _, half = self.rotations.shape
        redraw = f", redraw_every={self.redraw_every}" if self.redraw_every else ""
        sizes = f"n_buckets={2 * half or 1}, n_rounds={n_rounds}, chunk={self.chunk}"
        return f"d_k={self.d_k}, {sizes}{redraw}"


@dataclass(frozen=True)
class ReformerPattern(Pattern):
    """The weights of a Reformer: exact attention among the tokens that met."""

    buckets: Tensor
    """(…, round, token): stored, because recomputed hashes might round differently."""
    chunk: int
    allowed: Mask

    def weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        rows = tile.grid.rows
        columns = torch.arange(tile.grid.n_key, device=rows.device)
        causal, seen = tile_key_mask(Reformer.title, self.allowed, tile)
        codes = _sort(self.buckets[tile.index], self.chunk, causal)[1]
        apart = codes[:, rows, None] - codes[:, None, :]
        met = (apart >= causal) & (apart <= (self.chunk if causal else 1))
        itself = columns == rows[:, None]
        met = met.any(dim=0) & ~itself & seen[rows] & seen.transpose(-1, -2)
        alone = itself & seen[rows] & ~met.any(dim=-1, keepdim=True)
        query, key = upcast_half(query[rows]), upcast_half(key)
        scores = query @ key.transpose(-1, -2) * key.size(-1) ** -0.5
        weights = softmax_over_keys(scores.masked_fill(~(met | alone), -inf))
        return weights[:, tile.grid.columns]


def hash_vectors(
    x: Float[Tensor, "*batch token d_k"], rotations: Float[Tensor, "round d_k half"]
) -> Int[Tensor, "*batch round token"]:
    """Return each vector's bucket in each round: argmax of [x R; -x R]."""
    n_rounds, _, half = rotations.shape
    if not half:
        return torch.zeros(*x.shape[:-2], n_rounds, x.size(-2), dtype=torch.long, device=x.device)
    turned = x.detach() @ rotations.permute(1, 0, 2).flatten(1)
    turned = turned.unflatten(-1, (n_rounds, half))
    nearest = turned.abs().argmax(dim=-1, keepdim=True)
    opposite = turned.gather(-1, nearest) < 0
    return (nearest + half * opposite).squeeze(-1).transpose(-1, -2)


def _sort(buckets: Tensor, chunk: int, causal: bool) -> tuple[Tensor, Tensor]:
    """Sort tokens by (bucket, position); return the order and codes that say which tokens meet.

    A query meets the keys whose code is smaller by 0 or 1: the code is the chunk plus twice the
    bucket, so these are in the same bucket, and in the same chunk or the one before. Chunk borders
    depend on all tokens, so if causal, codes count places in the order, and a query meets the keys
    whose code is smaller by 1 to `chunk`.
    """
    order = buckets.sort(dim=-1, stable=True).indices
    places = _inverse(order)
    return order, places + 2 * chunk * buckets if causal else places // chunk + 2 * buckets


def _in_groups(
    parts: tuple[Tensor, ...],
    order: Tensor,
    codes: Tensor,
    hidden: Tensor | None,
    settings: tuple[int, bool, float],
) -> Tensor:
    """Compute the context, a few heads at a time so that their scores fit the cache."""
    widths = [x.size(-1) for x in parts]
    rows = torch.cat([upcast_half(x) for x in parts], dim=-1)
    n_token = rows.size(-2)
    size = max(1, _BLOCK // (2 * settings[0] * n_token))
    some, orders, numbers = (x.reshape(-1, *x.shape[-2:]).split(size) for x in (rows, order, codes))
    hidden_heads = repeat(None) if hidden is None else hidden.reshape(-1, n_token).split(size)
    groups = zip(some, orders, numbers, hidden_heads, strict=False)
    contexts = [_Heads(*group, widths, *settings).context() for group in groups]
    return torch.cat(contexts).reshape(parts[2].shape).to(parts[2].dtype)


@dataclass(frozen=True)
class _Heads:
    """Some heads end to end: each an empty chunk followed by its tokens in sorted order."""

    rows: Float[Tensor, "head token d"]
    order: Int[Tensor, "head round token"]
    codes: Int[Tensor, "head round token"]
    hidden: Bool[Tensor, "head token"] | None
    widths: list[int]
    chunk: int
    causal: bool
    dropout: float

    def context(self) -> Float[Tensor, "head token d_v"]:
        """Combine all rounds, weighted by the log-sum-exp of each."""
        value = self.rows[..., -self.widths[2] :]
        rounds = [self._round(number) for number in range(self.order.size(1))]
        peak = torch.stack([own for own, _ in rounds]).amax(dim=0)
        sums = torch.stack([torch.exp(own - peak) * part for own, part in rounds]).sum(dim=0)
        mixed, total = sums[..., :-1], sums[..., -1:]
        alone = total == 0  # hidden values are 0, so that hidden tokens get nothing here
        return torch.where(alone, value, mixed / total.masked_fill(alone, 1.0))

    def _round(self, number: int) -> tuple[Tensor, Tensor]:
        """Return one round's peaks, and its weighted sums of the values and of 1, by token.

        Forbidden scores become 0 instead of -inf, whose exponentials are slow.
        """
        laid, back = self._lay_out(number)
        rows = self.rows.flatten(0, 1).index_select(0, laid)
        query, key, value = rows.split(self.widths, dim=-1)
        keep = self._keep(number, laid).to(rows.dtype)
        query = query[self.chunk :].unflatten(0, (-1, self.chunk))
        scores = query @ self._windows(key) * self.widths[0] ** -0.5
        peak = (scores.detach() + (keep - 1).mul_(1e30)).amax(dim=-1, keepdim=True)
        parts = scores.sub_(peak).mul_(keep).exp_().mul(keep)
        total = parts.sum(dim=-1, keepdim=True)
        parts = F.dropout(parts, self.dropout) if self.dropout else parts
        sums = torch.cat([parts @ self._windows(value).transpose(-1, -2), total], dim=-1)
        peak, sums = (x.flatten(0, 1).index_select(0, back) for x in (peak, sums))
        shape = self.rows.shape[:2]
        return peak.unflatten(0, shape), sums.unflatten(0, shape)

    def _lay_out(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the row at each place, and the place of each token among the queries."""
        order, (n_head, n_token) = self.order[:, number], self.rows.shape[:2]
        head = torch.arange(n_head, device=order.device)[:, None]
        laid = F.pad(order, (self.chunk, -n_token % self.chunk)) + head * n_token
        # Queries start with the second chunk, the first that has one before it.
        return laid.flatten(), (_inverse(order) + head * laid.size(-1)).flatten()

    def _keep(self, number: int, laid: Tensor) -> Int[Tensor, "chunk query key"]:
        """Return 1 where a query meets a key of its window for the first time, 0 elsewhere.

        Integer sums are several times as fast as comparisons: with doubled codes, and those of
        queries shifted, the two meet where the difference is at most `limit`.
        """
        chunk, causal, (n_head, n_token) = self.chunk, self.causal, self.rows.shape[:2]
        shift, limit = (chunk + 1, chunk - 1) if causal else (1, 1)
        codes = 2 * self.codes.transpose(0, 1).flatten(1)[: number + 1, laid]
        places = torch.arange(len(laid), device=laid.device) % (len(laid) // n_head)
        real = (places >= chunk) & (places < chunk + n_token)
        if self.hidden is not None:
            real = real & ~self.hidden.flatten()[laid]
        absent = -4 * chunk - 4  # far from every code
        queries = torch.where(real, codes - shift, 2 * absent)[:, chunk:].unflatten(1, (-1, chunk))
        keys = torch.where(real, codes, absent).unfold(-1, 2 * chunk, chunk)
        *earlier, now = (
            (query.unsqueeze(-1) - key.unsqueeze(-2)).abs_()
            for query, key in zip(queries, keys, strict=True)
        )
        keep = now.neg_().add_(limit + 1)
        for met in earlier:
            keep = torch.minimum(keep, met.sub_(limit))
        # Tokens of a bucket are in order, so the past is what comes before.
        slots = torch.arange(2 * chunk, device=laid.device) - chunk
        own = torch.arange(chunk, device=laid.device)[:, None]
        return keep.clamp_(0, 1).mul_(slots < own if causal else slots != own)

    def _windows(self, x: Tensor) -> Tensor:
        """Return each chunk with the one before it, as overlapping views: (chunk, d, key)."""
        return x.unfold(0, 2 * self.chunk, self.chunk)


def _inverse(order: Tensor) -> Tensor:
    """Return the place of each token in an order."""
    places = torch.arange(order.size(-1), device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)
