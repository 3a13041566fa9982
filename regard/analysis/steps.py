"""Every step from two input vectors to one attention weight and its effect, in numbers.

x ─ W_Q ─▶ q ─┐
x ─ W_K ─▶ k ─┴─ terms ─ sum ─ × scale ─ mask ─ softmax over the row ─▶ weight
x ─ W_V ─▶ v ──────────────────────────────── weights × values ─▶ context
contexts of all heads ─ W_O ─▶ output ─ + x ─▶ residual

It also gives tokens as points: the residual stream before and after a site.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor, nn

from regard.analysis.heads import sides
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Dot
from regard.errors import InputError, UnknownNameError
from regard.trace.site import Site
from regard.trace.trace import Trace


@dataclass(frozen=True)
class Projection:
    """Weight and bias of a projection of one head (or of the output projection)."""

    weight: Tensor  # output width × input width, as in torch
    bias: Tensor | None


@dataclass(frozen=True)
class Steps:
    """The computation of one weight, and what follows from it.

    Values that the trace does not have, or that the form of attention does not compute, are None.
    """

    query_input: Tensor | None  # input of the query projection
    key_input: Tensor | None
    projections: dict[str, Projection]
    """This head's "query", "key" and "value", and "output" of all heads; empty without a model."""
    rotary: bool  # True if queries and keys are rotated by their positions after the projection
    query: Tensor
    key: Tensor
    value: Tensor  # values of all keys
    terms: Tensor | None  # q_i · k_i, whose sum is the similarity; None if it is not a dot product
    compared: float | None
    scale: float | None
    score: float | None
    allowed: bool
    row: Tensor | None  # masked scores of this query with all keys
    temperature: float
    weights: Tensor
    context: Tensor
    joined: Tensor | None
    output: Tensor | None
    before: Tensor | None  # residual stream before this sub-layer
    after: Tensor | None
    norm_first: bool | None


def steps(trace: Trace, path: str, head: int, query: int, key: int, *, batch: int = 0) -> Steps:
    """Return the steps for one query and key of one head."""
    site = trace[path]
    for what, position, count in (("query", query, site.n_query), ("key", key, site.n_key)):
        if not isinstance(position, int):
            raise InputError(f"{what} is {position!r}; give a position, counted from 0.")
        if not 0 <= position < count:
            raise UnknownNameError(
                f"{site.path} has no {what} {position}; there are {count}, 0 to {count - 1}."
            )
    return _steps(trace, site, head, query, key, batch)


def _steps(trace: Trace, site: Site, head: int, query: int, key: int, batch: int) -> Steps:
    path, row = site.path, {"head": head, "batch": batch, "rows": query}
    exact = site.pattern if isinstance(site.pattern, ExactPattern) else None
    cell = {**row, "columns": key}
    q, k = site.vectors("query", head, batch=batch), site.vectors("key", head, batch=batch)
    is_dot = exact is not None and isinstance(exact.similarity, Dot)
    module, norm_first = attention_module(trace, path), norm_comes_first(trace, path)
    names = ("input", "joined", "output", "residual")
    x, joined, output, after = (_stream(trace, f"{path}.{name}", query, batch) for name in names)
    before = x if norm_first is False else None
    if norm_first and after is not None and output is not None:
        before = after - output
    return Steps(
        query_input=x,
        key_input=_stream(trace, key_input_path(trace, path), key, batch),
        projections={} if module is None else projections(module, head),
        rotary=is_rotary(trace, path),
        query=q[query],
        key=k[key],
        value=site.vectors("value", head, batch=batch),
        terms=q[query] * k[key] if is_dot else None,
        compared=site.compared(**cell).item() if exact else None,
        scale=exact.scale if exact else None,
        score=site.scores(**cell).item() if exact else None,
        allowed=site.masked(**cell).item() != -inf if exact else True,
        row=site.masked(**row)[0] if exact else None,
        temperature=head_temperature(site, head),
        weights=site.weights(**row)[0],
        context=site.context(**row)[0],
        joined=joined,
        output=output,
        before=before,
        after=after,
        norm_first=norm_first,
    )


def head_temperature(site: Site, head: int) -> float:
    """Return the temperature of a head; that of its first query if queries differ."""
    given = getattr(site.pattern, "temperature", 1.0)
    if not isinstance(given, Tensor):
        return float(given)
    if given.dim() < 3:
        return float(given.flatten()[0])
    heads = given.reshape(-1, *given.shape[-3:])[0]
    return float(heads[min(head, len(heads) - 1)].flatten()[0])


def _modules(trace: Trace) -> Iterator[nn.Module]:
    module = getattr(trace.origin, "module", None)
    return iter(()) if module is None else module.modules()


def attention_module(trace: Trace, path: str) -> MultiHeadAttention | None:
    """Return the module of a site, if the trace knows its model."""
    found = (m for m in _modules(trace) if isinstance(m, MultiHeadAttention) and m.path == path)
    return next(found, None)


def projections(module: MultiHeadAttention, head: int) -> dict[str, Projection]:
    """Return a head's part of the projections, and the output projection of all heads."""
    if module.to_key is None:  # keys derived from queries (Reformer)
        return {}
    shared = head // (module.n_heads // module.n_kv_heads)
    widths = {"query": (head, module.d_k), "key": (shared, module.d_k)}
    widths |= {"value": (shared, module.d_v), "output": (0, module.to_output.out_features)}
    found = {}
    for name, (index, width) in widths.items():
        linear, rows = getattr(module, f"to_{name}"), slice(index * width, (index + 1) * width)
        bias = None if linear.bias is None else linear.bias.detach()[rows]
        found[name] = Projection(linear.weight.detach()[rows], bias)
    return found


def key_input_path(trace: Trace, path: str) -> str:
    """Return the path of the input of a site's key and value projections."""
    cross = path.endswith(".cross") and f"{path}.input" in trace.values
    return "encoder.output" if cross else f"{path}.input"


def is_rotary(trace: Trace, path: str) -> bool:
    """Return True if queries and keys are rotated by their positions."""
    module = getattr(trace.origin, "module", None)
    return getattr(module, "rotary", None) is not None and not path.endswith("cross")


def norm_comes_first(trace: Trace, path: str) -> bool | None:
    """Return True for pre-norm and False for post-norm sub-layers; None if unknown."""
    for module in _modules(trace):
        inner = getattr(module, "inner", None)
        if isinstance(inner, MultiHeadAttention) and inner.path == path:
            return bool(getattr(module, "norm_first"))  # noqa: B009  a sub-layer has one
    return None


def _stream(trace: Trace, path: str, position: int, batch: int) -> Tensor | None:
    value = trace.values.get(path)
    if value is None or value.dim() < 2 or position >= value.size(-2):
        return None
    return value[batch, position] if value.dim() > 2 else value[position]


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
