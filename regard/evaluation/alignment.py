"""The heads that align best, found on pairs whose links are known, and alignments by them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.generation.translator import TranslatedPart, Translation
from regard.text.pieces import Piece
from regard.text.tokenizer import Tokenizer

Link = tuple[int, int]
"""A word of the source and a word of the target."""
_SLIGHT = 0.01
"""Soft links below this are left out."""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Alignment:
    """Which words belong together."""

    source_words: list[str]
    target_words: list[str]
    soft: list[tuple[int, int, float]]
    """Source word, target word, and how much of the target word's attention it has; at most 1 for
    each target word in all."""

    @property
    def links(self) -> list[Link]:
        """For each target word the source word that it attends to most."""
        best: dict[int, tuple[float, int]] = {}
        for source, target, weight in self.soft:
            best[target] = max(best.get(target, (0.0, 0)), (weight, -source))
        return sorted((-negative, target) for target, (_, negative) in best.items())

    def pharaoh(self) -> str:
        """The links as other programs read them, such as 0-0 1-2."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def to_json(self) -> dict[str, Any]:
        """Words, hard and soft links."""
        return {
            "source_words": self.source_words,
            "target_words": self.target_words,
            "hard": self.pharaoh(),
            "soft": [[source, target, round(weight, 4)] for source, target, weight in self.soft],
        }


@dataclass(frozen=True)
class Grouping:
    """The word of each token of a pair; None for special tokens."""

    source: list[int | None]
    target: list[int | None]
    """Without start and end."""
    n_source: int
    n_target: int


def alignment_of(
    translation: Translation, tables: Iterable[np.ndarray], tokenizers: tuple[Tokenizer, Tokenizer]
) -> Alignment:
    """The alignment of a line from the weights (target token × source token) of its parts.

    Parts that were copied have no table: their words are aligned one by one.
    """
    ready = iter(tables)
    soft: list[tuple[int, int, float]] = []
    first_source = first_target = 0
    for part in translation.parts:
        if part.copied:
            n = len(part.source.split())
            found = [(i, i, 1.0) for i in range(n)]
            counts = n, n
        else:
            grouping = group_tokens(part, *tokenizers)
            found = _strong(between_words(next(ready), grouping))
            counts = grouping.n_source, grouping.n_target
        soft += [(first_source + s, first_target + t, weight) for s, t, weight in found]
        # A word that was split belongs to both parts.
        first_source += counts[0] - (not part.separator and counts[0] > 0)
        first_target += counts[1] - (not part.separator and counts[1] > 0)
    line = "".join(part.source + part.separator for part in translation.parts)
    return Alignment(line.split(), translation.text.split(), soft)


def group_tokens(part: TranslatedPart, tokenizer: Tokenizer, target: Tokenizer) -> Grouping:
    """The words of a part's tokens."""
    pieces, text = tokenizer.pieces(part.source), part.source
    if [piece.id for piece in pieces] != part.source_ids:  # names of special tokens in the text
        pieces, text = tokenizer.pieces_of(part.source_ids), tokenizer.decode(part.source_ids)
    return Grouping(
        numbers_of(pieces, text),
        numbers_of(target.pieces_of(part.ids), part.text),
        len(part.source.split()),
        len(part.text.split()),
    )


def numbers_of(pieces: Sequence[Piece], text: str) -> list[int | None]:
    """The number of the word between spaces that each piece belongs to."""
    ends = [match.end() for match in _WORD.finditer(text)]
    return [None if piece.word is None else _word_at(ends, piece, text) for piece in pieces]


def _word_at(ends: list[int], piece: Piece, text: str) -> int | None:
    covered = text[piece.start : piece.end]
    first = piece.start + len(covered) - len(covered.lstrip())
    return min(bisect_right(ends, first), len(ends) - 1) if ends else None


def between_words(weights: np.ndarray, grouping: Grouping) -> np.ndarray:
    """Weights between words, … × target × source; each row sums to 1 if anything is in it."""
    received = _sums(weights, grouping.source, grouping.n_source)
    sent = np.moveaxis(received, -2, -1)
    totals = np.moveaxis(_sums(sent, grouping.target, grouping.n_target), -2, -1)
    mass = totals.sum(axis=-1, keepdims=True)
    return np.divide(totals, mass, out=np.zeros_like(totals), where=mass > 0)


def _sums(weights: np.ndarray, numbers: Sequence[int | None], count: int) -> np.ndarray:
    """Sums over the last axis, by the numbers of its entries; those without one are left out."""
    table = np.zeros((len(numbers), count), weights.dtype)
    for i, number in enumerate(numbers):
        if number is not None and number < count:
            table[i, number] = 1
    return weights[..., : len(numbers)] @ table


def _strong(table: np.ndarray) -> Iterator[tuple[int, int, float]]:
    for target, source in np.argwhere(table >= _SLIGHT).tolist():
        yield source, target, float(table[target, source])


@dataclass(frozen=True)
class Gold:
    """What is known of a pair's true alignment."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """With the sure ones."""
    asked: frozenset[int] | None = None
    """The target words of which something is known; all of them if None."""


def error_rate(found: Iterable[tuple[Iterable[Link], Gold]]) -> float:
    """Alignment error rate (Och and Ney 2003): 0 if all sure and only possible links are found."""
    n_found = n_sure = right = 0
    for links, gold in found:
        counted = {link for link in links if gold.asked is None or link[1] in gold.asked}
        n_found += len(counted)
        n_sure += len(gold.sure)
        right += len(counted & gold.sure) + len(counted & gold.possible)
    return 1 - right / (n_found + n_sure) if n_found + n_sure else 0.0
