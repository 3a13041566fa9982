"""Efficient forms of attention compared with exact attention: their error and their cost."""

from collections.abc import Callable
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
from regard.layers.attention_forms import attention_products
from regard.trace.site import Site


@dataclass(frozen=True)
class Approximation:
    """Weights of one head of an efficient form compared with the exact ones."""

    weights: Tensor  # query × key: the weights that the form implies
    exact: Tensor
    largest: float  # largest absolute difference
    mean: float  # mean absolute difference
    variation: Tensor  # total variation of each query: the share of its weight on the wrong keys


def approximation(site: Site, head: int | None = None, *, batch: int = 0) -> Approximation:
    """Compare one head of an efficient form with exact attention."""
    weights = site.weights(head, batch=batch).double()
    exact = exact_site(site).weights(head, batch=batch).double()
    apart = (weights - exact).abs()
    return Approximation(weights, exact, float(apart.max()), float(apart.mean()), apart.sum(-1) / 2)


def exact_site(site: Site) -> Site:
    """Return the site with exact attention instead of its efficient form."""
    pattern = site.pattern
    if isinstance(pattern, ExactPattern):
        raise InputError(f"{site.path} is exact attention: there is nothing to compare it with.")
    if isinstance(pattern, LongformerPattern):  # exact within its window
        pattern = replace(pattern, allowed=_without_window(pattern.allowed))
    elif isinstance(pattern, ReformerPattern):  # exact if all tokens share one bucket and one chunk
        buckets = torch.zeros_like(pattern.buckets)
        pattern = replace(pattern, buckets=buckets, chunk=site.n_key)
    else:
        measure = as_similarity("scaled_dot")
        pattern = ExactPattern(measure, measure.scale(site.key.size(-1)), 1.0, site.allowed)
    return Site(site.path, site.query, site.key, site.value, pattern)


def form_name(pattern: Pattern) -> str:
    """Return the name of a form of attention, such as "exact" or "longformer"."""
    return type(pattern).__name__.removesuffix("Pattern").lower()


def _without_window(mask: Mask) -> Mask:
    if isinstance(mask, Both):
        return _without_window(mask.left) & _without_window(mask.right)
    return Everything() if isinstance(mask, LongformerMask) else mask


_RADIUS, _SHORT, _FEATURES, _BUCKET, _ROUNDS, _HEADS = 128, 256, 256, 64, 4, 8


def _products(form: str, size: int = 64) -> Callable[[int, int], float]:
    return lambda n, d: attention_products(form, n, d, n_heads=_HEADS, size=size)


@dataclass(frozen=True)
class FormCost:
    """Cost of one layer of a form of attention on one sequence, without the projections."""

    name: str
    products: Callable[[int, int], float]  # multiplications for length n and width d
    numbers: Callable[[int, int], float]
    """Numbers in memory between its steps, without inputs and output."""


FORM_COSTS = (
    FormCost("exact, n² d", _products("exact"), lambda n, d: _HEADS * n * n),
    FormCost("exact, fused", _products("exact"), lambda n, d: _HEADS * n),
    FormCost(
        f"window, radius {_RADIUS}",
        _products("longformer", _RADIUS),
        lambda n, d: _HEADS * n * min(n, 2 * _RADIUS + 1),
    ),
    FormCost(
        f"Linformer, k = {_SHORT}",
        _products("linformer", _SHORT),
        lambda n, d: _HEADS * n * min(n, _SHORT) + 2 * min(n, _SHORT) * d,
    ),
    FormCost(
        f"Performer, {_FEATURES} features",
        _products("performer", _FEATURES),
        lambda n, d: 2 * _HEADS * n * _FEATURES + _FEATURES * d,
    ),
    FormCost(
        f"Reformer, {_ROUNDS} rounds",
        _products("reformer", _BUCKET),
        lambda n, d: _ROUNDS * _HEADS * n * 2 * min(n, _BUCKET),
    ),
    FormCost("efficient, n d²", _products("efficient"), lambda n, d: 2 * n * d + d * d / _HEADS),
    FormCost("recurrent, n d²", lambda n, d: n * d * d, lambda n, d: d),
)
