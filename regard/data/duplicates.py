"""Which rows were seen before, in eight bytes for each different row."""

import hashlib
from collections.abc import Sequence

import numpy as np


def hash_of(texts: Sequence[str]) -> int:
    """Sixty-four bits that tell one row from another.

    Among ten million rows the chance that any two different ones share them is three in a million.
    """
    joined = "\x00".join(texts).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "little")


class Seen:
    """Hashes seen so far, as sorted runs that are merged when they grow alike in size."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """For each hash, whether it was there before; after this, all of them are."""
        values = np.array(hashes, dtype=np.uint64)
        different, first = np.unique(values, return_index=True)
        known = np.zeros(len(different), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, different)
            known |= run[np.minimum(places, len(run) - 1)] == different
        repeated = np.ones(len(values), dtype=bool)
        repeated[first[~known]] = False
        self._keep(different[~known])
        return repeated

    def _keep(self, fresh: np.ndarray) -> None:
        if len(fresh):
            self._runs.append(fresh)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)
