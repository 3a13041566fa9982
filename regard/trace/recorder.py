"""The listener that records sites, whose queries may be computed step by step, and other values."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from math import inf, isfinite
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from regard.attention.mask import BooleanMask, Mask
from regard.attention.pattern import ExactPattern, Pattern, WeightsPattern
from regard.attention.similarity import BiasedDot, Similarity
from regard.attention.tile import Grid, broadcast_lead
from regard.errors import InputError, NotFiniteError, as_texts
from regard.tap import Tapped, split_path
from regard.trace.site import Site

_NEEDED = ("query", "key", "value", "pattern")
_SITE_PARTS = (*_NEEDED, "crosses")
_IN_PATTERN = ("similarity", "scale", "temperature", "allowed")
_TABLES = ("compared", "scores", "masked", "weights")
_CHANGEABLE = (*_TABLES, "context")  # in the order of computation


class Recorder:
    """Record sites and values, and stop at the first value that is not finite."""

    changes = False

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = as_texts(names, "only")
        self.values: dict[str, Tensor] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._caches: set[int] = set()
        self._previous = ""
        self.stopped = False
        """True once a value was not finite, which ended the computation."""

    def wants(self, path: str) -> bool:
        """Return False: the n × n values of a site can be computed afterwards."""
        return False

    def see(self, tapped: Tapped) -> Any:
        site, first, name = split_path(tapped.path)
        value = tapped.value
        if isinstance(value, Tensor):
            value = value.detach()
            self._check_finite(tapped.path, name, value)
        if not self._records(f"{site}.{name}" if site else name, site):
            return tapped.value
        if name in _SITE_PARTS or (name in _CHANGEABLE and tapped.changed):
            self._keep(site, first, name, value)
        if isinstance(value, Tensor) and name not in (*_SITE_PARTS, *_IN_PATTERN, *_TABLES):
            path = f"{site}.{name}" if site else name
            self.values[path] = _append(self.values.get(path), value, first)
        return tapped.value

    def copy_before(self, changed: Tensor, *, is_cache: bool = False) -> None:
        """Copy what was recorded from the memory of a tensor that is about to be changed.

        A cache, which is written place by place, is copied at the end, too: the next run of the
        model will write to it again.
        """
        memory = changed.untyped_storage()._cdata
        self._copy(memory)
        if is_cache:
            self._caches.add(memory)

    def copy_caches(self) -> None:
        """Copy what was recorded from caches, at the end of the block."""
        while self._caches:
            self._copy(self._caches.pop())

    def _copy(self, memory: int) -> None:
        if self._parts or self.values:
            self._parts.update(_copied(self._parts, memory))
            self.values.update(_copied(self.values, memory))

    def _records(self, path: str, site: str) -> bool:
        """Return True if a value, or the site it belongs to, has one of the chosen names."""
        return not self.names or any(
            fnmatchcase(path, one) or fnmatchcase(site, one) for one in self.names
        )

    def sites(self) -> dict[str, Site]:
        """Return the sites by path, in the order of computation.

        A site whose computation an exception has ended is left out.
        """
        made = {}
        for path, parts in self._parts.items():
            if not all(name in parts for name in _NEEDED):
                continue
            query, key, value = (parts[x] for x in ("query", "key", "value"))
            lead = broadcast_lead(query.shape[:-2], key.shape[:-2])
            steps = parts["pattern"]
            if len(steps) > 1 and any(isinstance(one[2], WeightsPattern) for one in steps):
                steps = _as_weights(steps, query, key, value)
            pattern = _join_patterns(steps, lead, query.size(-2))
            site = Site(path, query, key, value, pattern, crosses=parts.get("crosses"))
            for name in _CHANGEABLE:
                if name in parts:
                    site.changed[name] = _join_tables(site, name, parts[name])
            made[path] = site
        return made

    def _keep(self, site: str, first: int, name: str, value: Any) -> None:
        if first == 0 and name == "query":
            self._parts.pop(site, None)  # the last computation of a site counts
        parts = self._parts.setdefault(site, {})
        if name == "query":
            parts[name] = _append(parts.get(name), value, first)
        elif name == "pattern":
            parts.setdefault(name, []).append((first, parts["key"].size(-2), value))
        elif name in _CHANGEABLE:
            parts.setdefault(name, {})[first] = value
        else:
            parts[name] = value

    def _check_finite(self, path: str, name: str, value: Tensor) -> None:
        if name == "temperature" or isfinite(value.sum()):  # one NaN or inf makes the sum one
            self._previous = path
            return
        finite = torch.isfinite(value)
        if name in ("compared", "scores", "masked"):
            finite = finite | (value == -inf)
        if finite.all():
            self._previous = path
            return
        self.stopped = True
        index, before = (~finite).nonzero()[0].tolist(), self._previous
        cause = f"what feeds it ({before} was still finite)" if before else "the inputs"
        raise NotFiniteError(
            f"{path} is {value[tuple(index)].item()} at {index}, the first value that is not "
            f"finite: check {cause}."
        )


class GradientListener:
    """Keeps every inner value in the graph, to compute gradients of a logit with respect to it."""

    changes = True  # values without a graph start one

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def wants(self, path: str) -> bool:
        """Return True: gradients of scores and weights need those that the model computes."""
        return True

    def see(self, tapped: Tapped) -> Any:
        value = tapped.value
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if not value.requires_grad:
            value = value.detach().requires_grad_()
        self.values[tapped.path] = value
        return value

    @torch.enable_grad()
    def gradients(self, position: int, id: int | None = None) -> dict[str, Tensor]:
        """Return the gradient of a logit with respect to every value it depends on, by path."""
        logits = self.values.get("output.logits")
        if logits is None:
            raise InputError("this model has no logits, so there is nothing to take gradients of.")
        rows = logits[0].reshape(-1, logits.size(-1))
        row = rows[check_index("position", position, len(rows))]
        best = int(row.argmax()) if id is None else check_index("token", id, len(row))
        names = [path for path in self.values if path != "output.logits"]
        found = torch.autograd.grad(
            row[best], [self.values[path] for path in names], allow_unused=True
        )
        return {path: x for path, x in zip(names, found, strict=True) if x is not None}


def check_index(name: str, index: int, count: int) -> int:
    """Refuse an index that does not exist; negative ones count from the end."""
    if not -count <= index < count:
        raise InputError(f"{name} is {index}; there are {count}, 0 to {count - 1}.")
    return index


def _copied(recorded: Any, memory: int) -> Any:
    """Return the same values with copies of the tensors that are in this memory."""
    if isinstance(recorded, Tensor):
        return recorded.clone() if recorded.untyped_storage()._cdata == memory else recorded
    if isinstance(recorded, dict):
        return {name: _copied(one, memory) for name, one in recorded.items()}
    if isinstance(recorded, tuple | list):
        return type(recorded)([_copied(one, memory) for one in recorded])
    if isinstance(recorded, ExactPattern | WeightsPattern | BooleanMask):
        parts = {one.name: getattr(recorded, one.name) for one in fields(recorded)}
        new = _copied(parts, memory)
        return replace(recorded, **new) if any(new[x] is not parts[x] for x in new) else recorded
    return recorded


def _append(before: Tensor | None, value: Tensor, first: int) -> Tensor:
    if before is None or first == 0:
        return value
    return torch.cat([before[..., :first, :], value], dim=-2)


@dataclass(frozen=True, repr=False, eq=False)
class StepwiseMask(Mask):
    """A mask for each step, applied to the queries of that step."""

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
        lead = broadcast_lead(*(allowed.shape[:-2] for _, _, allowed in parts))
        size = (*lead, len(grid.rows), len(grid.columns))
        whole = grid.rows.new_zeros(size, dtype=torch.bool)
        for rows, columns, allowed in parts:
            whole[..., rows, columns] = allowed
        return whole

    def __repr__(self) -> str:
        pairs = zip(self.firsts, self.masks, strict=True)
        return f"stepwise({', '.join(f'{first}: {mask!r}' for first, mask in pairs)})"


def _join_patterns(
    steps: list[tuple[int, int, Pattern]], lead: tuple[int, ...], n_query: int
) -> Pattern:
    """Return the last pattern with the masks of all steps: first query, number of keys, pattern."""
    firsts, n_keys, patterns = zip(*steps, strict=True)
    last, exact = patterns[-1], [one for one in patterns if isinstance(one, ExactPattern)]
    tables = [one.table for one in patterns if isinstance(one, WeightsPattern)]
    if len(steps) > 1 and len(tables) == len(steps):
        return WeightsPattern(_stack_tables(tables, n_keys[-1]))
    if not isinstance(last, ExactPattern) or len(exact) < len(steps) or len(steps) == 1:
        return last
    last = replace(last, similarity=_join_biases(exact, (*firsts, n_query), n_keys))
    masks = tuple(one.allowed for one in exact)
    grid = Grid.whole(lead, 1, n_keys[-1], torch.device("cpu"))
    same = len(set(n_keys)) == 1 and all(mask == masks[-1] for mask in masks)
    if same and masks[-1].on_keys(grid) is not None:
        return last  # the same for every query of every step
    return replace(last, allowed=StepwiseMask(masks, firsts, n_keys))


def _as_weights(
    steps: list[tuple[int, int, Pattern]], query: Tensor, key: Tensor, value: Tensor
) -> list[tuple[int, int, Pattern]]:
    """Return the same steps with tables of weights in place of other patterns."""
    ends, made = [*(first for first, _, _ in steps[1:]), query.size(-2)], []
    for (first, n_key, pattern), end in zip(steps, ends, strict=True):
        if not isinstance(pattern, WeightsPattern):
            known = query[..., first:end, :], key[..., :n_key, :], value[..., :n_key, :]
            pattern = WeightsPattern(Site("step", *known, pattern).all_batches("weights"))
        made.append((first, n_key, pattern))
    return made


def _join_biases(
    patterns: list[ExactPattern], bounds: tuple[int, ...], n_keys: tuple[int, ...]
) -> Similarity:
    """Return the last similarity with the tables of all steps, whose keys are the first ones."""
    similarities = [one.similarity for one in patterns]
    last = similarities[-1]
    tables = [getattr(one, "table", None) for one in similarities]
    if not isinstance(last, BiasedDot) or all(table is None for table in tables):
        return last
    like = next(table for table in tables if table is not None)
    rows = []
    for i, (table, n_key) in enumerate(zip(tables, n_keys, strict=True)):
        table = like.new_zeros(1, 1) if table is None else table
        n_query = bounds[i + 1] - bounds[i]
        rows.append(table.expand(*table.shape[:-2], n_query, n_key))
    return BiasedDot(last.factor, _stack_tables(rows, n_keys[-1]))


def _stack_tables(tables: list[Tensor], n_key: int) -> Tensor:
    """Return the rows of all steps; keys that a step did not have yet get 0."""
    lead = broadcast_lead(*(table.shape[:-2] for table in tables))
    whole = [F.pad(table, (0, n_key - table.size(-1))) for table in tables]
    return torch.cat([table.expand(*lead, *table.shape[-2:]) for table in whole], dim=-2)


def _join_tables(site: Site, name: str, changed: dict[int, Tensor]) -> Tensor:
    """Return a whole table: rows that an edit replaced, by first query, and computed ones."""
    widths = {rows.size(-1) for rows in changed.values()}
    if sum(rows.size(-2) for rows in changed.values()) == site.n_query and len(widths) == 1:
        return torch.cat([changed[first] for first in sorted(changed)], dim=-2)
    table = site.all_batches(name)
    for first, rows in changed.items():  # a step has only the keys known by then
        table[..., first : first + rows.size(-2), : rows.size(-1)] = rows
    return table
