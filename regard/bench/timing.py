"""Timing on a noisy machine: contenders in alternating rounds, medians, and peak memory."""

import gc
import os
import platform
import re
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median

Clock = Callable[[], float]


def median_times(
    contenders: dict[str, Callable[[], object]],
    *,
    rounds: int = 15,
    seconds: float = 0.02,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of one call of each contender, measured in alternating rounds.

    Args:
        seconds: duration of one contender's turn; faster ones are called several times.
    """
    calls = {}
    for name, call in contenders.items():
        call()
        start = clock()
        call()
        calls[name] = max(1, int(seconds / max(clock() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.disable()
    for turn in range(rounds):
        for name in list(contenders) if turn % 2 else list(reversed(contenders)):
            start = clock()
            for _ in range(calls[name]):
                contenders[name]()
            times[name].append((clock() - start) / calls[name])
    gc.enable()
    return {name: median(taken) for name, taken in times.items()}


def select_clock(*, cpu_time: bool) -> Clock:
    """Return the wall clock, or this process's CPU clock with torch limited to one thread."""
    if not cpu_time:
        return time.perf_counter
    import torch

    torch.set_num_threads(1)
    return time.process_time


def describe_machine() -> str:
    """Return date, threads, CPU, torch version and load average in one line."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{date.today().isoformat()}, {torch.get_num_threads()} threads, {platform.machine()} "
        f"{capability}, torch {torch.__version__}{load}"
    )


def markdown_table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def reset_peak_memory() -> None:
    """Reset the peak memory of this process, where the system can do that."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def process_memory(field: str = "VmHWM") -> float:
    """Return this process's peak memory in megabytes, or current memory for field "VmRSS"."""
    status = Path("/proc/self/status")
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")
