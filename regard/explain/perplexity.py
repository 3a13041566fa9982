"""How surprised a model is by translations that people made."""

from collections.abc import Sequence
from math import exp

from regard.bundle.bundle import Bundle
from regard.engine.translator import Part
from regard.errors import InputError
from regard.explain.crossing import token_log_probs


def perplexity(bundle: Bundle, parts: Sequence[Part]) -> float:
    """The inverse of the mean (geometric) probability of a reference's token, the end included.

    Only models with the same target vocabulary can be compared by it.
    """
    total, count = 0.0, 0
    for table in token_log_probs(bundle, parts):
        total += float(table.sum())
        count += len(table)
    if not count:
        raise InputError("there is no reference to be surprised by.")
    return exp(min(-total / count, 700.0))  # what is larger has no float
