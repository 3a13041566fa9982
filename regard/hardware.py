"""How many threads a computation gets: one if it is small, all if it is large.

Threads that wait for each other after every small product lose more than they gain. On a machine
that does other work, too, a translator of three million weights took twenty times as long on two
threads as on one.
"""

import ctypes
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Tell glibc to keep large buffers that are freed, instead of giving them back each time.

    Otherwise every large tensor comes back as page faults. True where it was done.
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**31 - 1))
    return min(libc.mallopt(which, size) for which, size in settings) == 1


def set_threads(wanted: int = 0) -> int:
    """Use this many threads, or an even share of the cores for each process of this machine."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    count = wanted or max(1, _cores() // local)
    import torch

    torch.set_num_threads(count)
    return count


def _cores() -> int:
    """How many cores this process may use; all there are where nobody can say, as on macOS."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def team_peak(team: Any) -> float:
    """What the best rates of all processes come to, who multiply at the same time."""
    team.wait()
    (peak,) = team.total(product_peak(team.device))
    return peak


def product_peak(
    device: "torch.device",
    *,
    seconds: float = 0.2,
    size: int = 1024,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The best rate of a large float32 matrix product, in floating-point operations a second."""
    import torch

    left = torch.randn(size, size, device=device)
    product = torch.empty_like(left)
    best, end = 0.0, clock() + seconds
    while clock() < end:
        begin = clock()
        torch.mm(left, left, out=product)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (clock() - begin))
    return best


def peak_memory(device: "torch.device") -> int:
    """The most bytes that this process has held at once so far."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def cores() -> int:
    """How many processors this process may use; $REGARD_WORKERS says fewer."""
    there = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    stated = os.environ.get("REGARD_WORKERS", "")
    return min(len(there), max(int(stated), 1)) if stated.isdigit() else len(there)


def threads_for_one() -> int:
    """How many threads read the weights for one text in float32; more only wait for each other."""
    return min(cores(), 4)


LITTLE = 2e9
"""Multiplications that one thread does about as fast as several."""


@contextmanager
def threads_for(multiplications: float) -> Iterator[None]:
    """Compute inside the block with one thread, if it is only so much."""
    import torch

    before = torch.get_num_threads()
    few = multiplications < LITTLE and before > 1
    if few:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if few:
            torch.set_num_threads(before)
