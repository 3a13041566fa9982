"""A trace as JSON and arrays: what the page needs to show and recompute every head by itself.

The page computes scores, masks and weights from queries and keys, so no n × n table is in here
unless it cannot be computed from them: a user's own similarity, efficient forms, edited tables.
"""

import re
from dataclasses import asdict, dataclass, field
from math import isfinite, isinf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.mask import Everything, Grid
from regard.attention.masks import split_causal
from regard.attention.pattern import Exact, Tile
from regard.attention.similarity import Additive, Alibi, Dot
from regard.explain.heads import measure_heads, readable, sides
from regard.explain.picture import picture
from regard.explain.steps import (
    attention_module,
    head_temperature,
    is_rotary,
    key_input_path,
    norm_comes_first,
    vectors,
)
from regard.trace.site import Site
from regard.trace.trace import Trace

FORMAT = 1
_LAYER = re.compile(r"\.layers\.(\d+)\.")


@dataclass
class Payload:
    """Everything about a trace that the page shows."""

    about: dict[str, Any]
    """JSON; arrays are mentioned by name."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """float32, or uint8 for masks (one bit a cell) and pixels."""
    kinds: dict[str, str] = field(default_factory=dict)
    """What each array is: "vectors", "tables", "streams", "weights", "masks" or "pixels"."""

    def add(self, name: str, value: Tensor | np.ndarray, kind: str) -> str:
        """Keep an array under a name, which is given back."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        exact = array if array.dtype == np.uint8 else array.astype(np.float32)
        self.arrays[name], self.kinds[name] = np.ascontiguousarray(exact), kind
        return name


def payload(trace: Trace, *, title: str = "", batch: int = 0) -> Payload:
    """The payload of one sequence of a trace."""
    bundle = trace.origin
    start = asdict(readable(trace, batch=batch))
    about: dict[str, Any] = {
        "format": FORMAT,
        "title": title,
        "family": "" if bundle is None else bundle.family,
        "tokens": trace.tokens,
        "words": trace.words,
        "output": plain(trace.output),
        "start": start,
        "sites": [],
    }
    made = Payload(about)
    about["image"] = picture(trace, made.add, batch=batch)
    for path in trace:
        about["sites"].append(describe_site(trace, path, made, batch=batch))
    return made


def describe_site(trace: Trace, path: str, made: Payload, *, batch: int = 0) -> dict[str, Any]:
    """One site as JSON, its arrays added to `made`."""
    site, layer = trace[path], _LAYER.search(path)
    asks, answers = sides(path)
    arrays = {
        name: made.add(f"{path}.{name}", _all_heads(site, name, batch), "vectors")
        for name in ("query", "key", "value")
    }
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
        "measures": [asdict(one) for one in measure_heads(site, batch=batch)],
        **_describe_pattern(site, made, batch),
        "streams": _describe_streams(trace, path, made, batch),
        "projections": _describe_projections(trace, path, made),
        "rotary": is_rotary(trace, path),
        "norm_first": norm_comes_first(trace, path),
        "arrays": {**arrays, **_describe_tables(site, made, batch)},
    }


def plain(value: Any) -> Any:
    """A model's output as JSON; None where it is no such thing."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float) else None


def _describe_pattern(site: Site, made: Payload, batch: int) -> dict[str, Any]:
    """How scores and weights follow from queries and keys."""
    pattern = site.pattern
    heats = [head_temperature(site, head) for head in range(site.n_heads)]
    described: dict[str, Any] = {
        "similarity": type(pattern).__name__.lower(),
        "scale": 1.0,
        "temperature": ["inf" if isinf(heat) else heat for heat in heats],
        "slopes": None,
        "mask": _describe_mask(site, made, batch),
    }
    if isinstance(pattern, Exact):
        described["similarity"] = pattern.similarity.name
        described["scale"] = float(pattern.scale)
        if isinstance(pattern.similarity, Alibi):
            described["slopes"] = list(pattern.similarity.slopes)
    return described


def _describe_mask(site: Site, made: Payload, batch: int) -> dict[str, Any]:
    causal, rest = split_causal(site.allowed)
    if isinstance(rest, Everything):
        return {"kind": "causal" if causal else "all", "text": repr(site.allowed)}
    grid = Grid.whole(site.lead, site.n_query, site.n_key, torch.device("cpu"))
    allowed = site.allowed.on(grid)
    same = allowed.dim() < 3 or allowed.size(-3) == 1  # for all heads
    picked = [Tile(grid, _index(site, h, batch)).of(allowed) for h in range(site.n_heads)]
    bits = torch.stack(picked[:1] if same else picked)
    name = made.add(f"{site.path}.allowed", np.packbits(bits.numpy().reshape(-1)), "masks")
    return {"kind": "bits", "heads": len(bits), "array": name, "text": repr(site.allowed)}


def _describe_tables(site: Site, made: Payload, batch: int) -> dict[str, str]:
    """What is needed besides queries, keys and values, by what can be computed in the page."""
    names = {}
    for name in ("scores", "weights", "context"):
        if _is_needed(site, name):
            table = torch.stack([getattr(site, name)(h, batch=batch) for h in _places(site)])
            names[name] = made.add(f"{site.path}.{name}", table, "tables")
    similarity = getattr(site.pattern, "similarity", None)
    if isinstance(similarity, Dot) or "scores" in names or similarity is None:
        return names
    query, key = (_all_heads(site, name, batch) for name in ("query", "key"))
    if isinstance(similarity, Additive):
        query, key = similarity.to_query(query), similarity.to_key(key)
        weight = similarity.to_score.weight[0]
        names["compare_weight"] = made.add(f"{site.path}.compare_weight", weight, "vectors")
    else:
        query, key = similarity.as_dot(query, key)
    for name, mixed in (("compare_query", query), ("compare_key", key)):
        names[name] = made.add(f"{site.path}.{name}", mixed, "vectors")
    return names


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


def _describe_streams(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, str]:
    paths = {name: f"{path}.{name}" for name in ("input", "output", "residual")}
    paths["memory"] = key_input_path(trace, path)
    found = {}
    for name, place in paths.items():
        value = trace.values.get(place)
        if value is not None and value.dim() >= 2:
            found[name] = made.add(place, value[batch] if value.dim() > 2 else value, "streams")
    return found


def _describe_projections(trace: Trace, path: str, made: Payload) -> dict[str, Any] | None:
    module = attention_module(trace, path)
    if module is None:
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


def _all_heads(site: Site, name: str, batch: int) -> Tensor:
    """Head × position × width."""
    heads = range(site.n_heads)
    return torch.stack([vectors(site, name, head, batch).float() for head in heads]).detach()


def _index(site: Site, head: int, batch: int) -> tuple[int, ...]:
    return (batch, *(0,) * (len(site.lead) - 2), head)[-len(site.lead) :] if site.lead else ()


def _places(site: Site) -> list[int | None]:
    return list(range(site.n_heads)) if site.lead else [None]
