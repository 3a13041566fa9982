"""Speed and memory of attention: `attend` compared with torch, and every efficient form."""

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.attend import attend, explicit_attention
from regard.attention.efficient import efficient_attention
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.mask import as_mask, causal, padding
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.pattern import ExactPattern
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.attention.similarity import ScaledDot
from regard.bench import timing
from regard.bench.timing import Clock, markdown_table, median_times, select_clock

Calls = dict[str, Callable[[], Tensor]]
Form = Callable[[Tensor, Tensor, Tensor], Tensor]
HEADS, D_K = 8, 64
EXPLICIT_UP_TO = 4096  # beyond, the n × n matrices of the explicit form take many gigabytes


def _time_passes(calls: Calls, rounds: int, clock: Clock) -> dict[str, dict[str, float]]:
    with torch.no_grad():
        forward = median_times(dict(calls), rounds=rounds, clock=clock)
    trained = {name: lambda call=call: call().sum().backward() for name, call in calls.items()}
    both = median_times(trained, rounds=rounds, clock=clock)
    return {name: {"forward": 1e3 * forward[name], "both": 1e3 * both[name]} for name in calls}


def compare_with_torch(
    lengths: Sequence[int], *, rounds: int = 15, cpu_time: bool = False
) -> list[dict[str, Any]]:
    """Return how many times as fast as torch's attention ours is, by length, mask and pass."""
    clock, found = select_clock(cpu_time=cpu_time), []
    for length in lengths:
        for case, calls in _torch_cases(length).items():
            times = _time_passes(calls, rounds, clock)
            for name, theirs in times["theirs"].items():
                numbers = {
                    "peer_ms": round(theirs, 3),
                    "ratio": round(theirs / times["ours"][name], 3),
                }
                labels = dict(zip(("ours", "peer", "mask"), case, strict=True))
                found.append({**labels, "length": length, "pass": name, **numbers})
    return found


def _torch_cases(length: int) -> dict[tuple[str, str, str], Calls]:
    batch = max(1, 1024 // length)
    q, k, v = (torch.randn(batch, HEADS, length, D_K, requires_grad=True) for _ in range(3))
    sizes = torch.linspace(length // 2, length, batch).long()
    visible = (torch.arange(length) < sizes[:, None])[:, None, None, :]
    masks: dict[str, tuple[Any, dict[str, Any]]] = {
        "none": (None, {}),
        "causal": (causal(), {"is_causal": True}),
        "padding": (padding(sizes), {"attn_mask": visible}),
    }
    cases: dict[tuple[str, str, str], Calls] = {
        ("attend", "F.scaled_dot_product_attention", name): {
            "ours": partial(attend, q, k, v, allowed=allowed),
            "theirs": partial(F.scaled_dot_product_attention, q, k, v, **given),
        }
        for name, (allowed, given) in masks.items()
    }
    x = torch.randn(max(1, 2048 // length), length, 512)
    ours, theirs = MultiHeadAttention(512, 8), nn.MultiheadAttention(512, 8, batch_first=True)
    cases["MultiHeadAttention", "nn.MultiheadAttention", "none"] = {
        "ours": lambda: ours(x),
        "theirs": lambda: theirs(x, x, x, need_weights=False)[0],
    }
    return cases


def attention_forms(length: int) -> dict[str, Form]:
    """Return every form of attention with common settings."""
    mask = causal()
    performer, linformer = Performer(D_K), Linformer(length, 256)
    reformer = Reformer(D_K, n_buckets=max(2, length // 64 // 2 * 2))
    exact = ExactPattern(ScaledDot(), D_K**-0.5, 1.0, as_mask(None))
    forms: dict[str, Form] = {
        "fused": attend,
        "fused, causal": lambda q, k, v: attend(q, k, v, allowed=mask),
        "explicit": lambda q, k, v: explicit_attention(q, k, v, exact),
        "efficient": efficient_attention,
        "efficient, causal": lambda q, k, v: efficient_attention(q, k, v, allowed=mask),
        "Performer, 256 features": performer,
        "Performer, causal": lambda q, k, v: performer(q, k, v, allowed=mask),
        "Linformer, k = 256": linformer,
        "Reformer, 4 rounds": reformer,
        "Reformer, causal": lambda q, k, v: reformer(q, k, v, allowed=mask),
        "window, radius 128": Longformer(128),
        "Longformer, radius 128 + 4": Longformer(128, global_tokens=[0, 1, 2, 3]),
    }
    if length > EXPLICIT_UP_TO:
        del forms["explicit"]
    return forms


def extra_memory(form: Form, inputs: list[Tensor]) -> float:
    """Return the megabytes that a call holds at its peak beyond inputs and result."""
    form(*inputs)  # buffers that are created once do not count
    gc.collect()
    if sys.platform == "linux":  # freed memory that malloc keeps would hide what is used
        ctypes.CDLL(None).malloc_trim(0)
    before = timing.process_memory("VmRSS")
    timing.reset_peak_memory()
    result = form(*inputs)
    return max(0.0, timing.process_memory() - before - result.nbytes / 2**20)


@dataclass
class AttentionTimings:
    """Milliseconds (by length, form and pass) and megabytes (by length and form)."""

    cpu_time: bool
    times: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    memory: dict[int, dict[str, float]] = field(default_factory=dict)

    def ratios(self) -> list[dict[str, Any]]:
        """Return how many times as fast as the fused kernel each form is."""
        return [
            {"peer": "fused kernel", "ours": name, "length": length, "pass": kind, "ratio": ratio}
            for length, forms in self.times.items()
            for name, taken in forms.items()
            for kind in ("forward", "both")
            if (ratio := round(forms["fused"][kind] / taken[kind], 3)) and name != "fused"
        ]


def measure_forms(
    lengths: Sequence[int], log: Callable[[str], None], *, rounds: int = 5, cpu_time: bool = False
) -> AttentionTimings:
    """Measure all forms at each length."""
    clock, found = select_clock(cpu_time=cpu_time), AttentionTimings(cpu_time)
    for length in lengths:
        torch.manual_seed(0)
        forms = attention_forms(length)
        inputs = [torch.randn(1, HEADS, length, D_K, requires_grad=True) for _ in range(3)]
        with torch.no_grad():
            found.memory[length] = {n: extra_memory(form, inputs) for n, form in forms.items()}
        calls: Calls = {name: partial(form, *inputs) for name, form in forms.items()}
        found.times[length] = _time_passes(calls, rounds, clock)
        log(f"{length} positions: done")
    return found


def report(timings: AttentionTimings) -> str:
    """Return times and memory as three Markdown tables."""

    def time_cell(length: int, name: str, kind: str) -> str:
        taken, fused = (timings.times[length][form][kind] for form in (name, "fused"))
        return f"{taken:,.1f} ({taken / fused:.{3 if taken < 0.1 * fused else 2}f})"

    def table(cell: Callable[[int, str], str]) -> str:
        rows = [
            [name, *(cell(n, name) if name in forms else "–" for n, forms in timings.times.items())]
            for name in next(iter(timings.times.values()))
        ]
        return markdown_table(["form", *(f"{length:,}" for length in timings.times)], rows)

    return f"""# Forms of attention, measured

Batch 1, {HEADS} heads, d {D_K}, float32.
Milliseconds of {"CPU time" if timings.cpu_time else "wall time"}, medians of alternating rounds; in
brackets the ratio to the fused kernel (`F.scaled_dot_product_attention`) in the same run.
Explicit attention is left out beyond {EXPLICIT_UP_TO:,} positions.

## Forward

{table(lambda length, name: time_cell(length, name, "forward"))}

## Forward and backward

{table(lambda length, name: time_cell(length, name, "both"))}

## Memory of a forward pass beyond inputs and result, in megabytes

{table(lambda length, name: f"{timings.memory[length][name]:,.0f}")}
"""
