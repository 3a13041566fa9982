"""TODO."""

from collections.abc import Sequence

import numpy as np

from regard.evaluation.alignment import Gold, Grouping
from regard.evaluation.cross_attention import token_log_probs
from regard.generation.translator import TranslatedPart
from regard.model import Model

_LOSS = 1.0
"""By how much the logarithm of a word's probability must fall …"""


_AHEAD = 2.0
"""… and how many times as much as for the next word of the source."""


def erasure_gold(model: Model, part: TranslatedPart, grouping: Grouping) -> Gold:
    """The links of a translation that leaving out a word proves."""
    if grouping.n_source < 2 or not grouping.n_target:
        return Gold(frozenset(), frozenset(), frozenset())
    changed = [part, *(_without(part, grouping, word) for word in range(grouping.n_source))]
    tables = np.stack(list(token_log_probs(model, changed)))[:, :-1]
    losses = _by_word(tables[0] - tables[1:], grouping)
    sure = frozenset(
        (int(losses[:, word].argmax()), word)
        for word in range(grouping.n_target)
        if _is_clear(losses[:, word])
    )
    return Gold(sure, sure, frozenset(word for _, word in sure))


def _without(part: TranslatedPart, grouping: Grouping, word: int) -> TranslatedPart:
    pairs = zip(part.source_ids, grouping.source, strict=True)
    return TranslatedPart(part.source, part.text, [id for id, number in pairs if number != word], part.ids)


def _by_word(losses: np.ndarray, grouping: Grouping) -> np.ndarray:
    """Sums over the tokens of each target word, source × target."""
    table = np.zeros((len(losses), grouping.n_target))
    for i, number in enumerate(grouping.target):
        if number is not None:
            table[:, number] += losses[:, i]
    return table


def _is_clear(losses: Sequence[float] | np.ndarray) -> bool:
    second, best = np.sort(losses)[-2:]
    return bool(best > _LOSS and best > _AHEAD * second)
