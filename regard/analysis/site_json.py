"""A trace as JSON and arrays: what the page needs to show and recompute every head by itself.

The page computes scores, masks and weights from queries and keys, so no n × n table is in here
unless it cannot be computed from them: a user's own similarity, efficient forms, edited tables.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite, isinf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis.approximation import FORMS, exact_site
from regard.analysis.heads import measure_heads, readable, sides
from regard.analysis.space import has_space, picture, space
from regard.analysis.steps import (
    attention_module,
    head_temperature,
    is_rotary,
    key_input_path,
    norm_comes_first,
    vectors,
)
from regard.attention.mask import Everything, split_causal
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Additive, Alibi, Dot
from regard.attention.tile import Grid, Tile
from regard.trace.site import Site
from regard.trace.trace import Trace

_LAYER = re.compile(r"\.layers\.(\d+)\.")


def describe_site(trace: Trace, path: str) -> dict[str, Any]:
    """One site as JSON: its sizes, whose tokens it connects, how its tables are computed."""
    site, layer = trace[path], _LAYER.search(path)
    asks, answers = sides(path)
    return {
        "path": path,
        "group": _LAYER.sub(".layers.*.", path),
        "layer": None if layer is None else int(layer[1]),
        "n_heads": site.n_heads,
        "n_query": site.n_query,
        "n_key": site.n_key,
        "d_k": site.key.size(-1),
        "d_v": site.value.size(-1),
        "asks": asks if len(trace.tokens.get(asks, ())) == site.n_query else None,
        "answers": answers if len(trace.tokens.get(answers, ())) == site.n_key else None,
        "writes": "output" if asks == "target" and "output" in trace.tokens else None,
        **describe_pattern(site),
        "mask": {"kind": mask_kind(site), "text": repr(site.allowed)},
        "rotary": is_rotary(trace, path),
        "norm_first": norm_comes_first(trace, path),
        "space": has_space(trace, path),
    }


def head_arrays(site: Site, head: int, *, batch: int = 0) -> dict[str, Tensor]:
    """One head's queries, keys and values, and whatever else its tables cannot be computed from.

    compare_query and compare_key are what is compared where it is not query and key themselves;
    compare_weight weighs the sums of additive similarity. scores, weights and context (query × …)
    are there only if they do not follow from the others.
    """
    found = {name: vectors(site, name, head, batch) for name in ("query", "key", "value")}
    place = head if site.lead else None
    for name in ("scores", "weights", "context"):
        if _is_needed(site, name):
            found[name] = getattr(site, name)(place, batch=batch)
    similarity = getattr(site.pattern, "similarity", None)
    if not (isinstance(similarity, Dot) or "scores" in found or similarity is None):
        query, key = found["query"], found["key"]
        if isinstance(similarity, Additive):
            query, key = similarity.to_query(query), similarity.to_key(key)
            found["compare_weight"] = similarity.to_score.weight[0]
        else:
            query, key = similarity.as_dot(query, key)
        found |= {"compare_query": query, "compare_key": key}
    return {name: value.detach().float() for name, value in found.items()}


def mask_kind(site: Site) -> str:
    """How the mask is told: "all", "causal", or "bits" where only a table says who sees whom."""
    causal, rest = split_causal(site.allowed)
    if isinstance(rest, Everything):
        return "causal" if causal else "all"
    return "bits"


def mask_bits(site: Site, head: int | None = None, *, batch: int = 0) -> tuple[np.ndarray, int]:
    """Who may see whom, row after row, one bit a cell, and how many tables that is.

    It is the table of one head; or those of all heads, but only one where all have the same.
    """
    grid = Grid.whole(site.lead, site.n_query, site.n_key, torch.device("cpu"))
    allowed = site.allowed.on(grid)
    same = allowed.dim() < 3 or allowed.size(-3) == 1
    heads = [head] if head is not None else [0] if same else range(site.n_heads)
    tables = torch.stack([Tile(grid, _index(site, one, batch)).of(allowed) for one in heads])
    return np.packbits(tables.numpy().reshape(-1)), len(tables)


def describe_pattern(site: Site) -> dict[str, Any]:
    """How scores and weights follow from queries and keys."""
    pattern = site.pattern
    heats = [head_temperature(site, head) for head in range(site.n_heads)]
    described: dict[str, Any] = {
        "similarity": FORMS.get(type(pattern).__name__, type(pattern).__name__.lower()),
        "scale": 1.0,
        "temperature": ["inf" if isinf(heat) else heat for heat in heats],
        "slopes": None,
    }
    if isinstance(pattern, ExactPattern):
        described["similarity"] = pattern.similarity.name
        described["scale"] = float(pattern.scale)
        if isinstance(pattern.similarity, Alibi):
            described["slopes"] = list(pattern.similarity.slopes)
    return described


def _is_needed(site: Site, name: str) -> bool:
    """Whether the page cannot compute this table from vectors and what came before it."""
    pattern, changed = site.pattern, set(site.changed)
    if name == "context":
        return "context" in changed
    if not isinstance(pattern, ExactPattern):
        return name == "weights"
    if name == "scores":
        return bool({"compared", "scores"} & changed) or not _computable(site)
    heat = pattern.temperature
    by_query = isinstance(heat, Tensor) and heat.dim() >= 2 and heat.size(-2) > 1
    return bool({"masked", "weights"} & changed) or by_query


def _computable(site: Site) -> bool:
    """Whether the page can compute the scores of a site from vectors alone."""
    similarity = getattr(site.pattern, "similarity", None)
    if isinstance(similarity, Dot | Additive):
        return True
    query, key = (vectors(site, name, 0)[:1] for name in ("query", "key"))
    return similarity is not None and similarity.as_dot(query, key) is not None


def _index(site: Site, head: int, batch: int) -> tuple[int, ...]:
    return (batch, *(0,) * (len(site.lead) - 2), head)[-len(site.lead) :] if site.lead else ()


FORMAT = 1
_AT_ONCE = 400_000_000
"""Products that a browser computes while a reader waits; beyond that, small pictures go along."""
_SMALL = 32
_MOST_POINTS = 1024
"""Tokens that a page shows as points: of more, nobody could tell one from another."""


@dataclass
class Payload:
    """Everything about a trace that the page shows."""

    about: dict[str, Any]
    """JSON; arrays are mentioned by name."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """float32, or uint8 for masks (one bit a cell) and pixels."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What each array is:
    "vectors", "tables", "streams", "weights", "space", "exact", "masks" or "pixels".
    """

    def add(self, name: str, value: Tensor | np.ndarray, kind: str) -> str:
        """Keep an array under a name, which is given back."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        exact = array if array.dtype == np.uint8 else array.astype(np.float32)
        self.arrays[name], self.kinds[name] = np.ascontiguousarray(exact), kind
        return name


def payload(trace: Trace, *, title: str = "", batch: int = 0) -> Payload:
    """The payload of one sequence of a trace."""
    model = trace.origin
    start = asdict(readable(trace, batch=batch))
    about: dict[str, Any] = {
        "format": FORMAT,
        "title": title,
        "family": "" if model is None else model.family,
        "tokens": trace.tokens,
        "words": trace.words,
        "output": plain(trace.output),
        "start": start,
        "sites": [],
    }
    made = Payload(about)
    about["image"] = picture(trace, made.add, batch=batch)
    for path in trace:
        about["sites"].append(_site(trace, path, made, batch))
    if sum(_cost(site) for site in trace.sites.values()) > _AT_ONCE:
        for described in about["sites"]:
            site = trace[described["path"]]
            described["arrays"]["thumbnails"] = _thumbnails(site, made, batch)
    return made


def _site(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, Any]:
    """One site as JSON, its arrays added to `made`."""
    site, described = trace[path], describe_site(trace, path)
    if described["mask"]["kind"] == "bits":
        bits, count = mask_bits(site, batch=batch)
        described["mask"] |= {"heads": count, "array": made.add(f"{path}.allowed", bits, "masks")}
    return {
        **described,
        "measures": [asdict(one) for one in measure_heads(site, batch=batch)],
        "streams": _describe_streams(trace, path, made, batch),
        "projections": _describe_projections(trace, path, made),
        "arrays": _arrays(site, made, batch),
        "space": _describe_space(trace, path, made, batch),
        "left_out": False,
    }


def _arrays(site: Site, made: Payload, batch: int) -> dict[str, str]:
    """The arrays of all heads, head after head."""
    heads = [head_arrays(site, head, batch=batch) for head in range(site.n_heads)]
    names = {}
    for name, first in heads[0].items():
        shared = name == "compare_weight"
        value = first if shared else torch.stack([head[name] for head in heads])
        kind = "tables" if name in ("scores", "weights", "context") else "vectors"
        names[name] = made.add(f"{site.path}.{name}", value, kind)
    if not isinstance(site.pattern, ExactPattern) and site.n_query * site.n_key <= _MOST_POINTS**2:
        exact = exact_site(site).weights(batch=batch)
        table = exact if site.lead else exact[None]
        names["exact"] = made.add(f"{site.path}.exact", table, "exact")
    return names


def _cost(site: Site) -> int:
    """How many products all scores of a site take."""
    return site.n_heads * site.n_query * site.n_key * site.key.size(-1)


def _thumbnails(site: Site, made: Payload, batch: int) -> str:
    small = site.thumbnails(_SMALL, batch=batch).clamp(0, 1)
    return made.add(f"{site.path}.thumbnails", (small * 255).round().to(torch.uint8), "pixels")


def plain(value: Any) -> Any:
    """A model's output as JSON; None where it is no such thing."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float) else None


def _describe_streams(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, str]:
    paths = {name: f"{path}.{name}" for name in ("input", "output", "residual")}
    paths["memory"] = key_input_path(trace, path)
    found = {}
    for name, place in paths.items():
        value = trace.values.get(place)
        if value is not None and value.dim() >= 2:
            found[name] = made.add(place, value[batch] if value.dim() > 2 else value, "streams")
    return found


def _describe_space(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, Any] | None:
    """The tokens as points: before, after, what no head adds, what each adds; axis × token each."""
    if not has_space(trace, path) or trace[path].n_query > _MOST_POINTS:
        return None
    seen = space(trace, path, n_axes=3, batch=batch)
    tables = torch.cat([torch.stack([seen.before, seen.after, seen.rest]), seen.arrows])
    return {"array": made.add(f"{path}.space", tables.mT, "space"), "share": seen.share}


def _describe_projections(trace: Trace, path: str, made: Payload) -> dict[str, Any] | None:
    module = attention_module(trace, path)
    if module is None or module.to_key is None:  # queries that are their own keys (Reformer)
        return None
    described: dict[str, Any] = {"n_kv_heads": module.n_kv_heads}
    for name in ("query", "key", "value", "output"):
        linear = getattr(module, f"to_{name}")
        place = f"{path}.to_{name}"
        bias = linear.bias
        described[name] = {
            "weight": made.add(f"{place}.weight", linear.weight, "weights"),
            "bias": None if bias is None else made.add(f"{place}.bias", bias, "weights"),
        }
    return described
