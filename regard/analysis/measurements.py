"""Measured properties of attention: why scores are scaled, costs of layers, errors of forms."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.attend import attend
from regard.attention.efficient import Efficient
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer, LongformerMask, LongformerPattern
from regard.attention.mask import Both, Everything, Mask
from regard.attention.pattern import ExactPattern, Pattern
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer, ReformerPattern
from regard.attention.similarity import as_similarity
from regard.errors import InputError
from regard.layers.attention_forms import attention_products
from regard.trace.site import Site

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class ScalingMeasures:
    """Means over random queries and keys with entries of variance 1, for each width d_k."""

    widths: Sequence[int]
    spread: dict[str, list[float]]  # standard deviation of the scores, "dot" and "scaled"
    entropy: dict[str, list[float]]  # of the weights, in bits
    gradient: dict[str, list[float]]  # norm of the gradient of a weight by the scores


def measure_scaling(
    widths: Sequence[int] = WIDTHS, *, n_keys: int = 32, n_queries: int = 256
) -> ScalingMeasures:
    """Compare softmax(q · k) with softmax(q · k / √d_k) for growing d_k."""
    chance = torch.Generator().manual_seed(0)
    found: dict[str, dict[str, list[float]]] = {
        measure: {"dot": [], "scaled": []} for measure in ("spread", "entropy", "gradient")
    }
    for d_k in widths:
        query = torch.randn(n_queries, d_k, generator=chance, dtype=torch.float64)
        key = torch.randn(n_keys, d_k, generator=chance, dtype=torch.float64)
        for name, scale in (("dot", 1.0), ("scaled", d_k**-0.5)):
            scores = query @ key.T * scale
            weights = scores.softmax(-1)
            entropy = -torch.xlogy(weights, weights).sum(-1) / log(2)
            # the Jacobian of a softmax is diag(a) - a aᵀ; its squared norm for each query:
            squares = weights.square().sum(-1)
            norm = squares - 2 * weights.pow(3).sum(-1) + squares.square()
            found["spread"][name].append(float(scores.std()))
            found["entropy"][name].append(float(entropy.mean()))
            found["gradient"][name].append(float(norm.clamp(min=0).sqrt().mean()))
    return ScalingMeasures(widths, **found)


@dataclass(frozen=True)
class LayerCost:
    """A row of the paper's table 1, with what was measured."""

    name: str
    complexity: str  # multiplications of a layer
    sequential: str  # steps that must wait for each other
    path: str  # longest path between two positions
    exponent: float  # of n in the formula
    seconds: dict[int, float]  # by length

    @property
    def fitted(self) -> float:
        """The exponent of n that fits the measured seconds best."""
        x, y = (np.log(list(part)) for part in (self.seconds, self.seconds.values()))
        return float(np.polyfit(x, y, 1)[0])


_D, _RADIUS, _WIDTH = 64, 16, 3
_ROWS: dict[str, tuple[str, str, str, float]] = {
    "self-attention": ("n² · d", "1", "1", 2.0),
    "recurrent": ("n · d²", "n", "n", 1.0),
    "convolution": ("k · n · d²", "1", "log_k n", 1.0),
    "restricted": ("r · n · d", "1", "n / r", 1.0),
    "efficient": ("n · d²", "1", "1", 1.0),
    "Linformer": ("n · k · d", "1", "1", 1.0),
    "Reformer": ("n log n · d", "log n", "log n", 1.0),
    "Performer": ("n · m · d", "1", "1", 1.0),
}


def _layers(n: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return each kind of layer of width d as a function of an input of n positions."""
    recurrent = nn.RNN(_D, _D, batch_first=True)
    convolution = nn.Conv1d(_D, _D, _WIDTH, padding="same")
    linformer, performer = Linformer(n, 64), Performer(_D)
    reformer = Reformer(_D, n_buckets=max(2, n // 64 // 2 * 2))
    restricted, efficient = Longformer(_RADIUS), Efficient()
    forms: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "self-attention": attend,
        "restricted": restricted,
        "efficient": efficient,
        "Linformer": linformer,
        "Reformer": reformer,
        "Performer": performer,
    }
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        name: lambda x, form=form: form(x[None], x[None], x[None]) for name, form in forms.items()
    }
    layers["recurrent"] = lambda x: recurrent(x)[0]
    layers["convolution"] = lambda x: convolution(x.transpose(1, 2))
    return layers


def measure_costs(
    lengths: Sequence[int] = (512, 1024, 2048, 4096), *, rounds: int = 3
) -> list[LayerCost]:
    """Time one layer of each kind on growing inputs; the CPU time of one thread, medians."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[str, dict[int, float]] = {name: {} for name in _ROWS}
    try:
        with torch.no_grad():
            for n in lengths:
                x, layers = torch.randn(1, n, _D), _layers(n)
                for name in _ROWS:
                    seconds[name][n] = _time(layers[name], x, rounds)
    finally:
        torch.set_num_threads(threads)
    return [LayerCost(name, *row, seconds[name]) for name, row in _ROWS.items()]


def _time(layer: Callable[[Tensor], Tensor], x: Tensor, rounds: int) -> float:
    layer(x)
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        layer(x)
        taken.append(time.process_time() - start)
    return max(median(taken), 1e-6)


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


_WINDOW_RADIUS, _SHORT, _FEATURES, _BUCKET, _ROUNDS, _HEADS = 128, 256, 256, 64, 4, 8


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
        f"window, radius {_WINDOW_RADIUS}",
        _products("longformer", _WINDOW_RADIUS),
        lambda n, d: _HEADS * n * min(n, 2 * _WINDOW_RADIUS + 1),
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
