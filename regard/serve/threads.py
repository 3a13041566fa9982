"""How many threads a computation gets: one if it is small, all if it is large.

Threads that wait for each other after every small product lose more than they gain. On a machine
that does other work, too, a translator of three million weights took twenty times as long on two
threads as on one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

LITTLE = 2e9
"""Multiplications that one thread does about as fast as several."""


@contextmanager
def threads_for(multiplications: float) -> Iterator[None]:
    """Compute inside the block with one thread, if it is only so much."""
    before = torch.get_num_threads()
    few = multiplications < LITTLE and before > 1
    if few:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if few:
            torch.set_num_threads(before)
