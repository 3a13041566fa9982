"""Record a custom layer: call `regard.attend` instead of torch's attention."""

import torch
from torch import nn

import regard


class MyLayer(nn.Module):
    """Causal attention with one head."""

    def __init__(self):
        super().__init__()
        self.to_query, self.to_key, self.to_value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        # before: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        q, k, v = self.to_query(x), self.to_key(x), self.to_value(x)
        return regard.attend(q, k, v, allowed=regard.causal(), site="mine")


torch.manual_seed(0)
layer, x = MyLayer(), torch.randn(1, 4, 8)
with regard.watch() as trace:
    output = layer(x)
print(trace["mine"].weights().round(decimals=2))

with regard.watch(edits=[regard.forbid("mine", query=3, key=0)]):
    changed = layer(x)
print("rows that changed:", (changed != output).any(-1).nonzero()[:, 1].tolist())
