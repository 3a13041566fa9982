"""Dropout that is fast on the CPU."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

_STEPS = 256  # one random byte decides for one number, so probabilities are multiples of 1/256


class Dropout(nn.Module):
    """Set numbers to 0 with probability `p` in training, and scale the others up.

    On the CPU 64 random bits decide for eight numbers, which is several times faster than torch's
    draw for each. The probability is then the nearest multiple of 1/256 (and the scale fits it
    exactly), never 0 unless `p` is.
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
    """Set a share `p` of the numbers to 0 and divide the others by 1 - p."""
    dropped = min(max(round(p * _STEPS), 1), _STEPS - 1)
    words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    drawn = words.view(torch.uint8)[: x.numel()].view(x.shape).to(x.dtype)
    # Arithmetic gives 0 or 1 faster than comparing bytes and multiplying by booleans.
    keep = drawn.sub_(dropped - 1).clamp_(0, 1)
    return x * keep.mul_(_STEPS / (_STEPS - dropped))
