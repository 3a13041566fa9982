"""Answers to products of hand-written weights and values, which complete an attention site."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from regard.attention.attend import tapped_attention
from regard.attention.mask import BooleanMask, Causal, Everything, Mask
from regard.attention.pattern import ExactPattern, WeightsPattern
from regard.attention.similarity import RecordedScores
from regard.attention.tile import broadcast_lead
from regard.tap import attending, listeners, tap, wanted
from regard.trace.notes import Softmax, WeightsNote
from regard.trace.products import HIDDEN, Product, WeightedValues, dot_similarity, with_heads
from regard.trace.trace import CallFacts
from regard.trace.watched_model import find_places, sites


def note_softmax(softmax: Softmax) -> None:
    """Remember a softmax of scores, until its result is multiplied with values."""
    if softmax.path:
        return
    for place in find_places():
        softmax.path = place.path or "the model"
        place.watch.softmaxes.append(softmax)


def answer_product(note: WeightsNote, product: Product, origin: int) -> Tensor | None:
    """Compute a product of weights and values as an attention site; None if it is not one.

    `origin` is what the values were projected from.
    """
    roles, places = product.weighted_values(), find_places()
    layout = None if roles is None or not places else _read_layout(note, product, roles)
    if roles is None or layout is None:
        return None
    call = _HandwrittenSum(note, product, roles, layout)
    softmax = note.softmax
    for one in (softmax, *note.others):
        one.used = True
    # nothing that autograd would keep for what only regard computes: a checkpoint counts it
    edited = any(one.changes for one in listeners())
    with torch.set_grad_enabled(edited and torch.is_grad_enabled()):
        heads, pattern, facts = call.heads_and_pattern()
    table = softmax.table
    if table is None or not table.exact:
        crosses = heads[0].size(-2) != heads[1].size(-2)
    else:
        crosses = table.origins[0] != table.origins[1]
    with sites(places, heads[0], heads[1], crosses, facts) as site:
        if isinstance(pattern, ExactPattern):
            options = {"kernel": call.kernel, "weighted_sum": call.weighted_sum}
            context = tapped_attention(*heads, pattern, site=site, **options)
        else:
            context = _tapped_weights(call, heads, pattern, site)
    return call.result(context)


def _tapped_weights(
    call: "_HandwrittenSum",
    heads: tuple[Tensor, Tensor, Tensor],
    pattern: WeightsPattern,
    site: str,
) -> Tensor:
    """Tap a site whose weights do not follow from scores: they and the context can be replaced."""
    names = (("query", "query d_q"), ("key", "key d_k"), ("value", "key d_v"))
    *_, value = [
        tap(f"{site}.{name}", given, axes) for (name, axes), given in zip(names, heads, strict=True)
    ]
    tap(f"{site}.pattern", pattern, "")
    with attending():
        if wanted(f"{site}.weights") or value is not heads[2]:
            weights = tap(f"{site}.weights", pattern.table, "query key")
            context = call.weighted_sum(weights, value)
        else:
            context = call.kernel()
    return tap(f"{site}.context", context, "query d_v")


@dataclass(frozen=True)
class _Layout:
    """The axes of the softmax as (*lead, query, key), and back."""

    to_table: Callable[[Tensor], Tensor]
    from_table: Callable[[Tensor], Tensor]
    key_axis: int
    """The axis of the softmax's tensors that counts keys, from the end."""
    query_axis: int | None
    turned: bool | None = None
    """True if keys are the rows of the scores; None if rows and columns are other axes."""


def _read_layout(note: WeightsNote, product: Product, roles: WeightedValues) -> _Layout | None:
    scores, weights = note.softmax.scores, product.weights
    n_axes, order = scores.dim(), roles.order
    if order is not None:
        if note.flipped or scores.shape != weights.shape:
            return None
        back = tuple(order.index(axis) for axis in range(n_axes))
        query, key = order[-2] - n_axes, order[-1] - n_axes
        turned = {(-2, -1): False, (-1, -2): True}.get((query, key))
        return _Layout(lambda x: x.permute(order), lambda x: x.permute(back), key, query, turned)
    if scores.numel() != weights.numel():
        return None
    turned = (roles.key_axis == -1) == note.flipped
    shape = scores.shape[-2:]
    if n_axes >= 2 and weights.shape[-2:] == (shape[::-1] if note.flipped else shape):
        turn = (lambda x: x.mT) if turned else (lambda x: x)
        return _Layout(turn, turn, -2 if turned else -1, -1 if turned else -2, turned)
    if n_axes == 2 and weights.dim() == 3 and weights.size(roles.key_axis) == scores.size(1):
        return _Layout(lambda x: x.unsqueeze(-2), lambda x: x.squeeze(-2), -1, None)
    return None


class _HandwrittenSum:
    """One product of hand-written weights and values, in the layout of attention."""

    def __init__(
        self, note: WeightsNote, product: Product, roles: WeightedValues, layout: _Layout
    ) -> None:
        self.note, self.product, self.roles, self.layout = note, product, roles, layout
        self.scores = layout.to_table(note.softmax.scores)
        lead, value = tuple(self.scores.shape[:-2]), roles.value
        if value.dim() - 2 != len(lead):
            value = value.reshape(*lead, *value.shape[-2:])
        self.lead = broadcast_lead(lead, value.shape[:-2])
        self.value = with_heads(value, self.lead)
        self._shape: torch.Size | None = None
        with torch.no_grad():
            self.is_softmax = note.is_softmax(product.weights)
            """False if the values are multiplied with something that the softmax was made into."""

    def heads_and_pattern(
        self,
    ) -> tuple[tuple[Tensor, Tensor, Tensor], ExactPattern | WeightsPattern, CallFacts]:
        """Return query, key and value, how weights follow from them, and what to check."""
        softmax, table = self.note.softmax, self.note.softmax.table
        pair = self._query_and_key()
        d_k: int | None = None
        factor = before = 1.0
        hidden = self._hidden()
        if pair is None or table is None:
            size = self.scores.size(-1)
            key = torch.eye(size, dtype=self.scores.dtype, device=self.scores.device)
            pair = (
                self.scores.masked_fill(hidden, 0.0),
                key.expand(*self.scores.shape[:-2], -1, -1),
            )
            similarity = RecordedScores()
        else:
            factor, before, d_k = table.factor, table.factor_before, pair[0].size(-1)
            similarity = dot_similarity(factor, d_k, self._bias(*pair, factor, hidden))
        query, key = (with_heads(x, self.lead) for x in pair)
        right = softmax.axis == self.layout.key_axis
        other = "queries" if softmax.axis == self.layout.query_axis else "heads"
        facts = CallFacts(d_k, factor * before, softmax.dropout, "keys" if right else other)
        if right and self.is_softmax:
            pattern = ExactPattern(similarity, factor, 1.0, _describe(hidden, self.lead))
        else:
            pattern = WeightsPattern(with_heads(self._weights(), self.lead).detach())
        return (query, key, self.value), pattern, facts

    def _weights(self) -> Tensor:
        """Return what the values are multiplied with; before dropout, if nothing else is done."""
        softmax, used = self.note.softmax, self.product.weights
        if self.is_softmax:
            return self.layout.to_table(softmax.weights)
        used = used.mT if self.note.flipped else used
        return self.layout.to_table(used.reshape(softmax.shape))

    def _query_and_key(self) -> tuple[Tensor, Tensor] | None:
        table, turned = self.note.softmax.table, self.layout.turned
        if table is None or not table.exact or turned is None:
            return None
        pair = (table.columns, table.rows) if turned else (table.rows, table.columns)
        lead = tuple(self.scores.shape[:-2])
        found = []
        for vectors, n in zip(pair, self.scores.shape[-2:], strict=True):
            if vectors.dim() - 2 != len(lead):
                if prod(vectors.shape[:-2]) != prod(lead):
                    return None
                vectors = vectors.reshape(*lead, *vectors.shape[-2:])
            if vectors.size(-2) != n:
                return None
            found.append(vectors.to(self.scores.dtype))
        return found[0], found[1]

    def _hidden(self) -> Tensor:
        """Return True where a query must not see a key."""
        hidden = self.scores <= HIDDEN
        return hidden & ~(hidden & (self.scores > -torch.inf)).all(-1, keepdim=True)

    def _bias(self, query: Tensor, key: Tensor, factor: float, hidden: Tensor) -> Tensor | None:
        """Return what was added to the scores; None if nothing was."""
        plain = query @ key.mT * factor
        bias = (self.scores - plain).masked_fill(hidden, 0.0)
        if self.note.softmax.shifted:  # exp(score - largest), with another largest for each query
            bias = _without_shift(bias, hidden)
        least = (
            32 * torch.finfo(self.scores.dtype).eps * max(1.0, float(plain.detach().abs().max()))
        )
        if float(bias.detach().abs().max()) <= least:
            return None
        return _shared(with_heads(bias, self.lead))

    def kernel(self) -> Tensor:
        """Compute the product as the model does."""
        return self._context(self.product.compute())

    def weighted_sum(self, weights: Tensor, value: Tensor) -> Tensor:
        """Compute the product with other weights, which the caller of the softmax gets, too."""
        softmax = self.note.softmax
        table = weights.reshape(self.scores.shape)
        own = self.layout.from_table(table).to(softmax.weights.dtype)
        operand = self.note.replay(own, layout_only=not self.is_softmax)
        values = self.product.values
        if value is not self.value:
            values = self.roles.from_value(value.reshape(self.roles.value.shape))
        if self.is_softmax:
            softmax.weights.data = own.detach()
        if self.product.weights is not softmax.weights or not self.is_softmax:
            self.product.weights.data = operand.detach()
        return self._context(self.product.with_weights(operand, values))

    def result(self, context: Tensor) -> Tensor:
        """Return a context in the layout of the product."""
        assert self._shape is not None
        return self.roles.from_context(context.reshape(self._shape))

    def _context(self, result: Tensor) -> Tensor:
        context = self.roles.to_context(result)
        self._shape = context.shape
        return with_heads(context.reshape(*self.lead, *context.shape[-2:]), self.lead)


def _describe(hidden: Tensor, lead: tuple[int, ...]) -> Mask:
    """Return the mask that hides these pairs."""
    if not bool(hidden.any()):
        return Everything()
    allowed = _shared(with_heads(~hidden, lead))
    n_query, n_key = allowed.shape[-2:]
    if allowed.numel() == n_query * n_key and n_query == n_key:
        causal = torch.ones(n_query, n_key, dtype=torch.bool, device=hidden.device).tril()
        if torch.equal(allowed.reshape(n_query, n_key), causal):
            return Causal()
    return BooleanMask(allowed)


def _without_shift(bias: Tensor, hidden: Tensor) -> Tensor:
    """Return a bias without what it adds to all keys of a query, which a softmax does not see."""
    seen = ~hidden
    shift = bias.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
    rest = (bias - shift).masked_fill(hidden, 0.0)
    return bias if bool((rest.abs() > 1e-5).any()) else torch.zeros_like(bias)


def _shared(table: Tensor) -> Tensor:
    """Return the table with a leading axis of 1 where all its entries are the same."""
    for axis in range(table.dim() - 2):
        first = table.narrow(axis, 0, 1)
        if table.size(axis) > 1 and torch.equal(first.expand_as(table), table):
            table = first
    return table
