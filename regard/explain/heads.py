"""What each head of a trace is like, in a few numbers, and which one to show first."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from regard.errors import InputError
from regard.trace.site import Site
from regard.trace.trace import Trace

_SAMPLE = 256
"""Queries looked at in long texts, evenly spread: more would not change a mean."""


_PATCHES = "encoder.embedding.patches"


@dataclass(frozen=True)
class HeadMeasures:
    """One head, averaged over its queries."""

    entropy: float
    """How widely a query spreads its weights, in bits: 0 if all weight is on one key."""
    distance: float
    """How many positions away it looks. Keys of another text are counted along its diagonal."""
    diagonal: float
    """Share of the weight at most one position off the diagonal."""
    peak: float
    """A query's largest weight."""
    variety: float
    """Share of the keys that are the favourite of some query, out of as many as could be."""


@dataclass(frozen=True)
class Selection:
    """One query and one key of one head."""

    site: str
    head: int
    query: int
    key: int


def measure_heads(site: Site, *, batch: int = 0) -> list[HeadMeasures]:
    """The measures of every head of a site."""
    n = site.n_query
    rows = torch.linspace(0, n - 1, min(n, _SAMPLE)).round().long()
    return [
        _measure(site.weights(head, batch=batch, rows=rows), rows, site) for head in _heads(site)
    ]


def readable(trace: Trace, *, batch: int = 0) -> Selection:
    """The connection that shows best what attention is: where a reader should begin.

    Heads are preferred whose queries look at one or two keys, at different ones, and not at
    special tokens; of those that read another text before those that read their own.
    """
    if not trace.sites:
        raise InputError("the trace has no attention site: nothing was computed while it watched.")
    if _PATCHES in trace.values:
        return _of_class_token(trace, batch)
    crossing = [path for path in trace if path.endswith("cross")]
    best = max(
        ((path, head) for path in crossing or trace for head in _heads(trace[path])),
        key=lambda place: _clarity(trace, *place, batch),
    )
    site, weights = trace[best[0]], _weights(trace[best[0]], best[1], batch)
    plain = ~_specials(trace, site, "answers", site.n_key)
    asks = ~_specials(trace, site, "asks", site.n_query)
    liked = weights * plain * asks[: len(weights), None]
    query, key = divmod(int(liked.argmax()), site.n_key)
    return Selection(best[0], best[1], query, key)


def _of_class_token(trace: Trace, batch: int) -> Selection:
    """For images: the head whose first token looks hardest at one patch."""
    paths = list(trace)
    first = trace[paths[0]].n_key - trace.values[_PATCHES].size(-2)
    rows = {
        (path, head): trace[path].weights(head, batch=batch, rows=[0])[0, first:]
        for path in paths
        for head in _heads(trace[path])
    }
    path, head = max(rows, key=lambda place: float(rows[place].max()))
    return Selection(path, head, 0, first + int(rows[path, head].argmax()))


def sides(path: str) -> tuple[str, str]:
    """Whose tokens ask and whose answer at a site: "source" or "target"."""
    if path.endswith("cross"):
        return "target", "source"
    side = "target" if path.startswith("decoder") else "source"
    return side, side


def _measure(weights: Tensor, rows: Tensor, site: Site) -> HeadMeasures:
    weights = weights.double().clamp(min=0)  # some efficient forms imply small negative ones
    apart = (_expected(rows, site)[:, None] - torch.arange(site.n_key)).abs()
    favourites = weights.argmax(-1)[weights.sum(-1) > 0].unique()
    return HeadMeasures(
        entropy=float(-(torch.xlogy(weights, weights)).sum(-1).mean() / log(2)),
        distance=float((weights * apart).sum(-1).mean()),
        diagonal=float((weights * (apart <= 1)).sum(-1).mean()),
        peak=float(weights.amax(-1).mean()),
        variety=len(favourites) / min(len(rows), site.n_key),
    )


def _expected(rows: Tensor, site: Site) -> Tensor:
    """The key that stands where a query stands, if both texts are stretched to one length."""
    if site.n_query == site.n_key or not site.path.endswith("cross"):
        return rows.double()
    return (rows + 0.5) * site.n_key / site.n_query - 0.5


def _clarity(trace: Trace, path: str, head: int, batch: int) -> float:
    site = trace[path]
    weights = _weights(site, head, batch)
    plain = weights.masked_fill(_specials(trace, site, "answers", site.n_key), 0.0)
    asks = ~_specials(trace, site, "asks", site.n_query)[: len(weights)]
    if not asks.any():
        return 0.0
    top = plain[asks].topk(min(2, site.n_key)).values.sum(-1).mean()
    favourites = plain[asks].argmax(-1).unique()
    variety = len(favourites) / min(int(asks.sum()), site.n_key)
    # a token that looks only at itself is easy to read, but tells nothing
    own = plain.diagonal()[: len(asks)].mean() if sides(path)[0] == sides(path)[1] else 0.0
    return float(top * (1 - 0.8 * own)) * variety


def _weights(site: Site, head: int, batch: int) -> Tensor:
    return site.weights(head, batch=batch, rows=range(min(site.n_query, _SAMPLE))).clamp(min=0)


def _specials(trace: Trace, site: Site, which: str, n: int) -> Tensor:
    """Where a special token stands, as far as the trace knows words."""
    side = sides(site.path)[which == "answers"]
    words: Sequence[int | None] = trace.words.get(side, ())
    if len(words) != n or all(word is None for word in words):
        return torch.zeros(n, dtype=torch.bool)
    return torch.tensor([word is None for word in words])


def _heads(site: Site) -> range:
    return range(site.n_heads)
