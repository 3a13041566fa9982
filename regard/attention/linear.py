"""Products of the form (A Bᵀ) V in which A Bᵀ is never made: the heart of linear attention."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

_CHUNK = 64
"""Positions handled at once: the chunk × chunk part stays small, and so does their number."""


def causal_product(
    left: Float[Tensor, "*batch token feature"],
    right: Float[Tensor, "*batch token feature"],
    value: Float[Tensor, "*batch token d_v"],
) -> Float[Tensor, "*batch token d_v"]:
    """Σ_{j ≤ i} (left_i · right_j) value_j for every i, in O(n) time and memory.

    Inside a chunk all pairs are multiplied; what came before a chunk is summed up in one
    feature × d_v matrix.
    """
    n_token = left.size(-2)
    missing = -n_token % _CHUNK
    left, right, value = (
        rearrange(
            F.pad(x, (0, 0, 0, missing)), "... (chunk token) d -> ... chunk token d", token=_CHUNK
        )
        for x in (left, right, value)
    )
    inside = (left @ right.transpose(-1, -2)).tril() @ value
    sums = right.transpose(-1, -2) @ value
    before = sums.cumsum(dim=-3) - sums
    result = inside + left @ before
    return rearrange(result, "... chunk token d -> ... (chunk token) d")[..., :n_token, :]
