"""Sites whose queries came one after another (an RNN, a decoder with a cache), made whole."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.attention.mask import Grid, Mask
from regard.attention.pattern import ExactPattern, Pattern
from regard.trace.site import Site


class Step(NamedTuple):
    """What a site was like while some of its queries were computed."""

    first: int
    """The position of the first of them."""
    n_key: int
    """How many keys there were by then."""
    pattern: Pattern


@dataclass(frozen=True, repr=False, eq=False)
class Steps(Mask):
    """The queries of each step see what that step's mask allows."""

    masks: tuple[Mask, ...]
    firsts: tuple[int, ...]
    n_keys: tuple[int, ...]

    def on(self, grid: Grid) -> Bool[Tensor, "*lead rows columns"]:
        ends = (*self.firsts[1:], grid.n_query)
        parts = []
        for mask, first, end, n_key in zip(self.masks, self.firsts, ends, self.n_keys, strict=True):
            rows = ((grid.rows >= first) & (grid.rows < end)).nonzero()[:, 0]
            if len(rows):
                columns = (grid.columns < n_key).nonzero()[:, 0]
                picked = (grid.rows[rows] - first, grid.columns[columns])
                allowed = mask.on(Grid(grid.lead, end - first, n_key, *picked))
                parts.append((rows[:, None], columns, allowed))
        lead = torch.broadcast_shapes(*(allowed.shape[:-2] for _, _, allowed in parts))
        size = (*lead, len(grid.rows), len(grid.columns))
        whole = grid.rows.new_zeros(size, dtype=torch.bool)
        for rows, columns, allowed in parts:
            whole[..., rows, columns] = allowed
        return whole

    def __repr__(self) -> str:
        pairs = zip(self.firsts, self.masks, strict=True)
        return f"steps({', '.join(f'{first}: {mask!r}' for first, mask in pairs)})"


def joined_pattern(steps: list[Step], lead: tuple[int, ...]) -> Pattern:
    """The pattern of all queries: the last step's, except that each step had its own mask."""
    last = steps[-1]
    masks = tuple(step.pattern.allowed for step in steps if isinstance(step.pattern, ExactPattern))
    if not isinstance(last.pattern, ExactPattern) or len(masks) < len(steps) or len(steps) == 1:
        return last.pattern
    grid = Grid.whole(lead, 1, last.n_key, torch.device("cpu"))
    if all(mask == masks[-1] for mask in masks) and masks[-1].on_keys(grid) is not None:
        return last.pattern  # the same for every query, whichever step it was of
    firsts, n_keys = zip(*((step.first, step.n_key) for step in steps), strict=True)
    return replace(last.pattern, allowed=Steps(masks, firsts, n_keys))


def joined_table(site: Site, name: str, changed: dict[int, Tensor]) -> Tensor:
    """A table of all queries: rows that an edit has put in, by their first query, or as computed.

    Args:
        site: with the changes of all tables that come before this one.
        name: "scores", "masked", "weights" or "context".
    """
    widths = {rows.size(-1) for rows in changed.values()}
    if sum(rows.size(-2) for rows in changed.values()) == site.n_query and len(widths) == 1:
        return torch.cat([changed[first] for first in sorted(changed)], dim=-2)
    batches = range(site.lead[0] if len(site.lead) > 1 else 1)
    computed = [getattr(site, name)(batch=batch) for batch in batches]
    table = torch.stack(computed) if len(site.lead) > 1 else computed[0]
    for first, rows in changed.items():  # a step knows only the keys that were there by then
        table[..., first : first + rows.size(-2), : rows.size(-1)] = rows
    return table
