"""From pieces to words: which pieces make up which word, and weights between words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import InputError
from regard.text.pieces import CONTINUED, Piece


@dataclass(frozen=True, slots=True)
class Word:
    """One word or punctuation mark, or one special token, with the pieces it is made of."""

    text: str
    pieces: range
    special: bool


def words_of(pieces: Sequence[Piece]) -> list[Word]:
    """Every word with its pieces, in order; special tokens stand for themselves."""
    groups: list[list[int]] = []
    for number, piece in enumerate(pieces):
        joins = number and piece.word is not None and piece.word == pieces[number - 1].word
        if joins:
            groups[-1].append(number)
        else:
            groups.append([number])
    return [_word([pieces[n] for n in group], group[0]) for group in groups]


def _word(members: list[Piece], first: int) -> Word:
    text = "".join(piece.text.removeprefix(CONTINUED) for piece in members)
    return Word(text.strip() or text, range(first, first + len(members)), members[0].word is None)


def word_weights(weights: np.ndarray, queries: Sequence[Word], keys: Sequence[Word]) -> np.ndarray:
    """Weights between words from weights between pieces (… × query × key).

    What a word receives is the sum over its pieces; what it sends is the mean over its pieces,
    so every row still sums to what its rows summed to.
    """
    expected = (_count(queries), _count(keys))
    if weights.shape[-2:] != expected:
        raise InputError(
            f"Weights of {weights.shape[-2]} queries and {weights.shape[-1]} keys do not fit words "
            f"made of {expected[0]} and {expected[1]} pieces."
        )
    if 0 in expected:
        return np.zeros((*weights.shape[:-2], len(queries), len(keys)), weights.dtype)
    received = np.add.reduceat(weights, [word.pieces.start for word in keys], axis=-1)
    sent = np.add.reduceat(received, [word.pieces.start for word in queries], axis=-2)
    return sent / np.array([len(word.pieces) for word in queries])[:, None]


def _count(words: Sequence[Word]) -> int:
    return sum(len(word.pieces) for word in words)
