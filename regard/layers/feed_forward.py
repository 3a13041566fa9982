"""The feed-forward sub-layer: each position by itself through one hidden layer.

Plain, W2 f(x W1 + b1) + b2 (Vaswani et al. 2017, section 3.3), or gated,
W2 (silu(x W_gate) · (x W1)) (SwiGLU, Shazeer 2020).
"""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import UnknownNameError, nearest
from regard.layers.dropout import Dropout
from regard.tap import path_at, tap


def gelu_new(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """GELU by a tanh, as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": gelu_new,
    "silu": F.silu,
    "tanh": F.tanh,
}
_GATED = {"swiglu": F.silu, "geglu": F.gelu}
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", *_GATED)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The function that this activation bends numbers with."""
    known = _PLAIN | _GATED
    if name not in known:
        raise UnknownNameError(f"there is no activation {name!r}; {nearest(name, known)}.")
    return known[name]


class FeedForward(nn.Module):
    """Each position by itself: to d_ff numbers, bent by the activation, and back to d_model."""

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
        """The positions that `x` holds, the first of which is number `first` of its sequence."""
        here = path_at(self.path, first)
        bent = self.activation_fn((self.to_gate or self.to_hidden)(x))
        hidden = bent if self.to_gate is None else bent * self.to_hidden(x)
        hidden = tap(f"{here}.activation", hidden, "token d_ff")
        return tap(f"{here}.output", self.to_output(self.dropout(hidden)), "token d_model")

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"
