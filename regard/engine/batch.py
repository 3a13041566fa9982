"""Which sentences are translated together: those of like length, as many as the budget holds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batches_by_length(
    lengths: Sequence[int],
    *,
    tokens: int,
    rows: int,
    group: Callable[[int], int] = lambda length: 0,
) -> list[list[int]]:
    """Indices in batches of at most `rows` sentences and `tokens` tokens, padding included.

    The longest come first, so that the last batches are short ones and all workers end together.
    A sentence longer than the budget has a batch of its own. Sentences whose lengths are of
    different groups are never in one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[batches[-1][0]] if batches else 0
        full = not batches or len(batches[-1]) >= rows or group(longest) != group(lengths[index])
        if full or (len(batches[-1]) + 1) * longest > tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def rows_for(n_sentences: int, *, most: int, workers: int) -> int:
    """How many sentences a batch shall have, so that every worker has one if there are few."""
    return max(1, min(most, -(-n_sentences // workers)))


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, so that memory does not grow with how many there are."""
    stream = iter(items)
    while window := list(islice(stream, size)):
        yield window
