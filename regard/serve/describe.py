"""A kept trace in the words of the page: what is small and asked for once, as JSON."""

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.explain.approximation import approximation
from regard.explain.described import (
    describe_pattern,
    describe_site,
    head_arrays,
    mask_bits,
    mask_kind,
)
from regard.explain.heads import readable
from regard.explain.picture import picture
from regard.explain.rollout import rollout
from regard.explain.space import space
from regard.explain.steps import attention_module, projections, steps
from regard.serve.catalogue import Entry
from regard.serve.store import Kept
from regard.trace.site import Site

Arrays = dict[str, Tensor | np.ndarray]
MOST_CELLS = 64_000_000
"""Cells of a table that is sent whole because it cannot be computed from vectors."""
_EXACT_UP_TO = 512
"""Rows of a rollout that is sent with all digits."""


def describe(kept: Kept, entry: Entry | None) -> dict[str, Any]:
    """Tokens, sites, where to begin, the answer: what is known without a look at every head."""
    trace = kept.trace
    shown = picture(trace, lambda name, value, kind: name)
    return {
        "id": kept.id,
        "asked": kept.asked,
        "title": entry.name if entry else "",
        "family": entry.described.family if entry else "",
        "task": entry.described.task if entry else "",
        "tokens": trace.tokens,
        "words": trace.words,
        "output": kept.answer["output"],
        "answer": kept.answer,
        "start": asdict(readable(trace)),
        "image": shown and {name: shown[name] for name in shown if name != "pixels"},
        "sites": [describe_site(trace, path) for path in trace],
    }


def pixels(kept: Kept) -> np.ndarray:
    """The picture that a model read, row × column × 3 bytes."""
    found: list[np.ndarray] = []
    picture(kept.trace, lambda name, value, kind: found.append(value) or name)
    if not found:
        raise InputError("this trace is of a text: it has no picture.")
    return found[0]


def head_vectors(site: Site, head: int) -> Arrays:
    """What the page computes a head's tables from; the mask as bits where it must be a table."""
    check_head(site, head)
    exact = hasattr(site.pattern, "similarity")
    if (site.changed or not exact) and site.n_query * site.n_key > MOST_CELLS:
        raise InputError(
            f"{site.path} is too long to send its weights whole ({site.n_query:,} × "
            f"{site.n_key:,}): ask for tiles."
        )
    found: Arrays = dict(head_arrays(site, head))
    if mask_kind(site) == "bits":
        found["allowed"] = mask_bits(site, head)[0]
    return found


def head_about(site: Site) -> dict[str, Any]:
    """How a head's tables follow from its vectors: edits change that, too."""
    return {"pattern": json.dumps(describe_pattern(site)), "mask": mask_kind(site)}


def step_arrays(kept: Kept, path: str, head: int, query: int, key: int) -> tuple[Arrays, dict]:
    """The way to one weight: vectors as arrays, single numbers beside them."""
    check_head(kept.trace[path], head)
    way = steps(kept.trace, path, head, query, key)
    parts = {
        name: value for name, value in vars(way).items() if name not in ("projections", "value")
    }
    arrays: Arrays = {name: x.float() for name, x in parts.items() if isinstance(x, Tensor)}
    numbers = {name: x for name, x in parts.items() if not isinstance(x, Tensor)}
    return arrays, {name: _number(x) for name, x in numbers.items()}


def projection_arrays(kept: Kept, path: str, head: int) -> Arrays:
    """The matrices that make this head's vectors, such as "query.weight" and "query.bias"."""
    check_head(kept.trace[path], head)
    module = attention_module(kept.trace, path)
    found: Arrays = {}
    for name, part in ({} if module is None else projections(module, head)).items():
        found[f"{name}.weight"] = part.weight.float()
        if part.bias is not None:
            found[f"{name}.bias"] = part.bias.float()
    return found


def space_arrays(kept: Kept, path: str, n_axes: int) -> tuple[Arrays, dict[str, Any]]:
    """The tokens of a site as points, and the arrows by which its heads move them."""
    seen = space(kept.trace, path, n_axes=n_axes)
    names = ("before", "after", "arrows", "rest")
    return {name: getattr(seen, name).float() for name in names}, {"share": seen.share}


def rollout_array(kept: Kept, path: str) -> Arrays:
    """What each token has of each token of the input, through all layers up to this one."""
    found = kept.work_out(("rollout", path), lambda: rollout(kept.trace, path))
    return {"rollout": found.to(torch.float32 if len(found) <= _EXACT_UP_TO else torch.float16)}


def exact_arrays(site: Site, head: int) -> tuple[Arrays, dict[str, Any]]:
    """The weights that an efficient form approximates, and how far its own are from them."""
    check_head(site, head)
    if site.n_query * site.n_key > MOST_CELLS // 16:
        raise InputError(
            f"{site.path} is too long to be compared with exact attention: shorten it."
        )
    found = approximation(site, head if site.lead else None)
    arrays: Arrays = {"exact": found.exact.float(), "variation": found.variation.float()}
    return arrays, {"largest": found.largest, "mean": found.mean}


def check_head(site: Site, head: int) -> None:
    """Refuse a head that is not there, before anything of it is looked at."""
    if head >= site.n_heads:
        raise InputError(
            f"{site.path} has no head {head}; it has {site.n_heads}, 0 to {site.n_heads - 1}."
        )


def _number(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return repr(value) if isfinite(value) else str(value)
