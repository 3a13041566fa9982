"""Sentences to translate: Multi30k's where they are at hand, else made-up ones of like length."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice

from regard.errors import FileError
from regard.text.files import read_lines
from regard.training.sources import find_data

_FILES = ("multi30k/test_2016_flickr.en.gz", "multi30k/train.en.gz", "multi30k/val.en.gz")
_SYLLABLES = ("ba", "do", "ki", "lu", "me", "no", "pa", "ra", "se", "ti", "un", "vo")


def sentences(count: int) -> tuple[list[str], str]:
    """So many sentences, and where they are from."""
    try:
        lines = [line.decode() for line in islice(read_lines(str(find_data(_FILES[0]))), count)]
    except FileError:
        lines = []
    if len(lines) == count:
        return lines, "Multi30k, test_2016_flickr"
    return list(islice(_made_up(), count)), "made up"


def texts_to_learn_from(count: int = 5000) -> Iterable[str]:
    """Texts for a tokenizer that cuts these sentences as a trained one would."""
    try:
        places = [
            find_data(name.replace(".en.", f".{side}."))
            for name in _FILES[1:2]
            for side in ("en", "de")
        ]
    except FileError:
        return islice(_made_up(), count)
    return (line.decode() for place in places for line in islice(read_lines(str(place)), count))


def _made_up() -> Iterator[str]:
    """Sentences of 5 to 22 words, some of which are frequent and most of which are rare."""
    chance = random.Random(0)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(6000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    while True:
        yield " ".join(chance.choices(words, weights, k=chance.randint(5, 22))) + " ."
