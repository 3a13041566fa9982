"""Attention rollout: from which inputs a position has what it knows, followed through all layers.

    rollout_0 = Â_0        rollout_l = Â_l · rollout_(l-1)
    Â = rows of (mean of the heads' weights + identity) / 2, made to sum to 1

Abnar & Zuidema 2020. The identity stands for the residual connection, which carries half of what
a position has past each layer. What values, projections and feed-forward layers do is left out, so
a rollout is a rough guide, not a cause.
"""

import re

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.trace.site import Site
from regard.trace.trace import Trace

_LAYER = re.compile(r"(?P<stack>.+\.layers\.)(?P<layer>\d+)\.self")
MOST_TOKENS = 2048
"""Longer texts would take minutes: each layer is a product of two tables of all tokens."""


def rollout(trace: Trace, path: str, *, batch: int = 0) -> Float[Tensor, "token token"]:
    """What each token of a self-attention layer has of each token of the input; rows sum to 1."""
    paths = layers_up_to(trace, path)
    n = trace[path].n_query
    if n > MOST_TOKENS:
        raise InputError(
            f"{path} has {n:,} tokens; a rollout is computed of at most {MOST_TOKENS:,}: shorten "
            "the text."
        )
    whole = torch.eye(n, dtype=torch.float64)
    for each in paths:
        whole = _with_residual(trace[each], batch) @ whole
    return whole


def layers_up_to(trace: Trace, path: str) -> list[str]:
    """The self-attention sites of one stack from its first layer to this one."""
    site, place = trace[path], _LAYER.fullmatch(path)
    if place is None or site.n_query != site.n_key:
        raise InputError(
            f"{path} is no layer of self-attention; a rollout needs a stack of them, such as "
            "encoder.layers.0.self and those after it."
        )
    stack = [f"{place['stack']}{n}.self" for n in range(int(place["layer"]) + 1)]
    return [each for each in stack if trace[each]]  # which names a layer that is not there


def _with_residual(site: Site, batch: int) -> Tensor:
    """The mean of all heads and the identity, half and half, each row with the sum 1."""
    total = torch.zeros(site.n_query, site.n_key, dtype=torch.float64)
    for head in range(site.n_heads):
        total += site.weights(head if site.lead else None, batch=batch).double()
    # some efficient forms imply small negative weights, and some queries may see nothing
    mixed = total.clamp(min=0) / site.n_heads + torch.eye(site.n_query, dtype=torch.float64)
    return mixed / mixed.sum(-1, keepdim=True)
