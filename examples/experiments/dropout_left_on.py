"""7. Dropout of a class that is not an nn.Module stays on in eval()."""

import torch
from lab import experiment
from torch import nn

import regard

lab = experiment("dropout_left_on")


class PlainDropout:
    """The slip: not an nn.Module."""

    def __init__(self, p):
        self.dropout = nn.Dropout(p)

    def __call__(self, x):
        return self.dropout(x)


class Layer(nn.Module):
    """Attention with a residual and dropout on its way, as a module or hidden in a plain class."""

    def __init__(self, p, plain):
        super().__init__()
        self.attention = regard.MultiHeadAttention(32, 4)
        self.after = PlainDropout(p) if plain else nn.Dropout(p)

    def forward(self, x):
        return x + self.after(self.attention(x))


x, rates = torch.randn(1, 10, 32), [0.0, 0.1, 0.2, 0.3, 0.5]
lines = {"plain class": [], "nn.Module": []}
for p in rates:
    for name, points in lines.items():
        layer = Layer(p, name == "plain class").eval()
        with torch.no_grad():
            points.append((p, float((layer(x) - layer(x)).abs().max())))
at = {name: dict(points)[0.1] for name, points in lines.items()}
lab.finish(
    lines,
    "dropout",
    "largest difference of two eval calls",
    f"With dropout 0.1, two calls after eval() differ by {at['plain class']:.2f} if the dropout is "
    f"in a plain class, and by {at['nn.Module']:.2f} if it is in a module.",
)
