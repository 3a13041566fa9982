"""A trace as JSON and arrays: what the page needs to show and recompute every head by itself.

The page computes scores, masks and weights from queries and keys, so no n × n table is in here
unless it cannot be computed from them: a user's own similarity, efficient forms, edited tables.
"""

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.pattern import Exact
from regard.explain.approximation import exact_site
from regard.explain.described import describe_site, head_arrays, mask_bits
from regard.explain.heads import measure_heads, readable
from regard.explain.picture import picture
from regard.explain.space import has_space, space
from regard.explain.steps import attention_module, key_input_path
from regard.trace.site import Site
from regard.trace.trace import Trace

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
    if not isinstance(site.pattern, Exact) and site.n_query * site.n_key <= _MOST_POINTS**2:
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
    if isinstance(value, dict):
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
