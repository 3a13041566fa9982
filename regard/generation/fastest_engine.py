"""The fastest engine for a model: measured once for each machine and model, and kept in the cache.

A measurement takes about a second, so there must be enough work to pay for it. Nothing here imports
torch.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from regard.files import cache_folder, cache_key, write_atomic
from regard.generation.ctranslate2_engine import fingerprint, known_fingerprint
from regard.hardware import Clock, cpu_count, idle_cpus

_LOOKED_UP: dict[Any, str | None] = {}
"""Choices by folder and engines, so that files are not read again for every short text."""


def fastest_engine(
    folder: Path,
    names: Sequence[str],
    about: Mapping[str, Any],
    measure: Callable[[], str],
    *,
    worthwhile: bool,
) -> str | None:
    """Return the engine that was measured as fastest; None if nothing is known.

    Args:
        folder: of the model.
        about: what else the choice depends on, such as versions of libraries.
        measure: returns the fastest engine; called if nothing is known and it is worthwhile.
    """
    # What is fastest with one thread next to other work need not be on an idle machine.
    about = {**about, "idle": idle_cpus() > 1}
    key = (cache_folder(), folder, *names, *about.items())
    known = _LOOKED_UP.get(key)
    if known is None and (worthwhile or key not in _LOOKED_UP):
        known = _LOOKED_UP[key] = _look_up(folder, names, about, measure if worthwhile else None)
    return known


def _look_up(
    folder: Path,
    names: Sequence[str],
    about: Mapping[str, Any],
    measure: Callable[[], str] | None,
) -> str | None:
    # A folder that was never read has no choice, and reading it would take longer than a text.
    stored = known_fingerprint(folder) if measure is None else fingerprint(folder)
    machine = [platform.machine(), platform.processor(), cpu_count()]
    kind = cache_key({"machine": machine, "names": list(names), **about})
    place = cache_folder() / "fastest" / f"{stored}-{kind}"
    with suppress(OSError):
        if (known := place.read_text("ascii")) in names:
            return known
    if measure is None:
        return None
    chosen = measure()
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(place, chosen)
    return chosen


def measured_fastest(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 0.8,
    clock: Clock | None = None,
) -> str:
    """Call contenders in turns for so long; return the name of the one with the fastest call."""
    # On a busy machine engines have one thread each, and its time says more than the clock.
    clock = clock or (perf_counter if idle_cpus() > 1 else process_time)
    best = dict.fromkeys(calls, float("inf"))
    end = clock() + seconds
    for call in calls.values():
        call()  # the first call prepares memory
    while True:
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
        if clock() >= end:
            return min(best, key=lambda name: best[name])
