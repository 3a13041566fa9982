"""The flow of a run: the residual stream at every station, and what each part adds to it.

A station is a place where the stream of one side can be read: after the embedding, after each
sub-layer, after the last norm; in a recurrent model, after each cell. All numbers are values of the
trace, norms of them, or means over neighboring dimensions.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import UnknownNameError, nearest
from regard.trace.site import Site
from regard.trace.trace import Trace

SIDES = {"encoder": "source", "decoder": "target"}
"""The two stacks of layers, and the tokens that each reads."""
BUCKETS = 24
"""The cells of a strip: each is the mean of as many neighboring dimensions."""
N_LINES = 6
"""The keys of each query that are connected by lines."""
N_PREDICTIONS = 5
_LAYER = re.compile(r"^\w+\.layers\.(\d+)\.")
_STATION = re.compile(
    r"^(encoder|decoder)\.(embedding\.(tokens|output)|output"
    r"|layers\.\d+\.((self|cross|feed_forward)\.residual|((forward|backward)\.)?hidden))$"
)
_STAGES = ("embedding.tokens", "embedding.output", "cross.context", "output")
_PARTS = ("self", "cross", "feed_forward", "forward", "backward", "hidden")


@dataclass(frozen=True)
class Station:
    """A place where the stream of a side can be read."""

    path: str
    """The value of the trace that is the stream here."""
    width: int
    kind: str
    """"tokens", "embedding", "self", "cross", "context", "feed_forward", "recurrent", "output"."""
    layer: int | None = None
    site: str | None = None
    """The attention site just before it."""
    before: str | None = None
    """The station before it on the same side."""
    added: tuple[str, ...] = ()
    """The values that were added to the stream since then."""
    normalized: bool = False
    """True if the stream is not the plain sum, because a norm follows."""


@dataclass(frozen=True)
class Side:
    """One stack of layers: its stations from left to right."""

    name: str
    tokens: str
    n_tokens: int
    stations: tuple[Station, ...]


@dataclass(frozen=True)
class Lines:
    """The largest weights of each query: the mean over heads, and those of single heads."""

    mean_keys: Int[Tensor, "query line"]
    mean_weights: Float[Tensor, "query line"]
    top_keys: Int[Tensor, "query line"]
    top_weights: Float[Tensor, "query line"]
    top_heads: Int[Tensor, "query line"]


@dataclass(frozen=True)
class Predictions:
    """The most probable tokens at each position, the most probable first."""

    ids: Int[Tensor, "token candidate"]
    probabilities: Float[Tensor, "token candidate"]


def sides(trace: Trace, *, batch: int = 0) -> tuple[Side, ...]:
    """Return the sides of a run that have a stream; none if no layer of the model was tapped."""
    found = (_side(trace, name, batch) for name in SIDES)
    return tuple(side for side in found if len(side.stations) > 1)


def _side(trace: Trace, name: str, batch: int) -> Side:
    stations: list[Station] = []
    for path in _station_paths(trace, name):
        before = stations[-1].path if stations else None
        stations.append(_station(trace, path, before, batch))
    n_tokens = len(stream(trace, stations[0].path, batch=batch)) if stations else 0
    return Side(name, SIDES[name], n_tokens, tuple(stations))


def _station_paths(trace: Trace, side: str) -> list[str]:
    """Return the values that are stations of a side, in the order of computation."""
    has_positions = any(f"{side}.embedding.{x}" in trace.values for x in ("positions", "types"))
    paths = [
        path
        for path, value in trace.values.items()
        if path.startswith(f"{side}.") and _STATION.match(path) and value.dim() in (2, 3)
    ]
    if not has_positions:  # the output of the embedding is the same
        paths = [path for path in paths if not path.endswith(".embedding.tokens")]
    if f"{side}.cross" in trace.sites:  # a recurrent decoder reads the context in every step
        paths.append(f"{side}.cross.context")
    return sorted(paths, key=_order)


def _order(path: str) -> tuple[int, int, int]:
    """Return where a station is computed: stage, layer, place in the layer."""
    layer = _LAYER.match(path)
    if layer is None:
        stage = next(i for i, name in enumerate(_STAGES) if path.endswith(name))
        return (9 if stage == len(_STAGES) - 1 else stage), 0, 0
    parts = path.split(".")
    return 5, int(layer[1]), next(i for i, name in enumerate(_PARTS) if name in parts)


def _station(trace: Trace, path: str, before: str | None, batch: int) -> Station:
    part, _, name = path.rpartition(".")
    layer = _LAYER.match(path)
    kind, site, added = part.rpartition(".")[2], None, ()
    if kind == "embedding":
        kind = "embedding" if name == "output" else "tokens"
        vectors = (f"{part}.{x}" for x in ("types", "positions")) if name == "output" else ()
        added = tuple(x for x in vectors if x in trace.values)
    elif name == "context":
        kind, site = "context", part
    elif name == "hidden":
        kind = "recurrent"
    elif name == "output":
        kind = "output"
    else:
        written = _written_parts(trace, part)
        sites = [found for one in written if (found := trace.site_path(one)) is not None]
        site = sites[0] if sites else None
        added = tuple(f"{x}.output" for x in written if f"{x}.output" in trace.values)
    number = None if layer is None else int(layer[1])
    normalized = _is_normalized(trace, path, before, added, batch)
    width = stream(trace, path, batch=batch).size(-1)
    return Station(path, width, kind, number, site, before, added, normalized)


def _written_parts(trace: Trace, part: str) -> list[str]:
    """Return what writes to the stream just before a station.

    Next to a feed-forward layer, this is attention that has no separate station because both are
    added at once.
    """
    layer, _, kind = part.rpartition(".")
    sites = (f"{layer}.{x}" for x in ("self", "cross") if x != kind)
    own = [x for x in sites if f"{x}.output" in trace.values]
    return [*(x for x in own if f"{x}.residual" not in trace.values), part]


def _is_normalized(
    trace: Trace, path: str, before: str | None, added: tuple[str, ...], batch: int
) -> bool:
    """Return True if a stream is not the sum of the one before it and of what was added."""
    if before is None or not added:
        return False
    total = sum((stream(trace, x, batch=batch)[:4] for x in added), stream(trace, before)[:4])
    return not torch.allclose(total, stream(trace, path, batch=batch)[:4], rtol=1e-4, atol=1e-4)


def stream(trace: Trace, path: str, *, batch: int = 0) -> Float[Tensor, "token width"]:
    """Return a value of the trace with one vector for each position."""
    site = trace.sites.get(path.removesuffix(".context"))
    if site is not None and path.endswith(".context"):
        contexts = site.context(batch=batch)
        return contexts.movedim(0, -2).flatten(-2) if contexts.dim() > 2 else contexts
    value = trace.values.get(path)
    if value is None or value.dim() not in (2, 3):
        known = [x for x, one in trace.values.items() if one.dim() in (2, 3)]
        raise UnknownNameError(f"the trace has no stream {path!r}; {nearest(path, known)}.")
    found = value if value.dim() == 2 else value[min(batch, len(value) - 1)]
    return found.detach().float()


def pool_dimensions(
    vectors: Float[Tensor, "token width"], buckets: int = BUCKETS
) -> Float[Tensor, "token bucket"]:
    """Return the means of neighboring dimensions, all of them if there are fewer than buckets."""
    width = vectors.size(-1)
    if width <= buckets:
        return vectors
    edges = torch.arange(buckets + 1) * width // buckets
    sums = torch.nn.functional.pad(vectors.double().cumsum(-1), (1, 0))[:, edges]
    return (sums.diff(dim=-1) / edges.diff()).float()


def added_norms(
    trace: Trace, station: Station, *, rows: slice, batch: int = 0
) -> Float[Tensor, "token"]:
    """Return the norm of what was added to the stream before a station, at each position."""
    if not station.added:
        return torch.zeros(len(stream(trace, station.path, batch=batch)[rows]))
    parts = [stream(trace, path, batch=batch) for path in station.added]
    parts = [part if len(part) > 1 else part.expand_as(parts[0]) for part in parts]
    return torch.stack([part[rows] for part in parts]).sum(0).norm(dim=-1)


def attention_lines(site: Site, rows: slice, *, count: int = N_LINES, batch: int = 0) -> Lines:
    """Return the largest weights of some queries, over the mean of all heads and over each head."""
    mean = top = torch.zeros(0)
    heads = torch.zeros(0, dtype=torch.int)
    for head in range(site.n_heads):
        weights = site.weights(head if site.lead else None, batch=batch, rows=rows).float()
        if head == 0:
            mean, top, heads = weights.clone(), weights, torch.zeros_like(weights, dtype=torch.int)
            continue
        mean += weights
        heads[weights > top] = head
        top = torch.maximum(top, weights)
    k = min(count, site.n_key)
    mean_weights, mean_keys = (mean / site.n_heads).topk(k)
    top_weights, top_keys = top.topk(k)
    return Lines(
        mean_keys.int(), mean_weights, top_keys.int(), top_weights, heads.gather(1, top_keys)
    )


def station_arrays(
    trace: Trace, station: Station, rows: slice, *, batch: int = 0
) -> dict[str, Tensor]:
    """Return the numbers of a station by name: PATH.norm, PATH.strip, SITE.mean_keys."""
    path, vectors = station.path, stream(trace, station.path, batch=batch)[rows]
    found = {f"{path}.norm": vectors.norm(dim=-1), f"{path}.strip": pool_dimensions(vectors)}
    if station.added:
        found[f"{path}.added"] = added_norms(trace, station, rows=rows, batch=batch)
    if station.site is not None:
        lines = attention_lines(trace[station.site], rows, batch=batch)
        found |= {f"{station.site}.{name}": value for name, value in vars(lines).items()}
    return found


def token_name(model: Any, id: int) -> str:
    """Return the token of an id of the model's target vocabulary."""
    tokenizer = None if model is None else model.target_tokenizer or model.tokenizer
    return str(id) if tokenizer is None or id >= len(tokenizer) else tokenizer.token_of(id)


def predictions(logits: Float[Tensor, "token vocab"], *, count: int = N_PREDICTIONS) -> Predictions:
    """Return the most probable tokens at each position."""
    k = min(count, logits.size(-1))
    parts = [part.float().softmax(-1).topk(k) for part in logits.detach().split(256)]
    return Predictions(
        torch.cat([part.indices for part in parts]).int(),
        torch.cat([part.values for part in parts]),
    )
