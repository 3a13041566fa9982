"""Find the classic mistakes in attention as one writes it for a course."""

import torch
import torch.nn.functional as F

import regard


class Attention:
    """Not even an nn.Module. Three mistakes are in it: can you see them?"""

    def __init__(self, width):
        self.to_query, self.to_key, self.to_value = torch.randn(3, width, width)

    def __call__(self, x):
        query, key, value = x @ self.to_query, x @ self.to_key, x @ self.to_value
        scores = query @ key.transpose(-2, -1)
        weights = F.softmax(scores, dim=1)
        return F.dropout(weights, 0.1) @ value


torch.manual_seed(0)
attention = Attention(16)
with regard.watch(attention) as trace:
    attention(torch.randn(1, 4, 16))

print("the weights of a query sum to", trace["attention"].weights(head=0).sum(-1).tolist())
for mistake in trace.check():
    print("-", mistake)
