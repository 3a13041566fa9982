"""Fair timing on a noisy machine: rounds of all contenders in turn, medians, and ratios."""

import gc
import os
import platform
import re
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median


def alternate(
    contenders: dict[str, Callable[[], object]],
    *,
    rounds: int = 15,
    seconds: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of one call of each, measured in alternating rounds.

    On a machine that is busy with other work, `clock=time.process_time` counts only our own.
    """
    calls = {}
    for name, call in contenders.items():
        call()
        start = clock()
        call()
        once = clock() - start
        calls[name] = max(1, int(seconds / max(once, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.disable()
    for turn in range(rounds):
        order = list(contenders) if turn % 2 else list(reversed(contenders))
        for name in order:
            start = clock()
            for _ in range(calls[name]):
                contenders[name]()
            times[name].append((clock() - start) / calls[name])
    gc.enable()
    return {name: median(taken) for name, taken in times.items()}


def about() -> str:
    """When and on what this was measured, in one line."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{date.today().isoformat()}, {torch.get_num_threads()} threads, {platform.machine()} "
        f"{capability}, torch {torch.__version__}"
    )


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def forget_peak() -> None:
    """Let the peak of this process's memory start anew, where the system can do that."""
    place = Path("/proc/self/clear_refs")
    if place.exists():
        place.write_text("5")


def memory(name: str = "VmHWM") -> float:
    """Megabytes of this process from the kernel's own account: its peak, or VmRSS for now."""
    status = Path("/proc/self/status")
    found = re.search(rf"{name}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")
