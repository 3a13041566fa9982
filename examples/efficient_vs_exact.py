"""Compare efficient with exact attention: its time, and the weights that it implies."""

from time import perf_counter

import torch

import regard


def seconds(attention, *inputs):
    attention(*inputs)  # warm up
    start = perf_counter()
    attention(*inputs)
    return perf_counter() - start


torch.manual_seed(0)
for length in (256, 1024, 4096):
    q, k, v = torch.randn(3, 1, 4, length, 32)
    exact, efficient = (seconds(f, q, k, v) for f in (regard.attend, regard.efficient_attention))
    print(f"{length:>6} tokens: efficient takes {efficient / exact:.2f} of the time")

with regard.watch() as trace:
    regard.attend(q, k, v, site="exact")
    regard.efficient_attention(q, k, v, site="efficient")
for site in trace.sites.values():  # any tile of the 4096 × 4096 weights, computed on request
    tile = site.weights(head=0, rows=[5], columns=slice(0, 4))
    print(f"{site.path}: {tile.numpy().round(5)}")
