"""`attend` beside F.scaled_dot_product_attention, multi-head beside nn.MultiheadAttention.

Run: python benchmarks/attention.py [--quick] [-o docs/benchmarks/attention.md]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import about, alternate, table
from torch import Tensor, nn

import regard
from regard.attention.multi_head import MultiHeadAttention
from regard.tap import tap


def with_backward(call: Callable[[], Tensor]) -> Callable[[], object]:
    return lambda: call().sum().backward()


def attend_rows(lengths: list[int], rounds: int) -> list[list[str]]:
    rows = []
    for length in lengths:
        batch = max(1, 1024 // length)
        shape = (batch, 8, length, 64)
        query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))
        sizes = torch.linspace(length // 2, length, batch).long()
        hidden = (torch.arange(length) < sizes[:, None])[:, None, None, :]
        masks = {
            "none": ({}, {}),
            "causal": ({"allowed": regard.causal()}, {"is_causal": True}),
            "padding": ({"allowed": regard.padding(sizes)}, {"attn_mask": hidden}),
        }
        for name, (ours, theirs) in masks.items():
            calls: dict[str, Callable[[], Tensor]] = {
                "ours": lambda o=ours, q=query, k=key, v=value: regard.attend(q, k, v, **o),
                "torch": lambda t=theirs, q=query, k=key, v=value: F.scaled_dot_product_attention(
                    q, k, v, **t
                ),
            }
            with torch.no_grad():
                forward = alternate(calls, rounds=rounds, seconds=0.1)
            both = alternate(
                {n: with_backward(c) for n, c in calls.items()}, rounds=rounds, seconds=0.1
            )
            rows.append(
                [
                    str(length),
                    name,
                    *(f"{1e3 * t['torch']:.2f}" for t in (forward, both)),
                    *(f"{t['ours'] / t['torch']:.3f}" for t in (forward, both)),
                ]
            )
            print(" ".join(rows[-1]), flush=True)
    return rows


def multihead_rows(lengths: list[int], rounds: int) -> list[list[str]]:
    rows = []
    for length in lengths:
        x = torch.randn(max(1, 2048 // length), length, 512)
        theirs = nn.MultiheadAttention(512, 8, batch_first=True)
        ours = MultiHeadAttention(512, 8)
        calls: dict[str, Callable[[], Tensor]] = {
            "ours": lambda m=ours, x=x: m(x),
            "torch": lambda m=theirs, x=x: m(x, x, x, need_weights=False)[0],
        }
        with torch.no_grad():
            forward = alternate(calls, rounds=rounds, seconds=0.1)
        both = alternate(
            {n: with_backward(c) for n, c in calls.items()}, rounds=rounds, seconds=0.1
        )
        rows.append(
            [
                str(length),
                *(f"{1e3 * t['torch']:.2f}" for t in (forward, both)),
                *(f"{t['ours'] / t['torch']:.3f}" for t in (forward, both)),
            ]
        )
        print(" ".join(rows[-1]), flush=True)
    return rows


def tap_share() -> tuple[float, float]:
    """Seconds of one silent tap, and the share of all taps in a 512-wide attention layer."""
    module, x = MultiHeadAttention(512, 8), torch.randn(8, 64, 512)
    value = torch.zeros(1)
    with torch.no_grad():
        times = alternate(
            {
                "layer": lambda: module(x),
                "taps": lambda: [tap(f"{module.path}.value", value, "query d") for _ in range(10)],
            }
        )
    return times["taps"] / 10, times["taps"] / times["layer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    lengths = [128, 512] if options.quick else [128, 256, 512, 1024, 2048, 4096]
    rounds = 5 if options.quick else 21
    heads = ["length", "mask", "torch forward ms", "torch + backward ms"]
    heads += ["ours / torch forward", "ours / torch + backward"]
    attend = table(heads, attend_rows(lengths, rounds))
    multihead = table([heads[0], *heads[2:]], multihead_rows(lengths[:5], rounds))
    one, share = tap_share()
    text = f"""# Attention, measured

{about()}. Ratios of medians in alternating rounds of one run; below 1 we are faster.

## `regard.attend` / `F.scaled_dot_product_attention` (8 heads, d 64)

{attend}

## `MultiHeadAttention` / `nn.MultiheadAttention` (d_model 512, 8 heads, no weights asked for)

{multihead}

## Taps with nobody listening

One tap takes {1e9 * one:.0f} ns; ten of them are {100 * share:.2f} % of a 512-wide attention
layer's forward pass over 8 sentences of 64 tokens.
"""
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
