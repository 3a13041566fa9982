"""What each form of attention costs, by formula: multiplications and numbers held at once.

Counted for one layer and one sequence of `n` tokens of width `d`, without the projections that all
forms share; the sizes of the approximate forms are those below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2

RADIUS, SHORT, FEATURES, BUCKET, ROUNDS, HEADS = 128, 256, 256, 64, 4, 8


@dataclass(frozen=True)
class Form:
    """One way to attend, or what it is compared with."""

    name: str
    products: Callable[[int, int], float]
    """Multiplications for length n and width d."""
    numbers: Callable[[int, int], float]
    """Numbers held between its steps, beside queries, keys, values and output."""


FORMS = (
    Form("exact, n² d", lambda n, d: 2 * n * n * d, lambda n, d: HEADS * n * n),
    Form("exact, fused", lambda n, d: 2 * n * n * d, lambda n, d: HEADS * n),
    Form(
        f"window, radius {RADIUS}",
        lambda n, d: 2 * n * min(n, 2 * RADIUS + 1) * d,
        lambda n, d: HEADS * n * min(n, 2 * RADIUS + 1),
    ),
    Form(
        f"Linformer, k = {SHORT}",
        lambda n, d: 4 * n * min(n, SHORT) * d,
        lambda n, d: HEADS * n * min(n, SHORT) + 2 * min(n, SHORT) * d,
    ),
    Form(
        f"Performer, {FEATURES} features",
        lambda n, d: 4 * n * FEATURES * d,
        lambda n, d: 2 * HEADS * n * FEATURES + FEATURES * d,
    ),
    Form(
        f"Reformer, {ROUNDS} rounds",
        lambda n, d: ROUNDS * (4 * n * min(n, BUCKET) * d + n * ceil(log2(n))),
        lambda n, d: ROUNDS * HEADS * n * 2 * min(n, BUCKET),
    ),
    Form(
        "efficient, n d²",
        lambda n, d: 2 * n * d * d / HEADS,
        lambda n, d: 2 * n * d + d * d / HEADS,
    ),
    Form("recurrent, n d²", lambda n, d: n * d * d, lambda n, d: d),
)
