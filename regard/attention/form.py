"""Forms of attention that multi-head attention can be built with, and what they share."""

from abc import abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.attend import attend, check_inputs
from regard.attention.mask import Everything, Mask, as_mask, split_causal
from regard.attention.similarity import Similarity, as_similarity
from regard.attention.tile import Grid, Tile
from regard.errors import InputError, MaskError, ShapeError, check_counts, check_probabilities
from regard.tap import attending, listening, tap


@dataclass(frozen=True)
class FormInputs:
    """The inputs of a form, checked and tapped."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    grid: Grid
    dropout: float
    site: str


class AttentionForm(nn.Module):
    """Base of all forms: `forward(query, key, value)` returns each query's context.

    Subclasses implement `compute` and tap the `pattern` from which weights can be computed later.
    """

    title = "attention"
    """The form's name in error messages."""
    shares_query_and_key = False
    """True if keys are made from the queries, so that one projection serves both."""
    self_only = False
    """True if queries and keys must be the same tokens."""

    def forward(
        self,
        query: Float[Tensor, "*batch query d_k"],
        key: Float[Tensor, "*batch key d_k"],
        value: Float[Tensor, "*batch key d_v"],
        *,
        allowed: Mask | Tensor | None = None,
        dropout: float = 0.0,
        site: str = "attention",
    ) -> Float[Tensor, "*batch query d_v"]:
        """Attend; not every form accepts every mask, and some have no weights to drop out."""
        check_inputs(query, key, value, as_similarity("scaled_dot"))
        check_probabilities(dropout=dropout)
        self.check(query, key)
        query = tap(f"{site}.query", query, "query d_k")
        key = tap(f"{site}.key", self.keys(query, key), "key d_k")
        value = tap(f"{site}.value", value, "key d_v")
        mask = as_mask(tap(f"{site}.allowed", as_mask(allowed), "query key"))
        grid = Grid.whole(query.shape[:-2], query.size(-2), key.size(-2), query.device)
        given = FormInputs(query, key, value, mask, grid, dropout, site)
        with attending() if listening() else nullcontext():  # compiled graphs have no taps
            context = self.compute(given)
        return tap(f"{site}.context", context, "query d_v")

    @abstractmethod
    def compute(self, given: FormInputs) -> Tensor:
        """Return the context."""

    def check(self, query: Tensor, key: Tensor) -> None:
        """Refuse inputs that this form cannot attend to."""
        if self.self_only and query.size(-2) != key.size(-2):
            raise ShapeError(
                f"{self.title} needs as many queries as keys, not {query.size(-2)} and "
                f"{key.size(-2)}, because it is a form of self-attention."
            )

    def keys(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the keys that are compared with the queries."""
        return key


class ExactForm(nn.Module):
    """Attention by its definition, with a similarity that may have trainable weights."""

    def __init__(self, similarity: str | Similarity = "scaled_dot") -> None:
        super().__init__()
        self.similarity = similarity

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """Call `attend` with this similarity."""
        return attend(query, key, value, similarity=self.similarity, **options)


class RandomForm(AttentionForm):
    """Base of forms with random directions, which are drawn once and saved with the model.

    Args:
        d_k: width of queries and keys.
        redraw_every: draw new directions after this many training batches, so that the model does
            not adapt to one draw; 0 never does. A compiled model keeps its directions.
    """

    n_batches: Tensor

    def __init__(self, d_k: int, redraw_every: int) -> None:
        super().__init__()
        check_counts(d_k=d_k)
        if redraw_every < 0:
            raise InputError(f"redraw_every is {redraw_every}; it must be 0 (never) or more.")
        self.d_k, self.redraw_every = d_k, redraw_every
        if redraw_every:
            self.register_buffer("n_batches", torch.zeros(()))

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        if self.d_k != query.size(-1):
            raise ShapeError(
                f"{self.title} was built for queries and keys of width {self.d_k}, but they are "
                f"{query.size(-1)} wide: build it with d_k={query.size(-1)}."
            )

    @abstractmethod
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Replace the random directions by new ones."""

    def current(self, directions: Tensor) -> Tensor:
        """Return the directions for this batch, after redrawing them if it is time to."""
        if not self.redraw_every:
            return directions
        if self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self.n_batches += 1
            if self.n_batches > self.redraw_every:
                self.redraw()
                self.n_batches.fill_(1)
        return directions.clone()  # a graph that is still alive must not see the next draw


def key_mask(
    form: str, mask: Mask, grid: Grid
) -> tuple[bool, Bool[Tensor, "*lead key one"] | None]:
    """Split a mask into "is causal" and the keys that all queries see (None: every key).

    Masks of single pairs are refused.
    """
    causal, rest = split_causal(mask)
    if causal and grid.n_query != grid.n_key:
        raise MaskError(
            f"causal {form} needs as many queries as keys, not {grid.n_query} and {grid.n_key}."
        )
    if isinstance(rest, Everything):
        return causal, None
    seen = rest.on_keys(grid)
    if seen is None:
        raise MaskError(
            f"{form} cannot use the mask {mask!r} because it never compares single pairs: use "
            "padding, causal() or both, or exact attention, which takes any mask."
        )
    return causal, seen.transpose(-1, -2).expand(*seen.shape[:-2], grid.n_key, 1)


def tile_key_mask(form: str, mask: Mask, tile: Tile) -> tuple[bool, Bool[Tensor, "key one"]]:
    """Return `key_mask` for the one head of one sequence that a tile is cut from."""
    grid = tile.grid
    whole = Grid.whole(grid.lead, grid.n_query, grid.n_key, grid.rows.device)
    causal, seen = key_mask(form, mask, whole)
    if seen is None:
        return causal, grid.rows.new_ones(grid.n_key, 1, dtype=torch.bool)
    line = Grid(grid.lead, 1, grid.n_key, whole.rows[:1], whole.columns)
    return causal, Tile(line, tile.index).of(seen.transpose(-1, -2)).transpose(-1, -2)
