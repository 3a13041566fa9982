"""Measures of attention heads, thumbnails of them, and the connection to show first.

`rollout` follows the share of each input token in each position through all layers:

    rollout_0 = Â_0        rollout_l = Â_l · rollout_(l-1)
    Â = rows of (mean of the heads' weights + identity) / 2, normalized to sum to 1

Abnar & Zuidema 2020. The identity represents the residual connection. Values, projections and
feed-forward layers are ignored, so a rollout is a rough guide, not a cause.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.trace.site import Site
from regard.trace.trace import IMAGE, Trace

_SAMPLE = 256  # queries measured in long texts: more would hardly change a mean
FAST_SAMPLE = 32  # queries measured to choose one of many heads while a reader waits
_STRIP_CELLS = 4_000_000  # weights in memory at once for a thumbnail
_SELF_WEIGHT = 0.2  # factor for weights of a token on itself, which show little
ALIGNMENT_HEADS = "alignment_heads"  # key in config.json's extras
_PATCHES = "encoder.embedding.patches"
HeadPath = tuple[str, int]  # path of a site and one of its heads


@dataclass(frozen=True)
class HeadMeasures:
    """Measures of one head, averaged over its queries."""

    entropy: float  # entropy of the weights in bits: 0 if all weight is on one key
    distance: float  # mean distance in positions; in cross-attention, from the diagonal
    diagonal: float  # share of the weight at most one position from the diagonal
    peak: float  # largest weight of a query
    variety: float
    """Number of keys that have the largest weight of some query, relative to the maximum."""


@dataclass(frozen=True)
class Selection:
    """One query and one key of one head."""

    site: str
    head: int
    query: int
    key: int


def measure_heads(site: Site, *, batch: int = 0) -> list[HeadMeasures]:
    """Measure every head of a site."""
    rows = _evenly_spaced(site, _SAMPLE)
    diagonal = rows.double()
    if is_cross(site) and site.n_query != site.n_key:
        diagonal = (rows + 0.5) * site.n_key / site.n_query - 0.5
    apart = (diagonal[:, None] - torch.arange(site.n_key, device=rows.device)).abs()
    found = []
    for head in range(site.n_heads):
        weights = _weights(site, [head], batch, rows)[0].double()
        favorites = weights.argmax(-1)[weights.sum(-1) > 0].unique()
        entropy = -torch.xlogy(weights, weights).sum(-1) / log(2)
        sums = (weights * apart).sum(-1), (weights * (apart <= 1)).sum(-1), weights.amax(-1)
        means = [float(one.mean()) for one in (entropy, *sums)]
        found.append(HeadMeasures(*means, variety=len(favorites) / min(len(rows), site.n_key)))
    return found


def thumbnails(
    site: Site, size: int = 64, *, batch: int = 0, check: Callable[[], None] = lambda: None
) -> Float[Tensor, "head height width"]:
    """Return the weights of every head, averaged to at most `size` rows and columns.

    Row i starts at query ⌈i · n / size⌉, and in long texts averages evenly spaced queries. `check`
    is called before each head and may raise to cancel.
    """
    rows, columns = (_band_edges(n, min(size, n)) for n in (site.n_query, site.n_key))
    most = max(1, _STRIP_CELLS // site.n_key // size)
    bands = [torch.arange(a, b) for a, b in pairwise(rows.tolist())]
    picked = torch.cat([band[:: max(1, ceil(len(band) / most))] for band in bands])
    down, across = _mean_matrix(rows, picked), _mean_matrix(columns, torch.arange(site.n_key))
    down, across = down.to(site.query.device), across.to(site.query.device)
    found = []
    for head in range(site.n_heads):
        check()
        found.append(down @ _weights(site, [head], batch, picked)[0].float() @ across.T)
    return torch.stack(found)


def weights_to_bytes(weights: Tensor) -> Tensor:
    """Encode weights between 0 and 1 as bytes: 255 · √weight."""
    return (weights.clamp(0, 1).sqrt() * 255).round().byte().cpu()


def _band_edges(n: int, bands: int) -> Tensor:
    return (torch.arange(bands + 1) * n + bands - 1) // bands


def _mean_matrix(edges: Tensor, positions: Tensor) -> Tensor:
    band = torch.bucketize(positions, edges[1:], right=True)
    member = torch.nn.functional.one_hot(band, len(edges) - 1).T.float()
    return member / member.sum(1, keepdim=True)


def default_selection(trace: Trace, *, batch: int = 0) -> Selection:
    """Return the connection that shows best what attention does.

    Preferred are the listed heads that align words, and among them the one closest to all; then
    heads whose queries look at few and different words; cross-attention comes first.
    """
    if not trace.sites:
        raise InputError("the trace has no attention site: nothing was computed while it recorded.")
    if count_patches(trace):
        return _class_token_selection(trace, batch)
    clarity = _agreements(trace, batch) or _clarities(trace, batch)
    path, head = max(clarity, key=lambda one: clarity[one])
    site = trace[path]
    rows, asks, answers = _words(trace, site, _SAMPLE)
    weights = _weights(site, [head], batch, rows)[0] * answers * asks[:, None]
    if _is_self_attention(site):
        weights[rows[:, None] == torch.arange(site.n_key, device=rows.device)] *= _SELF_WEIGHT
    row, key = divmod(int(weights.argmax()), site.n_key)
    return Selection(path, head, int(rows[row]), key)


def selection_between(trace: Trace, asks: str, answers: str) -> Selection | None:
    """Return the head in which one word gives another the largest weight; None without them.

    In cross-attention, `asks` is the word being written.
    """
    found: dict[Selection, float] = {}
    for path, site in trace.sites.items():
        names = ("output", "source") if is_cross(site) else sides(trace, path)
        rows, columns = ([token.strip() for token in trace.tokens.get(side, ())] for side in names)
        if asks not in rows or answers not in columns:
            continue
        row, key = rows.index(asks), columns.index(answers)
        for head in range(site.n_heads):
            weight = site.weights(head, rows=slice(row, row + 1))[0, key]
            found[Selection(path, head, row, key)] = float(weight)
    return max(found, key=lambda one: found[one], default=None)


def count_patches(trace: Trace) -> int:
    """Return how many positions are patches of an image; 0 for a text."""
    if _PATCHES in trace.values:
        return trace.values[_PATCHES].size(-2)
    if IMAGE not in trace.values:
        return 0
    return sum("," in name for name in trace.tokens["source"])  # "row,column", not "[class]"


def _class_token_selection(trace: Trace, batch: int) -> Selection:
    """Return the largest weight of an image's class token on a patch."""
    first = next(iter(trace.sites.values())).n_key - count_patches(trace)
    rows = {
        (path, head): site.weights(head, batch=batch, rows=0)[0, first:]
        for path, site in trace.sites.items()
        for head in range(site.n_heads)
    }
    path, head = max(rows, key=lambda one: float(rows[one].max()))
    return Selection(path, head, 0, first + int(rows[path, head].argmax()))


def is_cross(site: Site) -> bool:
    """Return True if the target asks and the source answers."""
    return site.path.endswith("cross") or bool(site.crosses)


def sides(trace: Trace, path: str) -> tuple[str, str]:
    """Return the sides, "source" or "target", of a site's queries and keys."""
    if is_cross(trace[path]):
        return "target", "source"
    has_target_only = "target" in trace.tokens and "source" not in trace.tokens
    side = "target" if has_target_only or "decoder" in path.split(".")[:2] else "source"
    return side, side


def _agreements(trace: Trace, batch: int) -> dict[HeadPath, float]:
    """Return the weight of each alignment head on the keys that all of them together prefer.

    Heads that align a word by what is read after it do not count: their rows are one too low.
    """
    noted = getattr(trace.origin, "extras", {}).get(ALIGNMENT_HEADS) or {}
    heads: list[HeadPath] = [] if noted.get("after", True) else [(p, h) for p, h in noted["places"]]
    if not heads or any(path not in trace.sites for path, _ in heads):
        return {}
    rows, asks, answers = _words(trace, trace[heads[0][0]], FAST_SAMPLE)
    if not asks.any() or not answers.any():
        return {}
    tables = torch.cat([_weights(trace[path], [head], batch, rows) for path, head in heads])
    agreed = (tables.mean(0) * answers).argmax(-1)
    on_it = tables[:, torch.arange(len(rows)), agreed][:, asks].mean(-1)
    return dict(zip(heads, on_it.tolist(), strict=True))


def _clarities(trace: Trace, batch: int) -> dict[HeadPath, float]:
    crossing = [path for path in trace if path.endswith("cross")]
    return {
        (path, head): clarity
        for path in crossing or trace
        for head, clarity in enumerate(_site_clarities(trace, trace[path], batch))
    }


def _site_clarities(trace: Trace, site: Site, batch: int) -> list[float]:
    rows, asks, answers = _words(trace, site, FAST_SAMPLE)
    if not asks.any():
        return [0.0] * site.n_heads
    weights = _weights(site, range(site.n_heads), batch, rows).masked_fill(~answers, 0.0)
    top = weights[:, asks].topk(min(2, site.n_key)).values.sum(-1).mean(-1)
    if _is_self_attention(site):
        own = weights.gather(-1, rows[:, None].expand(len(weights), -1, 1)).mean((-2, -1))
        top = top * (1 - (1 - _SELF_WEIGHT) * own)
    most = min(int(asks.sum()), site.n_key)
    variety = [len(favorites.unique()) / most for favorites in weights[:, asks].argmax(-1)]
    return [clear * share for clear, share in zip(top.tolist(), variety, strict=True)]


def _is_self_attention(site: Site) -> bool:
    return not is_cross(site) and site.n_query == site.n_key


def _weights(site: Site, heads: Iterable[int], batch: int, rows: Tensor) -> Tensor:
    tables = [site.weights(head, batch=batch, rows=rows) for head in heads]
    return torch.stack(tables).clamp(min=0)


def _words(trace: Trace, site: Site, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return sampled queries, which of them are words, and which keys are words."""
    asks, answers = sides(trace, site.path)
    if is_cross(site) and "output" in trace.words:
        asks = "output"  # a query is the word that it predicts
    rows = _evenly_spaced(site, most)
    queries = _is_word(trace, asks, site.n_query, rows)[rows]
    return rows, queries, _is_word(trace, answers, site.n_key, rows)


def _is_word(trace: Trace, side: str, n: int, like: Tensor) -> Tensor:
    words = trace.words.get(side, ())
    if len(words) != n or all(word is None for word in words):
        return like.new_ones(n, dtype=torch.bool)
    return torch.tensor([word is not None for word in words], device=like.device)


def _evenly_spaced(site: Site, most: int) -> Tensor:
    count = min(site.n_query, most)
    return torch.linspace(0, site.n_query - 1, count, device=site.query.device).round().long()


_LAYER = re.compile(r"(?P<stack>.+\.layers\.)(?P<layer>\d+)\.self")
MAX_TOKENS = 2048
"""Longer texts would take minutes: each layer is a product of two token × token tables."""


def rollout(trace: Trace, path: str, *, batch: int = 0) -> Float[Tensor, "token token"]:
    """Return the share of each input token in each token after a layer; rows sum to 1."""
    paths = layers_up_to(trace, path)
    n = trace[path].n_query
    if n > MAX_TOKENS:
        raise InputError(
            f"{path} has {n:,} tokens; a rollout has at most {MAX_TOKENS:,}: shorten the text."
        )
    identity = torch.eye(n, dtype=torch.float64, device=trace[path].query.device)
    total = identity
    for site in (trace[each] for each in paths):
        weights = torch.zeros_like(identity)
        for head in range(site.n_heads):
            weights += site.weights(head, batch=batch).double()
        # some efficient forms have small negative weights, and some queries may see nothing
        mixed = weights.clamp(min=0) / site.n_heads + identity
        total = mixed / mixed.sum(-1, keepdim=True) @ total
    return total


def layers_up_to(trace: Trace, path: str) -> list[str]:
    """Return the self-attention sites of a stack from its first layer to this one."""
    site, match = trace[path], _LAYER.fullmatch(path)
    if match is None or site.n_query != site.n_key:
        raise InputError(
            f"{path} is not a self-attention layer; a rollout needs one, such as "
            "encoder.layers.0.self."
        )
    stack = [f"{match['stack']}{n}.self" for n in range(int(match["layer"]) + 1)]
    return [trace[each].path for each in stack]  # refuses a layer that the trace does not have
