"""Small attentions that edits are tried on."""

import torch
from torch import nn

from regard.attention.mask import causal
from regard.attention.multi_head import KeyValueCache, MultiHeadAttention
from regard.trace.edit import Edit
from regard.trace.watch import watch


class Two(nn.Module):
    """Two layers of attention, one after another."""

    def __init__(self):
        super().__init__()
        paths = ["encoder.layers.0.self", "encoder.layers.1.self"]
        self.layers = nn.ModuleList(MultiHeadAttention(4, 2, path=path) for path in paths)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, allowed=causal())
        return x


def by_steps(model: MultiHeadAttention, x: torch.Tensor, *edits: Edit) -> torch.Tensor:
    """The layer run token by token with a cache, under the edits."""
    cache, steps = KeyValueCache(), []
    with torch.no_grad(), watch(edits=edits):
        for i in range(x.size(1)):
            step = x[:, i : i + 1]
            steps.append(model(step, cache=cache, allowed=causal(offset=i)))
    return torch.cat(steps, dim=1)
