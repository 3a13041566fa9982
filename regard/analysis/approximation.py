"""How far an efficient form of attention is from the exact one, on the same queries and keys."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.longformer import LongformerPattern
from regard.attention.mask import Both, Everything, Mask
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.reformer import ReformerPattern
from regard.attention.similarity import as_similarity
from regard.attention.sliding_window import LongformerMask
from regard.errors import InputError
from regard.trace.site import Site

FORMS = {
    "EfficientPattern": "efficient",
    "LinformerPattern": "linformer",
    "LongformerPattern": "longformer",
    "PerformerPattern": "performer",
    "ReformerPattern": "reformer",
}
"""What each pattern that leaves something out is called."""


@dataclass(frozen=True)
class Approximation:
    """One head's weights beside those that it would have if nothing were left out."""

    weights: Tensor
    """Query × key: those that the form implies."""
    exact: Tensor
    largest: float
    """The largest difference of two weights."""
    mean: float
    """The mean difference, without signs."""
    variation: Tensor
    """For each query the total variation: the share of its weight that lies in the wrong place."""


def approximation(site: Site, head: int | None = None, *, batch: int = 0) -> Approximation:
    """What an efficient form gives for one head, beside the exact weights."""
    weights = site.weights(head, batch=batch).double()
    exact = exact_site(site).weights(head, batch=batch).double()
    apart = (weights - exact).abs()
    return Approximation(weights, exact, float(apart.max()), float(apart.mean()), apart.sum(-1) / 2)


def exact_site(site: Site) -> Site:
    """The site as it would be if its queries met all keys that they may see."""
    return Site(site.path, site.query, site.key, site.value, _exact(site.pattern, site))


def _exact(pattern: Pattern, site: Site) -> Pattern:
    if isinstance(pattern, ExactPattern):
        raise InputError(f"{site.path} is exact attention: there is nothing to compare it with.")
    if isinstance(pattern, LongformerPattern):  # exact within its reach: let that be everything
        return replace(pattern, allowed=_without_reach(pattern.allowed))
    if isinstance(
        pattern, ReformerPattern
    ):  # likewise, if all tokens share one bucket and one chunk
        return replace(pattern, buckets=torch.zeros_like(pattern.buckets), chunk=site.n_key)
    measure = as_similarity("scaled_dot")
    return ExactPattern(measure, measure.scale(site.key.size(-1)), 1.0, site.allowed)


def _without_reach(mask: Mask) -> Mask:
    if isinstance(mask, Both):
        return _without_reach(mask.left) & _without_reach(mask.right)
    return Everything() if isinstance(mask, LongformerMask) else mask
