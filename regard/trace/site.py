"""One attention site of a trace: queries, keys, values, and any tile of what follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, nan
from typing import SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.mask import Mask, split_causal
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.softmax import softmax_over_keys
from regard.attention.tile import Grid, Tile, broadcast_lead, select_head
from regard.errors import InputError, UnknownNameError

Index = int | None
Slice = slice | SupportsIndex | Iterable[SupportsIndex] | Tensor | None
"""Rows or columns as in NumPy; None means all, and one index keeps its axis, with length 1."""


@dataclass(repr=False, eq=False)
class Site:
    """One attention site of a forward pass, kept in O(n · d) memory.

    Tiles of scores and weights are computed on request and equal those of the forward pass,
    whichever kernel it used. `head=None` stacks all heads; `batch` selects one sequence and is
    required if the batch has more than one.
    """

    path: str
    query: Float[Tensor, "*#lead query d_q"]
    key: Float[Tensor, "*#lead key d_k"]
    value: Float[Tensor, "*#lead key d_v"]
    pattern: Pattern
    changed: dict[str, Tensor] = field(default_factory=dict)
    """Tables from "compared" to "context" that an edit replaced."""
    crosses: bool | None = None
    """True if the keys come from other tokens than the queries; None if that is not known."""

    def __post_init__(self) -> None:
        pairs = broadcast_lead(self.query.shape[:-2], self.key.shape[:-2])
        lead = broadcast_lead(pairs, self.value.shape[:-2])
        self.lead: tuple[int, ...] = tuple(lead)
        self._lead_of_scores: tuple[int, ...] = tuple(pairs)  # values may have more axes
        # Each query's largest score and sum of exp((score - largest) / temperature): its
        # log-sum-exp in two parts, which lose no digits. NaN until they are needed.
        exact = torch.promote_types(self.query.dtype, torch.float32)
        with torch.inference_mode(False):  # it is filled later, perhaps outside of that mode
            self.sums = self.query.new_full((*lead, self.n_query, 2), nan, dtype=exact)

    def __repr__(self) -> str:
        heads = "1 head" if self.n_heads == 1 else f"{self.n_heads} heads"
        batch = f"batch of {self.n_batch}, " if self.n_batch > 1 else ""
        sizes = f"{batch}{heads}, {self.n_query} queries × {self.n_key} keys"
        return f'<Site trace["{self.path}"]: {sizes}, {self.allowed!r}>'

    @property
    def n_query(self) -> int:
        return self.query.size(-2)

    @property
    def n_key(self) -> int:
        return self.key.size(-2)

    @property
    def n_heads(self) -> int:
        return self.lead[-1] if self.lead else 1

    @property
    def n_batch(self) -> int:
        return self.lead[0] if len(self.lead) > 1 else 1

    @property
    def kind(self) -> str:
        """The kind of attention, from what was computed: "self", "causal self" or "cross"."""
        if self.n_query != self.n_key if self.crosses is None else self.crosses:
            return "cross"
        return "causal self" if self._is_causal() else "self"

    def _is_causal(self) -> bool:
        """Return True if no query sees a later key; queries are the last of all positions."""
        offset = self.n_key - self.n_query
        if split_causal(self.allowed)[0] and not offset:
            return True
        grid = Grid.whole(self._lead_of_scores, self.n_query, self.n_key, self.query.device)
        if grid.n_key == 1 or self.allowed.admits_all(grid):
            return False
        later = grid.columns > grid.rows[:, None] + offset
        return bool(later.any()) and not bool((self.allowed.on(grid) & later).any())

    @property
    def allowed(self) -> Mask:
        return getattr(self.pattern, "allowed")  # noqa: B009  every pattern has one

    def compared(
        self, head: Index = None, *, batch: Index = None, rows: Slice = None, columns: Slice = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Return similarities before scaling: q · k itself for dot products."""
        return self._tiles("compared", head, batch, rows, columns)

    def scores(
        self, head: Index = None, *, batch: Index = None, rows: Slice = None, columns: Slice = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Return scaled similarities, before the mask."""
        return self._tiles("scores", head, batch, rows, columns)

    def masked(
        self, head: Index = None, *, batch: Index = None, rows: Slice = None, columns: Slice = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Return scores with -inf where a query may not see a key."""
        return self._tiles("masked", head, batch, rows, columns)

    def weights(
        self, head: Index = None, *, batch: Index = None, rows: Slice = None, columns: Slice = None
    ) -> Float[Tensor, "*head rows columns"]:
        """Return attention weights; each row sums to 1 over all keys."""
        return self._tiles("weights", head, batch, rows, columns)

    def context(
        self, head: Index = None, *, batch: Index = None, rows: Slice = None
    ) -> Float[Tensor, "*head rows d_v"]:
        """Return the weighted sums of the values."""
        return self._tiles("context", head, batch, rows, None)

    def vectors(
        self, name: str, head: int, *, batch: Index = None
    ) -> Float[Tensor, "position width"]:
        """Return one head's "query", "key" or "value" vectors."""
        return select_head(getattr(self, name), self.index(head, batch))

    def all_batches(self, name: str) -> Tensor:
        """Return a table of all heads of all sequences, as the forward pass has it."""
        tables = [getattr(self, name)(batch=batch) for batch in range(self.n_batch)]
        return torch.stack(tables) if len(self.lead) > 1 else tables[0]

    def index(self, head: Index, batch: Index = None) -> tuple[int, ...]:
        """Return the index of a head into the leading axes, checked against their sizes."""
        if head is None and not self.lead:
            head = 0
        if head is None or not 0 <= head < self.n_heads:
            raise UnknownNameError(
                f"{self.path} has no head {head}; it has {self.n_heads}, 0 to {self.n_heads - 1}."
            )
        last = self.n_batch - 1
        if batch is None and last > 0:
            raise InputError(
                f"{self.path} has a batch of {last + 1} sequences: select one with batch=0 to "
                f"batch={last}."
            )
        if not 0 <= (batch or 0) <= last:
            raise UnknownNameError(
                f"{self.path} has no sequence {batch}; the batch has {last + 1}, 0 to {last}."
            )
        return (batch or 0, *(0,) * (len(self.lead) - 2), head)[max(0, 2 - len(self.lead)) :]

    def _tiles(self, name: str, head: Index, batch: Index, rows: Slice, columns: Slice) -> Tensor:
        if head is None and self.lead:
            heads = range(self.n_heads)
            return torch.stack([self._tiles(name, h, batch, rows, columns) for h in heads])
        device = self.query.device
        wanted = _indices(rows, self.n_query, "rows", device)
        keys = _indices(columns, self.n_key, "columns", device)
        index = self.index(head, batch)
        if name != "context":
            return self._tile(name, index, wanted, keys)
        if "context" in self.changed:
            return select_head(self.changed["context"], index)[wanted]
        value, parts = select_head(self.value, index), wanted.split(256)
        tiles = (self._tile("weights", index, part, keys) for part in parts)
        return torch.cat([tile.to(value.dtype) @ value for tile in tiles])

    @torch.no_grad()
    def _tile(self, name: str, index: tuple[int, ...], rows: Tensor, columns: Tensor) -> Tensor:
        if not all((x.diff() > 0).all() for x in (rows, columns)):  # masks need ascending ones
            rows, row_of = rows.unique(return_inverse=True)
            columns, column_of = columns.unique(return_inverse=True)
            return self._tile(name, index, rows, columns)[row_of][:, column_of]
        tile = Tile(Grid(self._lead_of_scores, self.n_query, self.n_key, rows, columns), index)
        for step in _CHANGES_BEFORE.get(name, ()):
            if step in self.changed:
                return self._from_change(step, name, tile)
        query, key = select_head(self.query, index), select_head(self.key, index)
        if name == "weights":
            return self._weights(query, key, tile)
        if not isinstance(self.pattern, ExactPattern):
            raise InputError(
                f"{self.path} uses {type(self.pattern).__name__} attention, which does not compute "
                f"{name} of all pairs: use its weights."
            )
        return getattr(self.pattern, name)(query, key, tile)

    def _weights(self, query: Tensor, key: Tensor, tile: Tile) -> Tensor:
        """Return the weights of a tile; each query's sum over all keys is computed once."""
        pattern = self.pattern
        if not isinstance(pattern, ExactPattern) or isinstance(pattern.temperature, Tensor):
            return pattern.weights(query, key, tile)
        if not 1e-3 <= pattern.temperature <= 1e30:  # where the exponentials below lose digits
            return pattern.weights(query, key, tile)
        sums, rows = self.sums[tile.index], tile.grid.rows
        unknown = rows[sums[rows].isnan().any(-1)]  # another thread may have written one of both
        if len(unknown) == len(rows) and len(tile.grid.columns) == self.n_key:
            return _whole_rows(pattern.masked(query, key, tile), pattern.temperature, sums, unknown)
        if len(unknown):
            sums[unknown] = pattern.sums(query, key, tile.with_rows(unknown))
        peak, total = sums[rows].unsqueeze(1).unbind(-1)
        scores = pattern.masked(query, key, tile)
        return torch.exp((scores - peak) / pattern.temperature) / total

    def _from_change(self, step: str, name: str, tile: Tile) -> Tensor:
        """Return a tile that follows from scores or weights that an edit replaced."""
        full = tile.with_columns(torch.arange(self.n_key, device=tile.grid.rows.device))
        table = select_head(self.changed[step], tile.index)[tile.grid.rows]
        if step == "compared" and name != "compared" and isinstance(self.pattern, ExactPattern):
            step, table = "scores", self.pattern.scaled(table, full)
        if step == "scores" and name not in ("compared", "scores"):
            table = table.masked_fill(~full.of(self.allowed.on(full.grid)), -inf)
        if step != "weights" and name == "weights" and isinstance(self.pattern, ExactPattern):
            table = softmax_over_keys(table, full.scalar(self.pattern.temperature))
        return table[:, tile.grid.columns]


_CHANGES_BEFORE = {
    "compared": ("compared",),
    "scores": ("scores", "compared"),
    "masked": ("masked", "scores", "compared"),
    "weights": ("weights", "masked", "scores", "compared"),
}
"""The replaced tables that each table follows from, the latest first."""


def _whole_rows(scores: Tensor, temperature: float, sums: Tensor, rows: Tensor) -> Tensor:
    """Return the weights of whole rows of scores, and keep their sums in `sums`."""
    peak = scores.amax(-1, keepdim=True)
    peak = peak.masked_fill(peak == -inf, 0.0)
    parts = torch.exp((scores - peak) / temperature)
    total = parts.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    sums[rows] = torch.cat([peak, total], dim=-1).to(sums.dtype)
    return parts / total


def _indices(given: Slice, n: int, what: str, device: torch.device) -> Tensor:
    """Return positions as indices from 0 to n - 1."""
    if given is None or isinstance(given, slice):
        span = range(n)[given or slice(None)]  # may step backwards, as tensors cannot
        return torch.arange(*((span.start, span.stop, span.step) if span else (0,)), device=device)
    if isinstance(given, Iterable) and not isinstance(given, Tensor):
        given = list(given)
    indices = torch.atleast_1d(torch.as_tensor(given, device=device))
    if not indices.numel():
        return indices.long()
    whole = not indices.dtype.is_floating_point and indices.dtype != torch.bool
    if not whole or not -n <= int(indices.min()) <= int(indices.max()) < n:
        raise InputError(
            f"{what} are {given}; give a slice or indices from 0 to {n - 1} (negative ones count "
            "from the end)."
        )
    return torch.where(indices < 0, indices + n, indices).long()
