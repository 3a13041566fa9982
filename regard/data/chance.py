"""Random numbers that are a function of seed, epoch and example, so no order or batch matters."""

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)


def draws(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each example (example × count), always the same ones.

    Splitmix64 (Steele, Lea & Flood 2014) on the place of each number.
    """
    # arrays of one, because single numbers warn when they run over, which is meant here
    start, turn = np.array([[seed % 2**64], [epoch % 2**64]], np.uint64)
    key = _mixed(_mixed(start) + turn * _STEP)
    rows = _mixed(key + np.asarray(examples).astype(np.uint64) * _STEP)
    places = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    bits = _mixed(rows[:, None] + places[None, :])
    return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
