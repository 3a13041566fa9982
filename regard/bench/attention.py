"""`attend` beside F.scaled_dot_product_attention, multi-head beside nn.MultiheadAttention."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.attend import attend
from regard.attention.masks import causal, padding
from regard.attention.multihead import MultiHeadAttention
from regard.bench.timing import alternate

Calls = dict[str, Callable[[], Tensor]]
_KERNEL, _LAYER = "F.scaled_dot_product_attention", "nn.MultiheadAttention"


def measure(
    lengths: Sequence[int], *, rounds: int = 15, cpu_time: bool = False
) -> list[dict[str, Any]]:
    """How many times as fast as torch's own we are, by length, mask and pass."""
    clock = time.perf_counter
    if cpu_time:
        torch.set_num_threads(1)
        clock = time.process_time
    found = []
    for length in lengths:
        cases = {("attend", mask): calls for mask, calls in _kernels(length).items()}
        cases["MultiHeadAttention", "none"] = _layers(length)
        for (ours, mask), calls in cases.items():
            peer = _KERNEL if ours == "attend" else _LAYER
            told = {"peer": peer, "ours": ours, "length": length, "mask": mask}
            with torch.no_grad():
                forward = alternate(dict(calls), rounds=rounds, clock=clock)
            both = alternate(
                {name: _with_backward(call) for name, call in calls.items()},
                rounds=rounds,
                clock=clock,
            )
            for kind, taken in (("forward", forward), ("both", both)):
                milliseconds = round(1e3 * taken["theirs"], 3)
                ratio = round(taken["theirs"] / taken["ours"], 3)
                found.append({**told, "pass": kind, "peer_ms": milliseconds, "ratio": ratio})
    return found


def _kernels(length: int) -> dict[str, Calls]:
    batch = max(1, 1024 // length)
    q, k, v = (torch.randn(batch, 8, length, 64, requires_grad=True) for _ in range(3))
    sizes = torch.linspace(length // 2, length, batch).long()
    hidden = (torch.arange(length) < sizes[:, None])[:, None, None, :]
    seen, known = causal(), padding(sizes)
    kernel = F.scaled_dot_product_attention
    return {
        "none": {"ours": lambda: attend(q, k, v), "theirs": lambda: kernel(q, k, v)},
        "causal": {
            "ours": lambda: attend(q, k, v, allowed=seen),
            "theirs": lambda: kernel(q, k, v, is_causal=True),
        },
        "padding": {
            "ours": lambda: attend(q, k, v, allowed=known),
            "theirs": lambda: kernel(q, k, v, attn_mask=hidden),
        },
    }


def _layers(length: int) -> Calls:
    x = torch.randn(max(1, 2048 // length), length, 512)
    ours, theirs = MultiHeadAttention(512, 8), nn.MultiheadAttention(512, 8, batch_first=True)
    return {"ours": lambda: ours(x), "theirs": lambda: theirs(x, x, x, need_weights=False)[0]}


def _with_backward(call: Callable[[], Tensor]) -> Callable[[], object]:
    return lambda: call().sum().backward()
