"""Every form of attention beside the fused kernel: time and memory as the length grows.

Run: python benchmarks/attention_forms.py [--quick] [--json] [-o docs/benchmarks/attention_forms.md]
On a machine that is busy with other work add --cpu-time: one thread, and only its own seconds.
"""

import argparse
import ctypes
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import about, alternate, table
from torch import Tensor

import regard
from regard.attention.attend import explicit_attention
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.mask import as_mask
from regard.attention.pattern import Exact
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.attention.similarity import ScaledDot

HEADS, D_K = 8, 64
EXPLICIT_UP_TO = 4096
"""Beyond, the explicit form's n × n matrices take many gigabytes."""

Form = Callable[[Tensor, Tensor, Tensor], Tensor]


def forms(length: int) -> dict[str, Form]:
    """Every contender, with usual settings."""
    causal = regard.causal()
    performer, linformer = Performer(D_K), Linformer(length, 256)
    reformer = Reformer(D_K, n_buckets=max(2, length // 64 // 2 * 2))
    window, longformer = Longformer(128), Longformer(128, global_tokens=[0, 1, 2, 3])
    exact = Exact(ScaledDot(), D_K**-0.5, 1.0, as_mask(None))
    contenders: dict[str, Form] = {
        "fused": regard.attend,
        "fused, causal": lambda q, k, v: regard.attend(q, k, v, allowed=causal),
        "explicit": lambda q, k, v: explicit_attention(q, k, v, exact),
        "efficient": regard.efficient_attention,
        "efficient, causal": lambda q, k, v: regard.efficient_attention(q, k, v, allowed=causal),
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
    form(*given)  # what is made once, and kept, does not count
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is kept for later would hide what is used
    before = memory_now("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    result = form(*given)
    return max(0.0, memory_now("VmHWM") - before - result.nbytes / 2**20)


def memory_now(name: str) -> float:
    """Megabytes of this process, from the kernel's own account."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def memory_of_machine() -> float:
    """Gigabytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def report(times: dict[int, dict], memory: dict[int, dict], how: str) -> str:
    lengths = list(times)
    names = list(times[lengths[0]])

    def rows(kind: str) -> list[list[str]]:
        return [[name, *(time_cell(times[n], name, kind) for n in lengths)] for name in names]

    def megabytes(name: str) -> list[str]:
        return [f"{memory[n][name]:,.0f}" if name in memory[n] else "–" for n in lengths]

    heads = ["form", *(f"{length:,}" for length in lengths)]
    return f"""# Forms of attention, measured

{about()}, {os.cpu_count()} cores, {memory_of_machine():.0f} GB of memory.

Batch 1, {HEADS} heads, d {D_K}, float32. {how}.
In brackets the ratio to the fused kernel (`F.scaled_dot_product_attention`) in the same run:
medians of alternating rounds. Explicit attention is left out beyond {EXPLICIT_UP_TO:,} positions.

## Forward

{table(heads, rows("forward"))}

## Forward and backward

{table(heads, rows("both"))}

## Memory of a forward pass beyond inputs and result, in megabytes

{table(heads, [[name, *megabytes(name)] for name in names])}
"""


def time_cell(measured: dict[str, dict[str, float]], name: str, kind: str) -> str:
    if name not in measured:
        return "–"
    taken = measured[name][kind]
    ratio = taken / measured["fused"][kind]
    return f"{taken:,.1f} ({ratio:.3f})" if ratio < 0.1 else f"{taken:,.1f} ({ratio:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: one thread")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    clock, how = time.perf_counter, "Milliseconds"
    if options.cpu_time:
        torch.set_num_threads(1)
        clock, how = time.process_time, "Milliseconds of CPU time (the machine was busy)"
    times, memory = {}, {}
    for length in options.lengths[:2] if options.quick else options.lengths:
        memory[length] = measure_memory(length)
        times[length] = measure_time(length, 3 if options.quick else 5, clock)
        print(f"{length} done", file=sys.stderr, flush=True)
        if options.output:  # after each length, so that a run that is stopped leaves something
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(report(times, memory, how))
    if options.json:
        print(json.dumps({"about": about(), "times": times, "memory": memory}, indent=1))
    else:
        print(report(times, memory, how))


if __name__ == "__main__":
    main()
