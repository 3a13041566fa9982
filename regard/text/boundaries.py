"""Where words begin and end, in any script, whatever the tokenizer thinks."""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence

_INSIDE = "'’-‐·."
"""Marks that belong to a word when letters or digits stand on both sides: don't, e-mail, 3.5."""


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every word; a mark that is no part of a word stands alone."""
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        end = _end_of_word(text, at)
        if not text[at].isspace():
            spans.append((at, end))
        at = end
    return spans


def _end_of_word(text: str, at: int) -> int:
    end = at + 1
    if text[at].isspace():
        return end
    wordy = _is_wordy(text[at])
    while end < len(text):
        joined = text[end - 1] == "\u200d" and not text[end].isspace()  # two emoji made one
        if joined or _is_attached(text[end]) or (wordy and _is_wordy(text[end])):
            end += 1
        elif wordy and text[end] in _INSIDE and _is_wordy(text[end + 1 : end + 2]):
            end += 2
        else:
            break
    return end


def _is_wordy(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_attached(character: str) -> bool:
    """Accents, vowel signs, variation selectors and invisible joiners go with what they follow."""
    if character.isascii():
        return False
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf", "Sk")


def word_at(words: Sequence[tuple[int, int]], start: int) -> int | None:
    """The number of the word that the character at `start` belongs to.

    Characters between words go with the word that follows; after the last word, with that one.
    """
    if not words:
        return None
    after = bisect_right(words, start, key=lambda word: word[0])
    if after and start < words[after - 1][1]:  # start lies inside a word
        return after - 1
    return min(after, len(words) - 1)
