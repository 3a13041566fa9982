"""Tokens as points: the residual stream before and after a site, and what each head adds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.analysis.heads import sides
from regard.analysis.steps import attention_module, norm_comes_first
from regard.errors import InputError
from regard.trace.trace import Trace


@dataclass(frozen=True)
class Space:
    """Projected vectors of the residual stream before and after one attention site."""

    before: Tensor  # token × axis
    after: Tensor  # token × axis: `before` plus the sum of `arrows` plus `rest`
    arrows: Tensor  # head × token × axis: the contribution of each head; empty without the model
    rest: Tensor  # token × axis: the bias of the output projection, or all of it without the model
    share: list[float]  # share of the variance that each axis shows


def has_space(trace: Trace, path: str) -> bool:
    """Return True if the trace has the residual stream before and after a site."""
    return all(f"{path}.{name}" in trace.values for name in ("output", "residual"))


def space(trace: Trace, path: str, *, n_axes: int = 2, batch: int = 0) -> Space:
    """Project the tokens of a site onto the axes along which words differ most.

    Points and arrows have the same linear projection, so arrows add up as vectors do.
    """
    if n_axes not in (2, 3):
        raise InputError(f"n_axes is {n_axes}; a space has 2 or 3 axes.")
    output, residual = (_value(trace, f"{path}.{name}", batch) for name in ("output", "residual"))
    post_norm = norm_comes_first(trace, path) is False
    before = _value(trace, f"{path}.input", batch) if post_norm else residual - output
    after = before + output
    # Special tokens do not choose the axes, because they are often far from all words.
    known = [word is not None for word in trace.words.get(sides(trace, path)[0], ())]
    enough = len(known) == len(before) and sum(known) >= 3  # points that span a plane
    words = torch.tensor(known if enough else [True] * len(before), device=before.device)
    points = torch.cat([before[words], after[words]])
    center = points.mean(0)
    axes, share = _principal_axes(points - center, n_axes)
    arrows, rest = _arrows(trace, path, output, batch)
    return Space(
        (before - center) @ axes, (after - center) @ axes, arrows @ axes, rest @ axes, share
    )


def _arrows(trace: Trace, path: str, output: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    module, site = attention_module(trace, path), trace[path]
    if module is None:
        return output.new_zeros(0, *output.shape), output
    weights = module.to_output.weight.detach().double().chunk(site.n_heads, dim=1)
    contexts = (site.context(head, batch=batch).double() for head in range(site.n_heads))
    parts = zip(contexts, weights, strict=True)
    arrows = torch.stack([context @ weight.T for context, weight in parts])
    return arrows, output - arrows.sum(0)


def _principal_axes(points: Tensor, n_axes: int) -> tuple[Tensor, list[float]]:
    """Return the first principal axes as columns, and their shares of the variance."""
    _, sizes, directions = torch.linalg.svd(points, full_matrices=False)
    total = float(sizes.square().sum()) or 1.0
    axes = directions[:n_axes].T
    # The sign of an axis is arbitrary: make the largest entry positive.
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    share = [float(size) ** 2 / total for size in sizes[:n_axes]]
    return axes * torch.where(largest < 0, -1.0, 1.0), share


def _value(trace: Trace, path: str, batch: int) -> Tensor:
    value = trace.value(path).double()
    return value[batch] if value.dim() > 2 else value
