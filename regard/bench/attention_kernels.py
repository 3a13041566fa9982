"""Every form of attention beside the fused kernel: time and memory as the length grows."""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.attend import attend, explicit_attention
from regard.attention.efficient import efficient_attention
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.mask import Causal, as_mask, causal, padding
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.pattern import ExactPattern
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.attention.similarity import ScaledDot
from regard.bench.timing import about, alternate, forget_peak, memory, table

Calls = dict[str, Callable[[], Tensor]]
_KERNEL, _LAYER = "F.scaled_dot_product_attention", "nn.MultiheadAttention"


def measure_kernels(
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


HEADS, D_K = 8, 64
EXPLICIT_UP_TO = 4096
"""Beyond, the explicit form's n × n matrices take many gigabytes."""

Form = Callable[[Tensor, Tensor, Tensor], Tensor]


def forms(length: int) -> dict[str, Form]:
    """Every contender, with usual settings."""
    causal = Causal()
    performer, linformer = Performer(D_K), Linformer(length, 256)
    reformer = Reformer(D_K, n_buckets=max(2, length // 64 // 2 * 2))
    window, longformer = Longformer(128), Longformer(128, global_tokens=[0, 1, 2, 3])
    exact = ExactPattern(ScaledDot(), D_K**-0.5, 1.0, as_mask(None))
    contenders: dict[str, Form] = {
        "fused": attend,
        "fused, causal": lambda q, k, v: attend(q, k, v, allowed=causal),
        "explicit": lambda q, k, v: explicit_attention(q, k, v, exact),
        "efficient": efficient_attention,
        "efficient, causal": lambda q, k, v: efficient_attention(q, k, v, allowed=causal),
        "Performer, 256 features": performer,
        "Performer, causal": lambda q, k, v: performer(q, k, v, allowed=causal),
        "Linformer, k = 256": linformer,
        "Reformer, 4 rounds": reformer,
        "Reformer, causal": lambda q, k, v: reformer(q, k, v, allowed=causal),
        "window, radius 128": window,
        "Longformer, radius 128 + 4": longformer,
    }
    if length > EXPLICIT_UP_TO:
        del contenders["explicit"]
    return contenders


def inputs(length: int, *, gradients: bool) -> list[Tensor]:
    """Queries, keys and values."""
    torch.manual_seed(0)
    return [torch.randn(1, HEADS, length, D_K, requires_grad=gradients) for _ in range(3)]


def measure_time(
    length: int, rounds: int, clock: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Milliseconds of each form, forward alone and with backward."""
    given = inputs(length, gradients=True)
    calls = {name: (lambda form=form: form(*given)) for name, form in forms(length).items()}
    with torch.no_grad():
        forward = alternate(calls, rounds=rounds, clock=clock)
    both = alternate(
        {name: (lambda call=call: call().sum().backward()) for name, call in calls.items()},
        rounds=max(2, rounds // 2),
        clock=clock,
    )
    return {name: {"forward": 1e3 * forward[name], "both": 1e3 * both[name]} for name in calls}


def measure_memory(length: int) -> dict[str, float]:
    """Megabytes that a forward pass of each form holds at most beyond inputs and result."""
    given = inputs(length, gradients=False)
    with torch.no_grad():
        return {name: extra_memory(form, given) for name, form in forms(length).items()}


def extra_memory(form: Form, given: list[Tensor]) -> float:
    """Megabytes that one call holds at most beyond inputs and result."""
    form(*given)  # what is made once, and kept, does not count
    gc.collect()
    if sys.platform == "linux":  # freed memory that is kept for later would hide what is used
        ctypes.CDLL(None).malloc_trim(0)
    before = memory("VmRSS")
    forget_peak()
    result = form(*given)
    return max(0.0, memory() - before - result.nbytes / 2**20)


@dataclass
class Measured:
    """Milliseconds and megabytes by length and form."""

    how: str
    times: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)
    memory: dict[int, dict[str, float]] = field(default_factory=dict)

    def against(self) -> list[dict[str, Any]]:
        """How many times as fast as the fused kernel every form is, forward and in training."""
        return [
            {"peer": "fused kernel", "ours": name, "length": length, "pass": kind, "ratio": ratio}
            for length, forms in self.times.items()
            for name, taken in forms.items()
            for kind in ("forward", "both")
            if (ratio := round(forms["fused"][kind] / taken[kind], 3)) and name != "fused"
        ]


def measure(
    lengths: Sequence[int], *, rounds: int = 5, cpu_time: bool = False
) -> Iterator[Measured]:
    """All forms at each length in turn; the same record, longer each time.

    Args:
        cpu_time: for a machine that is busy with other work: one thread, and only its own seconds.
    """
    clock, how = time.perf_counter, "Milliseconds"
    if cpu_time:
        torch.set_num_threads(1)
        clock, how = time.process_time, "Milliseconds of CPU time (the machine was busy)"
    found = Measured(how)
    for length in lengths:
        found.memory[length] = measure_memory(length)
        found.times[length] = measure_time(length, rounds, clock)
        yield found


def memory_of_machine() -> float:
    """Gigabytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def report(measured: Measured) -> str:
    """Three tables in Markdown."""
    times, megabytes = measured.times, measured.memory
    lengths = list(times)
    names = list(times[lengths[0]])
    heads = ["form", *(f"{length:,}" for length in lengths)]

    def rows(kind: str) -> list[list[str]]:
        return [[name, *(_cell(times[n], name, kind) for n in lengths)] for name in names]

    def held(name: str) -> list[str]:
        return [f"{megabytes[n][name]:,.0f}" if name in megabytes[n] else "–" for n in lengths]

    return f"""# Forms of attention, measured

{about()}, {os.cpu_count()} cores, {memory_of_machine():.0f} GB of memory.

Batch 1, {HEADS} heads, d {D_K}, float32. {measured.how}.
In brackets the ratio to the fused kernel (`F.scaled_dot_product_attention`) in the same run:
medians of alternating rounds. Explicit attention is left out beyond {EXPLICIT_UP_TO:,} positions.

## Forward

{table(heads, rows("forward"))}

## Forward and backward

{table(heads, rows("both"))}

## Memory of a forward pass beyond inputs and result, in megabytes

{table(heads, [[name, *held(name)] for name in names])}
"""


def _cell(measured: dict[str, dict[str, float]], name: str, kind: str) -> str:
    if name not in measured:
        return "–"
    taken = measured[name][kind]
    ratio = taken / measured["fused"][kind]
    return f"{taken:,.1f} ({ratio:.3f})" if ratio < 0.1 else f"{taken:,.1f} ({ratio:.2f})"
