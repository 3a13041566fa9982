"""Sentences to translate: Multi30k's where they are at hand, else made-up ones of like length."""

import random
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from regard.errors import FileError
from regard.text.files import read_lines
from regard.training.sources import find_data

_TEST, _TRAINING = "multi30k/test_2016_flickr.en.gz", "multi30k/train.{}.gz"
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ra", "se", "ti", "un", "vo")


def sentences(count: int) -> tuple[list[str], str]:
    """So many sentences, and where they are from."""
    try:
        lines = [line.decode() for line in islice(read_lines(str(find_data(_TEST))), count)]
    except FileError:
        lines = []
    if len(lines) == count:
        return lines, "Multi30k, test_2016_flickr"
    return list(islice(_made_up(), count)), "made up"


def texts_to_learn_from(count: int = 5000) -> Iterable[str]:
    """Texts for a tokenizer that cuts these sentences as a trained one would."""
    pairs = pairs_to_learn_from(count)
    return chain.from_iterable(pairs) if pairs else islice(_made_up(), count)


def pairs_to_learn_from(count: int = 10_000) -> list[tuple[str, str]]:
    """Sentences of Multi30k's training data and their translations; none where it is not."""
    try:
        places = [find_data(_TRAINING.format(side)) for side in ("en", "de")]
    except FileError:
        return []
    sides = ((line.decode() for line in islice(read_lines(str(x)), count)) for x in places)
    return list(zip(*sides, strict=True))


def _made_up() -> Iterator[str]:
    """Sentences of 5 to 22 words, some of which are frequent and most of which are rare."""
    chance = random.Random(0)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(6000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    while True:
        yield " ".join(chance.choices(words, weights, k=chance.randint(5, 22))) + " ."
