"""CPU threads, memory and the speed of this machine."""

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from regard.errors import InputError

if TYPE_CHECKING:
    import torch

Clock = Callable[[], float]
SINGLE_THREAD_LIMIT = 2e9
"""Multiplications below which several threads are not faster than one: they wait for each other."""


class EngineCache(dict[Any, Any]):
    """Open engines by key. A copy, a pickle and a forked process start without them.

    The threads of an engine do not exist in a forked process, so waiting for them would not end.
    Hold `lock` to look for an engine and open it, so that several threads open it once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lock = RLock()
        self.chosen: dict[Any, Any] = {}  # engines by what was asked for
        _CACHES[id(self)] = self

    def __reduce__(self) -> tuple[type["EngineCache"], tuple[()]]:
        return EngineCache, ()

    def forget(self) -> None:
        """Drop the engines without closing them, which would wait for their threads."""
        _FORGOTTEN.extend(self.values())
        self.clear()
        self.chosen.clear()
        self.lock = RLock()  # a thread that does not exist in a forked process may have held it


_CACHES: WeakValueDictionary[int, EngineCache] = WeakValueDictionary()
_FORGOTTEN: list[Any] = []


def _after_fork() -> None:
    for cache in list(_CACHES.values()):
        cache.forget()
    for one in _FORGOTTEN:  # also when the process ends
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


_DEVICE = ["cpu"]


def use_device(name: str) -> None:
    """Let models that are loaded from now on compute on this device, such as "cuda"."""
    _DEVICE[0] = name


def chosen_device() -> str:
    """Return the device of models that are loaded without naming one."""
    return _DEVICE[0]


def check_device(name: str) -> None:
    """Refuse a device that torch does not know or this machine does not have."""
    import torch

    present = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        count = torch.accelerator.device_count()
        present += [str(kind), *(f"{kind}:{number}" for number in range(count))]
    if name not in present:
        raise InputError(
            f"device is {name!r}, and torch finds {', '.join(present)} here: give one of these."
        )


def cpu_count() -> int:
    """Return the number of CPUs this process may use; $REGARD_WORKERS can lower it."""
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:  # macOS
        available = os.cpu_count() or 1
    limit = os.environ.get("REGARD_WORKERS", "")
    return min(available, max(int(limit), 1)) if limit.isdigit() else available


def idle_cpus() -> int:
    """Return the number of CPUs that this process may use and no other uses now; at least 1.

    Threads that share a CPU with another process wait for each other much longer than they compute.
    """
    return max(1, min(cpu_count(), (os.cpu_count() or 1) - _busy_threads()))


def single_request_threads() -> int:
    """Return the number of threads for one text in float32: more than four do not help."""
    return min(idle_cpus(), 4)


def _busy_threads() -> int:
    """Return how many other threads of this machine are running or waiting for a CPU now."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1
    return round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0


def set_threads(wanted: int = 0) -> int:
    """Set and return torch's thread count: `wanted`, $OMP_NUM_THREADS, or an equal share.

    Under torchrun, which sets $OMP_NUM_THREADS itself, the local processes share the CPUs equally.
    """
    import torch

    processes = os.environ.get("LOCAL_WORLD_SIZE", "")
    chosen = "" if processes else os.environ.get("OMP_NUM_THREADS", "")
    limit = int(chosen) if chosen.isdigit() and int(chosen) > 0 else cpu_count()
    count = wanted or max(1, min(limit, cpu_count()) // int(processes or 1))
    torch.set_num_threads(count)
    return count


@contextmanager
def limit_threads(multiplications: float) -> Iterator[None]:
    """Run the block on one torch thread if it does fewer than SINGLE_THREAD_LIMIT operations."""
    import torch

    before = torch.get_num_threads()
    limited = multiplications < SINGLE_THREAD_LIMIT and before > 1
    if limited:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if limited:
            torch.set_num_threads(before)


def set_blas_threads(count: int) -> bool:
    """Set the threads of NumPy's matrix products; False if its library cannot be found."""
    import numpy

    root = Path(numpy.__file__).parent
    for file in [*root.parent.glob("numpy.libs/*openblas*"), *root.glob(".dylibs/*openblas*")]:
        library = ctypes.CDLL(str(file))
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(count)
                return True
    return False


def choose_blas_threads(product: Callable[[], object], *, clock: Clock = perf_counter) -> int:
    """Set and return the number of NumPy's threads that a product is faster with: one or all.

    Several threads read memory faster than one, but on a busy machine they wait for each other
    much longer than they compute.
    """
    counts = (1, single_request_threads())
    if counts[1] == 1 or not set_blas_threads(1):
        return 1
    times = []
    for count in counts:
        set_blas_threads(count)
        product()  # starts the threads
        times.append(min(_seconds(product, clock) for _ in range(2)))
    chosen = counts[times[1] < 0.8 * times[0]]
    set_blas_threads(chosen)
    return chosen


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def keep_freed_memory() -> bool:
    """Make glibc reuse large freed buffers, which avoids page faults; True where supported."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc, trim_threshold, mmap_threshold = ctypes.CDLL(None), -1, -3
    done = libc.mallopt(mmap_threshold, 2**30), libc.mallopt(trim_threshold, 2**31 - 1)
    return min(done) == 1


def release_freed_memory() -> None:
    """Return to the system what glibc keeps of freed buffers.

    With batches of many shapes, kept buffers fit ever fewer new ones, and memory would grow.
    """
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def bf16_gain(device: "torch.device") -> float:
    """Measure how many times as fast as in float32 matrix products are in bf16."""
    import torch

    return matmul_rate(device, dtype=torch.bfloat16) / matmul_rate(device)


def peak_memory(device: "torch.device") -> int:
    """Return the maximum number of bytes that this process has held so far."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def matmul_rate(
    device: "torch.device",
    *,
    dtype: "torch.dtype | None" = None,
    seconds: float = 0.2,
    size: int = 1024,
    clock: Clock = perf_counter,
) -> float:
    """Measure the best rate of a large matrix product in FLOP/s, in float32 by default."""
    import torch

    left = torch.randn(size, size, device=device).to(dtype or torch.float32)
    product = torch.empty_like(left)
    best, end = 0.0, clock() + seconds
    while clock() < end:
        start = clock()
        torch.mm(left, left, out=product)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (clock() - start))
    return best
