"""Normalization of each position by itself, by torch's own kernels.

LayerNorm divides by sqrt(variance + eps) with the variance over all n numbers, not n - 1.
"""

from torch import nn

from regard.errors import UnknownNameError, nearest

NORMS = ("layer", "rms")


def make_norm(kind: str, d_model: int, *, eps: float = 1e-5) -> nn.Module:
    """Layer normalization (Ba et al. 2016) or root-mean-square normalization (Zhang 2019)."""
    if kind == "layer":
        return nn.LayerNorm(d_model, eps=eps)
    if kind == "rms":
        return nn.RMSNorm(d_model, eps=eps)
    raise UnknownNameError(f"there is no normalization {kind!r}; {nearest(kind, NORMS)}.")
