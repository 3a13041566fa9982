"""Lists of ids of different lengths as one padded array."""

from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from regard.data.corpus import Corpus
from regard.errors import InputError


def pad(lists: Sequence[Sequence[int] | np.ndarray], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids with `pad_id` behind the shorter lists (list × token), and how long each list is."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    padded = np.full((len(lists), int(lengths.max(initial=0))), pad_id, np.int64)
    for row, ids in zip(padded, lists, strict=True):
        row[: len(ids)] = ids
    return padded, lengths


def collate(
    corpus: Corpus, examples: Sequence[SupportsIndex] | np.ndarray, *, pad_ids: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ids and lengths of these examples, for each field of the corpus."""
    if len(pad_ids) != len(corpus.fields):
        raise InputError(
            f"This corpus has the fields {', '.join(corpus.names)}: {len(corpus.fields)} pad ids "
            f"are needed, {len(pad_ids)} were given."
        )
    return [
        pad([field[number] for number in examples], pad_id)
        for field, pad_id in zip(corpus.fields, pad_ids, strict=True)
    ]
