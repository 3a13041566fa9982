"""Dropout, in one place, so that a fast one serves every model."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

_STEPS = 256
"""One random byte decides for one number, so probabilities come in steps of 1/256."""


class Dropout(nn.Module):
    """Numbers set to 0 with probability `p` while training, the others made larger to match.

    On the CPU a draw of 64 random bits decides for eight numbers, which is several times faster
    than torch's draw for each. The probability is then the nearest multiple of 1/256 (and what is
    kept grows by exactly that), never 0 unless `p` is.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return dropout_by_bytes(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def dropout_by_bytes(x: Float[Tensor, "*axes"], p: float) -> Float[Tensor, "*axes"]:
    """A share `p` of the numbers set to 0, and the others divided by 1 - p."""
    dropped = min(max(round(p * _STEPS), 1), _STEPS - 1)
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
    return _Dropped.apply(x, keep, _STEPS / (_STEPS - dropped))  # type: ignore[no-any-return]


class _Dropped(torch.autograd.Function):
    """x · keep · scale; for the way back it keeps one byte a number instead of four."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Bool[Tensor, "*axes"], scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return (x * keep).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep).mul_(ctx.scale), None, None
