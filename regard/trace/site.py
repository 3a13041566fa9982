"""One attention site of a trace: queries, keys, values, and any tile of what follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, nan

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.mask import Grid, Mask
from regard.attention.pattern import ExactPattern, Pattern, Tile
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, UnknownNameError

Span = slice | range | tuple[int, int] | Iterable[int] | Tensor | int | None
"""Which rows or columns: a slice, (start, stop), indices, one index, or None for all."""

_ROWS_AT_ONCE = 256
_COLD, _HOT = 1e-3, 1e30
"""Between these temperatures exp((score - largest) / temperature) loses no digits."""


@dataclass(repr=False)
class Site:
    """What one attention site computed, kept in O(n · d) memory.

    Tiles of scores and weights are computed when they are asked for and equal what the model
    computed, whichever kernel it used.
    """

    path: str
    query: Float[Tensor, "*#lead query d_q"]
    key: Float[Tensor, "*#lead key d_k"]
    value: Float[Tensor, "*#lead key d_v"]
    pattern: Pattern
    changed: dict[str, Tensor] = field(default_factory=dict)
    """Tables from "compared" to "context" that an edit put in place of computed ones."""

    def __post_init__(self) -> None:
        pairs = torch.broadcast_shapes(self.query.shape[:-2], self.key.shape[:-2])
        lead = torch.broadcast_shapes(pairs, self.value.shape[:-2])
        self.lead: tuple[int, ...] = tuple(lead)
        self._lead_of_scores: tuple[int, ...] = tuple(pairs)  # values may have axes of their own
        # Each query's largest score and sum of exp((score - largest) / temperature): its
        # log-sum-exp in two parts, which lose no digits. NaN until somebody asks for that query.
        exact = torch.promote_types(self.query.dtype, torch.float32)
        self.sums = self.query.new_full((*lead, self.n_query, 2), nan, dtype=exact)

    def __repr__(self) -> str:
        heads = "1 head" if self.n_heads == 1 else f"{self.n_heads} heads"
        sizes = f"{heads}, {self.n_query} queries × {self.n_key} keys"
        return f"Site({self.path!r}: {sizes}, {self.allowed!r})"

    @property
    def n_query(self) -> int:
        """How many queries."""
        return self.query.size(-2)

    @property
    def n_key(self) -> int:
        """How many keys."""
        return self.key.size(-2)

    @property
    def n_heads(self) -> int:
        """How many heads."""
        return self.lead[-1] if self.lead else 1

    @property
    def log_totals(self) -> Float[Tensor, "*lead query"]:
        """Each query's log-sum-exp as far as it was needed; NaN for queries not yet looked at."""
        peak, total = self.sums.unbind(-1)
        heat = self.pattern.temperature if isinstance(self.pattern, ExactPattern) else 1.0
        if isinstance(heat, Tensor) and heat.dim():
            heat = heat.squeeze(-1)  # sums have no axis of keys
        return peak / heat + total.log()

    @property
    def allowed(self) -> Mask:
        """The mask, as a description."""
        return getattr(self.pattern, "allowed")  # noqa: B009  every pattern has one

    def scores(
        self, head: int | None = None, *, batch: int = 0, rows: Span = None, columns: Span = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Scaled similarities, before the mask; all heads stacked if no head is named."""
        return self._tiles("scores", head, batch, rows, columns)

    def compared(
        self, head: int | None = None, *, batch: int = 0, rows: Span = None, columns: Span = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Similarities before scaling: q · k itself for dot products."""
        return self._tiles("compared", head, batch, rows, columns)

    def masked(
        self, head: int | None = None, *, batch: int = 0, rows: Span = None, columns: Span = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Scores with -inf where a query may not see a key."""
        return self._tiles("masked", head, batch, rows, columns)

    def weights(
        self, head: int | None = None, *, batch: int = 0, rows: Span = None, columns: Span = None
    ) -> Float[Tensor, "*head rows columns"]:
        """The weights, each row of which sums to 1 over all columns."""
        return self._tiles("weights", head, batch, rows, columns)

    def context(
        self, head: int | None = None, *, batch: int = 0, rows: Span = None
    ) -> Float[Tensor, "*head rows d_v"]:
        """The weighted sums of the values."""
        if head is None and self.lead:
            heads = range(self.n_heads)
            return torch.stack([self.context(h, batch=batch, rows=rows) for h in heads])
        index = self._index(head, batch)
        wanted = _indices(rows, self.n_query, "row", self.query.device)
        if "context" in self.changed:
            table = self.changed["context"]
            return table[_within(table, index)][wanted]
        value = self.value[_within(self.value, index)]
        parts = [
            self._tile("weights", index, part, torch.arange(self.n_key)).to(value.dtype) @ value
            for part in wanted.split(_ROWS_AT_ONCE)
        ]
        return torch.cat(parts)

    def thumbnails(
        self, size: int = 64, *, batch: int = 0, pool: str = "mean"
    ) -> Float[Tensor, "head height width"]:
        """A small picture of every head's weights, pooled to at most `size` rows and columns.

        Never holds more than a strip of one head. `pool` is "mean" or "max".
        """
        return torch.stack(
            [
                self.thumbnail(head, size=size, batch=batch, pool=pool)
                for head in range(self.n_heads)
            ]
        )

    def thumbnail(
        self, head: int = 0, *, size: int = 64, batch: int = 0, pool: str = "mean"
    ) -> Float[Tensor, "height width"]:
        """One head's weights, pooled to at most `size` rows and columns."""
        if pool not in ("mean", "max"):
            raise InputError(f"thumbnails are pooled by 'mean' or 'max', not {pool!r}.")
        if size < 1:
            raise InputError(f"a thumbnail has 1 row or more, not {size}.")
        index = self._index(head if self.lead else None, batch)
        bands = [torch.arange(n).tensor_split(min(size, n)) for n in (self.n_query, self.n_key)]
        edges = torch.tensor([0, *(len(band) for band in bands[1])]).cumsum(0)
        picture = [self._pooled_row(index, band, edges, pool) for band in bands[0]]
        return torch.stack(picture)

    def _pooled_row(self, index: tuple[int, ...], rows: Tensor, edges: Tensor, pool: str) -> Tensor:
        reduce = torch.amax if pool == "max" else torch.sum
        lines = [
            reduce(self._tile("weights", index, part, torch.arange(self.n_key)), 0)
            for part in rows.split(_ROWS_AT_ONCE)
        ]
        line = reduce(torch.stack(lines), 0)
        line = line if pool == "max" else line / len(rows)
        return torch.segment_reduce(line, pool, lengths=edges.diff())

    def _tiles(self, name: str, head: int | None, batch: int, rows: Span, columns: Span) -> Tensor:
        if head is None and self.lead:
            heads = range(self.n_heads)
            return torch.stack([self._tiles(name, h, batch, rows, columns) for h in heads])
        device = self.query.device
        wanted = _indices(rows, self.n_query, "row", device)
        keys = _indices(columns, self.n_key, "column", device)
        return self._tile(name, self._index(head, batch), wanted, keys)

    @torch.no_grad()
    def _tile(self, name: str, index: tuple[int, ...], rows: Tensor, columns: Tensor) -> Tensor:
        if not (_ascends(rows) and _ascends(columns)):  # masks know positions in order, once each
            rows, row_of = rows.unique(return_inverse=True)
            columns, column_of = columns.unique(return_inverse=True)
            return self._tile(name, index, rows, columns)[row_of][:, column_of]
        tile = Tile(Grid(self._lead_of_scores, self.n_query, self.n_key, rows, columns), index)
        for step in _AFTER.get(name, ()):
            if step in self.changed:
                return self._from_change(step, name, tile)
        query, key = self.query[_within(self.query, index)], self.key[_within(self.key, index)]
        if name == "weights":
            return self._weights(query, key, tile)
        if not isinstance(self.pattern, ExactPattern):
            raise InputError(
                f"{self.path} is {type(self.pattern).__name__} attention, which has no {name} of "
                "all pairs: ask for its weights, which are those it implies."
            )
        return getattr(self.pattern, name)(query, key, tile)

    def _weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Weights of a tile, by each query's sum over all keys, which is kept once it is known."""
        pattern = self.pattern
        if not isinstance(pattern, ExactPattern) or isinstance(pattern.temperature, Tensor):
            return pattern.weights(query, key, tile)
        if not _COLD <= pattern.temperature <= _HOT:
            return pattern.weights(query, key, tile)
        sums = self.sums[tile.index]
        unknown = tile.grid.rows[sums[tile.grid.rows, 0].isnan()]
        if len(unknown) == len(tile.grid.rows) and len(tile.grid.columns) == self.n_key:
            return _whole_rows(pattern.masked(query, key, tile), pattern.temperature, sums, unknown)
        if len(unknown):
            sums[unknown] = pattern.sums(query, key, tile.with_rows(unknown))
        peak, total = sums[tile.grid.rows].unsqueeze(1).unbind(-1)
        scores = pattern.masked(query, key, tile)
        return torch.exp((scores - peak) / pattern.temperature) / total

    def _from_change(self, step: str, name: str, tile: Tile) -> Tensor:
        """What follows from scores or weights that an edit has put in."""
        full = tile.with_columns(torch.arange(self.n_key, device=tile.grid.rows.device))
        table = self.changed[step][_within(self.changed[step], tile.index)][tile.grid.rows]
        if step == "compared" and name != "compared" and isinstance(self.pattern, ExactPattern):
            step, table = "scores", self.pattern.scaled(table, full)
        if step == "scores" and name not in ("compared", "scores"):
            table = table.masked_fill(~full.of(self.allowed.on(full.grid)), -inf)
        if step != "weights" and name == "weights" and isinstance(self.pattern, ExactPattern):
            table = softmax_over_keys(table, full.scalar(self.pattern.temperature))
        return table[:, tile.grid.columns]

    def _index(self, head: int | None, batch: int) -> tuple[int, ...]:
        if not self.lead:
            if head not in (None, 0):
                raise UnknownNameError(f"{self.path} has no head {head}; it has one, head 0.")
            return ()
        if head is None or not 0 <= head < self.n_heads:
            raise UnknownNameError(
                f"{self.path} has no head {head}; it has {self.n_heads}, 0 to {self.n_heads - 1}."
            )
        if len(self.lead) == 1:
            return (head,)
        if not 0 <= batch < self.lead[0]:
            raise UnknownNameError(
                f"{self.path} has no sequence {batch}; the batch has {self.lead[0]}, 0 to "
                f"{self.lead[0] - 1}."
            )
        return (batch, *(0,) * (len(self.lead) - 2), head)


def _whole_rows(scores: Tensor, temperature: float, sums: Tensor, rows: Tensor) -> Tensor:
    """The weights of rows whose scores are all at hand; their sums are noted in `sums`."""
    peak = scores.amax(-1, keepdim=True)
    peak = peak.masked_fill(peak == -inf, 0.0)
    parts = torch.exp((scores - peak) / temperature)
    total = parts.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    sums[rows] = torch.cat([peak, total], dim=-1).to(sums.dtype)
    return parts / total


_AFTER = {
    "compared": ("compared",),
    "scores": ("scores", "compared"),
    "masked": ("masked", "scores", "compared"),
    "weights": ("weights", "masked", "scores", "compared"),
}
"""From which changed step each step follows, the latest first."""


def _within(tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index into a tensor whose leading axes may be 1 or absent where others are not."""
    lead = tensor.shape[:-2]
    index = index[len(index) - len(lead) :]
    return tuple(0 if n == 1 else i for n, i in zip(lead, index, strict=True))


def _indices(span: Span, n: int, what: str, device: torch.device) -> Tensor:
    """The positions a caller means, checked against how many there are."""
    if isinstance(span, tuple) and len(span) == 2:
        span = slice(*span)
    if span is None or isinstance(span, slice):
        span = range(n)[span or slice(None)]  # which also steps backwards, as tensors do not
        ends = (span.start, span.stop, span.step) if span else (0, 0, 1)
        return torch.arange(*ends, device=device)
    given = span if isinstance(span, Tensor) else [span] if isinstance(span, int) else list(span)
    indices = torch.as_tensor(given, device=device)
    if indices.numel() and not (indices >= 0).all() & (indices < n).all():
        raise InputError(
            f"{what}s {indices.min().item()} to {indices.max().item()} were asked for; there are "
            f"{n}, 0 to {n - 1}."
        )
    return indices.long()


def _ascends(positions: Tensor) -> bool:
    """Whether positions are in order and none comes twice."""
    return bool((positions.diff() > 0).all())
