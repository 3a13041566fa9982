"""How many processors there are for us."""

import os


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
