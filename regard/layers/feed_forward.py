"""The feed-forward sub-layer, applied to each position separately, and a dropout fast on CPUs.

Plain, W2 f(x W1 + b1) + b2 (Vaswani et al. 2017, section 3.3), or gated,
W2 (silu(x W_gate) · (x W1)) (SwiGLU, Shazeer 2020).
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import check_choice
from regard.tap import path_at, tap

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


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),  # GPT-2's
    "silu": F.silu,
}
_GATED = {"swiglu": F.silu, "geglu": F.gelu}
ACTIVATIONS = (*_PLAIN, *_GATED)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """Return the activation function of this name."""
    known = _PLAIN | _GATED | {"tanh": F.tanh}
    check_choice("activation", name, known)
    return known[name]


class FeedForward(nn.Module):
    """A hidden layer of width d_ff with an activation, applied to each position separately."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        path: str = "feed_forward",
    ) -> None:
        super().__init__()
        self.activation_fn = activation_function(activation)
        self.activation = activation
        self.to_hidden = nn.Linear(d_model, d_ff, bias=bias)
        self.to_gate = nn.Linear(d_model, d_ff, bias=bias) if activation in _GATED else None
        self.to_output = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        self.path = path

    def forward(
        self, x: Float[Tensor, "batch token d_model"], *, first: int = 0
    ) -> Float[Tensor, "batch token d_model"]:
        """Return the output for `x`, whose first token is at position `first`."""
        here = path_at(self.path, first)
        hidden = self.activation_fn((self.to_gate or self.to_hidden)(x))
        hidden = hidden if self.to_gate is None else hidden * self.to_hidden(x)
        hidden = tap(f"{here}.activation", hidden, "token d_ff")
        return tap(f"{here}.output", self.to_output(self.dropout(hidden)), "token d_model")

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"
