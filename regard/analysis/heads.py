"""What each head of a trace is like, in a few numbers, and which one to show first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from regard.errors import InputError
from regard.trace.site import Site
from regard.trace.trace import Trace

_SAMPLE = 256
"""Queries looked at in long texts, evenly spread: more would not change a mean."""
GLANCE = 32
"""Queries looked at to choose one of many heads: a reader waits for it."""
_OWN = 0.2
"""What a look at itself counts: it is easy to read, but tells nothing."""
ALIGNING = "alignment_heads"
"""Where a model folder's config.json says, among its extras, which heads align best."""

_PATCHES = "encoder.embedding.patches"
Place = tuple[str, int]
"""A site and a head of it."""


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
    """Share of the keys that are the favorite of some query, out of as many as could be."""


@dataclass(frozen=True)
class Selection:
    """One query and one key of one head."""

    site: str
    head: int
    query: int
    key: int


def measure_heads(site: Site, *, batch: int = 0) -> list[HeadMeasures]:
    """The measures of every head of a site."""
    rows = _spread(site.n_query, _SAMPLE)
    return [
        _measure(site.weights(head, batch=batch, rows=rows), rows, site) for head in _heads(site)
    ]


def readable(trace: Trace, *, batch: int = 0) -> Selection:
    """The connection that shows best what attention is: where a reader should begin.

    Of heads that are known to align words, it is the one that puts most weight on the words that
    they agree on. Else heads are preferred whose queries look at one or two keys, at different
    ones, and not at special tokens; of those that read another text before those that read their
    own.
    """
    if not trace.sites:
        raise InputError("the trace has no attention site: nothing was computed while it watched.")
    if _PATCHES in trace.values:
        return _of_class_token(trace, batch)
    clear = _agreements(trace, batch) or _all_clarities(trace, batch)
    path, head = max(clear, key=lambda place: clear[place])
    site = trace[path]
    rows = _spread(site.n_query, _SAMPLE)
    plain = ~_specials(trace, site, "answers", site.n_key)
    asks = ~_specials(trace, site, "asks", site.n_query)[rows]
    liked = _weights(site, [head], batch, rows)[0] * plain * asks[:, None]
    if _reads_itself(site):
        liked[rows[:, None] == torch.arange(site.n_key)] *= _OWN
    row, key = divmod(int(liked.argmax()), site.n_key)
    return Selection(path, head, int(rows[row]), key)


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
    favorites = weights.argmax(-1)[weights.sum(-1) > 0].unique()
    return HeadMeasures(
        entropy=float(-(torch.xlogy(weights, weights)).sum(-1).mean() / log(2)),
        distance=float((weights * apart).sum(-1).mean()),
        diagonal=float((weights * (apart <= 1)).sum(-1).mean()),
        peak=float(weights.amax(-1).mean()),
        variety=len(favorites) / min(len(rows), site.n_key),
    )


def _expected(rows: Tensor, site: Site) -> Tensor:
    """The key that stands where a query stands, if both texts are stretched to one length."""
    if site.n_query == site.n_key or not site.path.endswith("cross"):
        return rows.double()
    return (rows + 0.5) * site.n_key / site.n_query - 0.5


def _agreements(trace: Trace, batch: int) -> dict[Place, float]:
    """How much weight each head that aligns words puts on what all of them together prefer.

    None where the model's folder names no such heads, or heads that look at a word after it is
    written: their rows stand one place lower than the words.
    """
    noted = getattr(trace.origin, "extras", {}).get(ALIGNING) or {}
    places: list[Place] = [] if noted.get("after", True) else [(p, h) for p, h in noted["places"]]
    if not places or any(path not in trace.sites for path, _ in places):
        return {}
    site = trace[places[0][0]]
    rows = _spread(site.n_query, GLANCE)
    asks = ~_specials(trace, site, "asks", site.n_query)[rows]
    plain = ~_specials(trace, site, "answers", site.n_key)
    if not asks.any() or not plain.any():
        return {}
    tables = torch.cat([_weights(trace[path], [head], batch, rows) for path, head in places])
    agreed = (tables.mean(0) * plain).argmax(-1)
    on_it = tables[:, torch.arange(len(rows)), agreed][:, asks].mean(-1)
    return dict(zip(places, on_it.tolist(), strict=True))


def _all_clarities(trace: Trace, batch: int) -> dict[Place, float]:
    """How well each head shows what attention is; of those that read another text if any do."""
    crossing = [path for path in trace if path.endswith("cross")]
    return {
        (path, head): clarity
        for path in crossing or trace
        for head, clarity in enumerate(_clarities(trace, path, batch))
    }


def _clarities(trace: Trace, path: str, batch: int) -> list[float]:
    """How well each head of a site shows what attention is."""
    site = trace[path]
    rows = _spread(site.n_query, GLANCE)
    asks = ~_specials(trace, site, "asks", site.n_query)[rows]
    if not asks.any():
        return [0.0] * site.n_heads
    weights = _weights(site, range(site.n_heads), batch, rows)
    plain = weights.masked_fill(_specials(trace, site, "answers", site.n_key), 0.0)
    top = plain[:, asks].topk(min(2, site.n_key)).values.sum(-1).mean(-1)
    if _reads_itself(site):
        own = plain.gather(-1, rows[:, None].expand(len(plain), -1, 1)).mean((-2, -1))
        top = top * (1 - (1 - _OWN) * own)
    most = min(int(asks.sum()), site.n_key)
    variety = [len(liked.unique()) / most for liked in plain[:, asks].argmax(-1)]
    return [clear * share for clear, share in zip(top.tolist(), variety, strict=True)]


def _reads_itself(site: Site) -> bool:
    """Whether queries and keys are the same tokens."""
    asks, answers = sides(site.path)
    return asks == answers and site.n_query == site.n_key


def _weights(site: Site, heads: Iterable[int], batch: int, rows: Tensor) -> Tensor:
    tables = [site.weights(head, batch=batch, rows=rows) for head in heads]
    return torch.stack(tables).clamp(min=0)


def _spread(n: int, most: int) -> Tensor:
    """At most so many of n positions, evenly spread."""
    return torch.linspace(0, n - 1, min(n, most)).round().long()


def _specials(trace: Trace, site: Site, which: str, n: int) -> Tensor:
    """Where a special token stands, as far as the trace knows words."""
    side = sides(site.path)[which == "answers"]
    if which == "asks" and site.path.endswith("cross") and "output" in trace.words:
        side = "output"  # there a query is the word that it writes
    words: Sequence[int | None] = trace.words.get(side, ())
    if len(words) != n or all(word is None for word in words):
        return torch.zeros(n, dtype=torch.bool)
    return torch.tensor([word is None for word in words])


def _heads(site: Site) -> range:
    return range(site.n_heads)
