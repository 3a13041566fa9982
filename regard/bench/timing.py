"""Timing on a noisy machine: contenders in alternating rounds, medians, and peak memory."""

import gc
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TypeVar

Clock = Callable[[], float]
_Name = TypeVar("_Name")
_Turn = TypeVar("_Turn")


def take_turns(
    contenders: Mapping[_Name, Callable[[], _Turn]], rounds: int
) -> dict[_Name, list[_Turn]]:
    """Call every contender once in each round, in alternating order; return all results."""
    turns: dict[_Name, list[_Turn]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in contenders if number % 2 else reversed(list(contenders)):
            turns[name].append(contenders[name]())
    return turns


def median_times(
    contenders: dict[str, Callable[[], object]],
    *,
    rounds: int = 15,
    seconds: float = 0.02,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of one call of each contender, measured in turns.

    Args:
        seconds: duration of one contender's turn; faster ones are called several times.
    """

    def measure(call: Callable[[], object], times: int) -> float:
        start = clock()
        for _ in range(times):
            call()
        return (clock() - start) / times

    turns: dict[str, Callable[[], float]] = {}
    for name, call in contenders.items():
        call()
        turns[name] = partial(measure, call, max(1, int(seconds / max(measure(call, 1), 1e-7))))
    gc.disable()
    taken = take_turns(turns, rounds)
    gc.enable()
    return {name: median(times) for name, times in taken.items()}


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


def new_process() -> ProcessPoolExecutor:
    """Return an executor with one process, whose memory and allocator settings are its own."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_keep_quiet)


def _keep_quiet() -> None:
    sys.stdout = sys.stderr  # libraries that print must not mix with the report
    warnings.simplefilter("ignore")


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
