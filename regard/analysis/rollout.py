"""Attention rollout: the share of each input token in each position, through all layers.

    rollout_0 = Â_0        rollout_l = Â_l · rollout_(l-1)
    Â = rows of (mean of the heads' weights + identity) / 2, normalized to sum to 1

Abnar & Zuidema 2020. The identity represents the residual connection. Values, projections and
feed-forward layers are ignored, so a rollout is a rough guide, not a cause.
"""

import re

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError
from regard.trace.trace import Trace

_LAYER = re.compile(r"(?P<stack>.+\.layers\.)(?P<layer>\d+)\.self")
MAX_TOKENS = 2048
"""Longer texts would take minutes: each layer is a product of two token × token tables."""


def rollout(trace: Trace, path: str, *, batch: int = 0) -> Float[Tensor, "token token"]:
    """Return the share of each input token in each token after a layer; rows sum to 1."""
    paths = layers_up_to(trace, path)
    n = trace[path].n_query
    if n > MAX_TOKENS:
        raise InputError(
            f"{path} has {n:,} tokens; a rollout has at most {MAX_TOKENS:,}: shorten the text."
        )
    identity = torch.eye(n, dtype=torch.float64, device=trace[path].query.device)
    total = identity
    for site in (trace[each] for each in paths):
        weights = torch.zeros_like(identity)
        for head in range(site.n_heads):
            weights += site.weights(head, batch=batch).double()
        # some efficient forms have small negative weights, and some queries may see nothing
        mixed = weights.clamp(min=0) / site.n_heads + identity
        total = mixed / mixed.sum(-1, keepdim=True) @ total
    return total


def layers_up_to(trace: Trace, path: str) -> list[str]:
    """Return the self-attention sites of a stack from its first layer to this one."""
    site, match = trace[path], _LAYER.fullmatch(path)
    if match is None or site.n_query != site.n_key:
        raise InputError(
            f"{path} is not a self-attention layer; a rollout needs one, such as "
            "encoder.layers.0.self."
        )
    stack = [f"{match['stack']}{n}.self" for n in range(int(match["layer"]) + 1)]
    return [trace[each].path for each in stack]  # refuses a layer that the trace does not have
