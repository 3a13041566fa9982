"""Attention by torch's fused kernel: the same result, without the n × n matrices.

`F.scaled_dot_product_attention` never holds the weights of all pairs, so it runs when nothing is
recorded. (Flex attention is not used: on the CPU it is slower than the explicit definition and has
no backward pass.)
"""

from contextlib import nullcontext
from math import inf, prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.mask import Everything, split_causal
from regard.attention.pattern import ExactPattern
from regard.attention.tile import Grid, broadcast_lead


def fused_attention(
    query: Float[Tensor, "*#batch query d_k"],
    key: Float[Tensor, "*#batch key d_k"],
    value: Float[Tensor, "*#batch key d_v"],
    *,
    pattern: ExactPattern,
    dropout: float = 0.0,
) -> Float[Tensor, "*#batch query d_v"]:
    """Return the weighted sum of the values for a pattern whose similarities are dot products.

    `query` and `key` are the result of `Similarity.as_dot`, and the temperature is not 0.
    """
    causal, mask = _mask_for_kernel(query, key, pattern)
    lead = query.shape[:-2]
    if not key.shape[:-2] == value.shape[:-2] == lead:
        lead = broadcast_lead(lead, key.shape[:-2], value.shape[:-2])
        query, key, value = (x.expand(*lead, *x.shape[-2:]) for x in (query, key, value))
    scale = pattern.scale
    if isinstance(pattern.temperature, Tensor):
        query = query / pattern.temperature.to(query.dtype)
    else:
        scale = scale / pattern.temperature
    # The kernel multiplies the -inf of its causal mask by the scale, which must not vanish there.
    if not scale > 1e-30:
        query, scale = query * scale, 1.0
    if len(lead) != 2:  # the fast kernels take exactly (batch, head) in front
        flat = (prod(lead[:-1]), lead[-1] if lead else 1)
        query, key, value = (x.reshape(*flat, *x.shape[-2:]) for x in (query, key, value))
        if mask is not None:
            mask = mask.expand(*lead, *mask.shape[-2:]).reshape(*flat, *mask.shape[-2:])
    elif mask is not None and mask.dim() == 3:
        mask = mask[None]  # (head, query, key): three axes would select the slow kernel
    dtype = query.dtype
    # On the CPU the kernel's backward pass takes five times as long in half precision.
    upcast = query.is_cpu and torch.is_grad_enabled() and dtype in (torch.bfloat16, torch.float16)
    if upcast:
        query, key, value = query.float(), key.float(), value.float()
        mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
    with torch.autocast("cpu", enabled=False) if upcast else nullcontext():
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
        ).to(dtype)
    return context if len(lead) == 2 else context.reshape(*lead, *context.shape[-2:])


def _mask_for_kernel(
    query: Tensor, key: Tensor, pattern: ExactPattern
) -> tuple[bool, Tensor | None]:
    """Return whether the kernel's causal mask is enough, and otherwise the mask as a tensor."""
    allowed, similarity = pattern.allowed, pattern.similarity
    causal, rest = split_causal(allowed)
    if isinstance(rest, Everything) and not similarity.biased:
        return causal, None
    lead = query.shape[:-2]  # the axes of the scores do not depend on the value
    if key.shape[:-2] != lead:
        lead = broadcast_lead(lead, key.shape[:-2])
    grid = Grid.whole(lead, query.size(-2), key.size(-2), query.device)
    bias = similarity.bias(grid)
    if bias is not None:
        bias = (bias / pattern.temperature).to(query.dtype)
    if allowed.admits_all(grid):
        return False, bias
    mask = allowed.on(grid)
    return False, mask if bias is None else bias.masked_fill(~mask, -inf)
