"""The whole way from two input vectors to one weight and what it brings about, in numbers.

x ─ W_Q ─▶ q ─┐
x ─ W_K ─▶ k ─┴─ terms ─ sum ─ × scale ─ mask ─ softmax over the row ─▶ weight
x ─ W_V ─▶ v ──────────────────────────────── weights × values ─▶ context
contexts of all heads ─ W_O ─▶ output ─ + x ─▶ residual
"""

from dataclasses import dataclass

from torch import Tensor

from regard.attention.multi_head import MultiHeadAttention
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Dot
from regard.errors import InputError, UnknownNameError
from regard.trace.site import Site
from regard.trace.trace import Trace


@dataclass(frozen=True)
class Projection:
    """A matrix and a bias that make one head's vectors of the inputs (or the output of heads)."""

    weight: Tensor
    """Output width × input width, as torch keeps it."""
    bias: Tensor | None


@dataclass(frozen=True)
class Steps:
    """How one query came to give one key its weight, and what followed."""

    query_input: Tensor | None
    """What the query is made of; None where the trace has no such value."""
    key_input: Tensor | None
    projections: dict[str, Projection]
    """"query", "key", "value": this head's rows; "output": all. Empty without a model."""
    rotary: bool
    """Whether queries and keys are turned by their positions after the projection."""
    query: Tensor
    key: Tensor
    value: Tensor
    """The values of all keys."""
    terms: Tensor | None
    """q_i · k_i, whose sum is the similarity; None where it is no dot product."""
    compared: float | None
    scale: float | None
    score: float | None
    allowed: bool
    row: Tensor | None
    """Masked scores of this query with all keys."""
    temperature: float
    weights: Tensor
    context: Tensor
    joined: Tensor | None
    output: Tensor | None
    before: Tensor | None
    """The residual stream before this sub-layer."""
    after: Tensor | None
    norm_first: bool | None


def steps(trace: Trace, path: str, head: int, query: int, key: int, *, batch: int = 0) -> Steps:
    """The steps for one query and key of one head."""
    site = trace[path]
    _check(site, query, key)
    exact = site.pattern if isinstance(site.pattern, ExactPattern) else None
    place = {"head": head if site.lead else None, "batch": batch, "rows": [query]}
    cell = {**place, "columns": [key]}
    q, k, v = (vectors(site, name, head, batch) for name in ("query", "key", "value"))
    plain = exact is not None and isinstance(exact.similarity, Dot)
    module = attention_module(trace, path)
    streams = {name: _stream(trace, f"{path}.{name}", query, batch) for name in _STREAMS}
    norm_first = norm_comes_first(trace, path)
    return Steps(
        query_input=streams["input"],
        key_input=_stream(trace, key_input_path(trace, path), key, batch),
        projections={} if module is None else projections(module, head),
        rotary=is_rotary(trace, path),
        query=q[query],
        key=k[key],
        value=v,
        terms=q[query] * k[key] if plain else None,
        compared=site.compared(**cell).item() if exact else None,
        scale=exact.scale if exact else None,
        score=site.scores(**cell).item() if exact else None,
        allowed=site.masked(**cell).item() != float("-inf") if exact else True,
        row=site.masked(**place)[0] if exact else None,
        temperature=head_temperature(site, head),
        weights=site.weights(**place)[0],
        context=site.context(place["head"], batch=batch, rows=[query])[0],
        joined=streams["joined"],
        output=streams["output"],
        before=_before(streams, norm_first),
        after=streams["residual"],
        norm_first=norm_first,
    )


_STREAMS = ("input", "joined", "output", "residual")


def vectors(site: Site, name: str, head: int, batch: int = 0) -> Tensor:
    """One head's queries, keys or values: position × width."""
    tensor: Tensor = getattr(site, name)
    lead = tensor.shape[:-2]
    index = (batch, *(0,) * (len(lead) - 2), head)[-len(lead) :] if len(lead) else ()
    return tensor[tuple(0 if n == 1 else i for n, i in zip(lead, index, strict=True))]


def head_temperature(site: Site, head: int) -> float:
    """The temperature of one head; that of its first query where queries differ."""
    given = getattr(site.pattern, "temperature", 1.0)
    if not isinstance(given, Tensor):
        return float(given)
    if given.dim() < 3:
        return float(given.flatten()[0])
    heads = given.reshape(-1, *given.shape[-3:])[0]
    return float(heads[min(head, len(heads) - 1)].flatten()[0])


def attention_module(trace: Trace, path: str) -> MultiHeadAttention | None:
    """The module behind a site, where the trace knows its model."""
    model = getattr(trace.origin, "model", None)
    modules = [] if model is None else model.modules()
    found = (m for m in modules if isinstance(m, MultiHeadAttention) and m.path == path)
    return next(found, None)


def projections(module: MultiHeadAttention, head: int) -> dict[str, Projection]:
    """This head's share of the projections, and the output projection of all heads.

    Nothing where queries are their own keys (Reformer): those are no projection of anything.
    """
    if module.to_key is None:
        return {}
    shared = head // (module.n_heads // module.n_kv_heads)
    found = {}
    for name, which, width in (
        ("query", head, module.d_k),
        ("key", shared, module.d_k),
        ("value", shared, module.d_v),
    ):
        linear, rows = getattr(module, f"to_{name}"), slice(which * width, (which + 1) * width)
        bias = None if linear.bias is None else linear.bias.detach()[rows]
        found[name] = Projection(linear.weight.detach()[rows], bias)
    bias = module.to_output.bias
    found["output"] = Projection(
        module.to_output.weight.detach(), None if bias is None else bias.detach()
    )
    return found


def key_input_path(trace: Trace, path: str) -> str:
    """The path of the value that a site's keys and values are made of."""
    cross = path.endswith(".cross") and f"{path}.input" in trace.values
    return "encoder.output" if cross else f"{path}.input"


def is_rotary(trace: Trace, path: str) -> bool:
    """Whether queries and keys are turned by their positions."""
    model = getattr(trace.origin, "model", None)
    return getattr(model, "rotary", None) is not None and not path.endswith("cross")


def norm_comes_first(trace: Trace, path: str) -> bool | None:
    """Whether the sub-layer reads a normalized stream (pre-norm); None if nobody knows."""
    model = getattr(trace.origin, "model", None)
    for module in () if model is None else model.modules():
        inner = getattr(module, "inner", None)
        if isinstance(inner, MultiHeadAttention) and inner.path == path:
            return bool(getattr(module, "norm_first"))  # noqa: B009  a sub-layer has one
    return None


def _before(streams: dict[str, Tensor | None], norm_first: bool | None) -> Tensor | None:
    if norm_first is False:
        return streams["input"]
    after, output = streams["residual"], streams["output"]
    if norm_first is None or after is None or output is None:
        return None
    return after - output


def _stream(trace: Trace, path: str, position: int, batch: int) -> Tensor | None:
    value = trace.values.get(path)
    if value is None or value.dim() < 2 or position >= value.size(-2):
        return None
    return value[batch, position] if value.dim() > 2 else value[position]


def _check(site: Site, query: int, key: int) -> None:
    if not isinstance(query, int) or not isinstance(key, int):
        raise InputError(f"query and key are positions, not {query!r} and {key!r}.")
    for what, position, count in (("query", query, site.n_query), ("key", key, site.n_key)):
        if not 0 <= position < count:
            raise UnknownNameError(
                f"{site.path} has no {what} {position}; there are {count}, 0 to {count - 1}."
            )
