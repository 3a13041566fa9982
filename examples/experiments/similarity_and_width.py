"""1. Dot products need the division by √d_k; additive attention does not."""

import torch
from lab import experiment, train
from torch import nn

import regard

lab = experiment("similarity_and_width")


class Lookup(nn.Module):
    """Find the one of 16 keys that a hidden rotation turns into the query; return its value."""

    def __init__(self, d_k: int, similarity: str):
        super().__init__()
        self.to_query, self.to_key = nn.Linear(16, d_k), nn.Linear(16, d_k)
        for layer in (self.to_query, self.to_key):
            nn.init.normal_(layer.weight, std=16**-0.5)  # queries and keys of variance 1
        self.similarity = similarity
        if similarity == "additive":
            self.similarity = regard.Additive(d_k, d_k, d_k)

    def forward(self, query, key, value):
        return regard.attend(
            self.to_query(query), self.to_key(key), value, similarity=self.similarity
        )


rotation = torch.linalg.qr(torch.randn(16, 16))[0]


def loss_of(model):
    key, value = torch.randn(2, 32, 16, 16)
    return (model(key @ rotation, key, value) - value).square().mean()


widths, lines = lab.some([4, 16, 64, 256, 512]), {}
for similarity in ("additive", "dot", "scaled_dot"):
    lines[similarity] = []
    for d_k in widths:
        torch.manual_seed(1)
        model = Lookup(d_k, similarity)
        losses = train(model, lambda _, model=model: loss_of(model), lab.steps(30), lr=0.005)
        lines[similarity].append((d_k, sum(losses[-10:]) / len(losses[-10:])))
at = {name: points[-1][1] for name, points in lines.items()}
lab.finish(
    lines,
    "d_k",
    "error after training",
    f"With d_k = {widths[-1]} the error is {at['dot']:.2f} for dot, {at['scaled_dot']:.2f} for "
    f"scaled dot and {at['additive']:.2f} for additive attention.",
)
