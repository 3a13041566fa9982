"""One attention site as JSON, and one of its heads as arrays: what the page computes tables from.

The page computes scores, masks and weights from queries and keys, so no n × n table is in here
unless it cannot be computed from them: a user's own similarity, efficient forms, edited tables.
"""

import re
from math import isinf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.mask import Everything, Grid
from regard.attention.masks import split_causal
from regard.attention.pattern import Exact, Tile
from regard.attention.similarity import Additive, Alibi, Dot
from regard.explain.approximation import FORMS
from regard.explain.heads import sides
from regard.explain.space import has_space
from regard.explain.steps import head_temperature, is_rotary, norm_comes_first, vectors
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
    if isinstance(pattern, Exact):
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
    if not isinstance(pattern, Exact):
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
