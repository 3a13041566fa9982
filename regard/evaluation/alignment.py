"""Word alignments: from attention between tokens to links between words, and their error rate."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.generation.translator import TranslatedPart, Translation
from regard.text.pieces import Piece
from regard.text.tokenizer import Tokenizer

Link = tuple[int, int]  # index of a source word and of a target word


@dataclass(frozen=True)
class Alignment:
    """Links between the words of a source and of its translation."""

    source_words: list[str]
    target_words: list[str]
    soft: list[tuple[int, int, float]]
    """Source word, target word, and the share of the target word's attention on it."""

    @property
    def links(self) -> list[Link]:
        """The source word with the largest weight for each target word."""
        best: dict[int, tuple[float, int]] = {}
        for source, target, weight in self.soft:
            best[target] = max(best.get(target, (0.0, 0)), (weight, -source))
        return sorted((-negative, target) for target, (_, negative) in best.items())

    def pharaoh(self) -> str:
        """Return the links in the Pharaoh format, such as 0-0 1-2."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def to_json(self) -> dict[str, Any]:
        """Return words, hard links and soft links."""
        return {
            "source_words": self.source_words,
            "target_words": self.target_words,
            "hard": self.pharaoh(),
            "soft": [[source, target, round(weight, 4)] for source, target, weight in self.soft],
        }


@dataclass(frozen=True)
class WordIndices:
    """Index of the word of each token of a pair; None for special tokens."""

    source: list[int | None]
    target: list[int | None]  # without start and end
    n_source: int
    n_target: int


def alignment_of(
    translation: Translation, tables: Iterable[np.ndarray], tokenizers: tuple[Tokenizer, Tokenizer]
) -> Alignment:
    """Align a line by the weights (target × source token) of its parts; copied ones have none."""
    remaining = iter(tables)
    soft: list[tuple[int, int, float]] = []
    first_source = first_target = 0
    for part in translation.parts:
        if part.copied:
            n_source = n_target = len(part.source.split())
            found = [(i, i, 1.0) for i in range(n_source)]
        else:
            words = word_indices(part, *tokenizers)
            weights = word_weights(next(remaining), words)
            cells = np.argwhere(weights >= 0.01).tolist()
            found = [(source, target, float(weights[target, source])) for target, source in cells]
            n_source, n_target = words.n_source, words.n_target
        soft += [(first_source + s, first_target + t, weight) for s, t, weight in found]
        # A word that was split belongs to both parts.
        first_source += n_source - (not part.separator and n_source > 0)
        first_target += n_target - (not part.separator and n_target > 0)
    line = "".join(part.source + part.separator for part in translation.parts)
    return Alignment(line.split(), translation.text.split(), soft)


def word_indices(part: TranslatedPart, tokenizer: Tokenizer, target: Tokenizer) -> WordIndices:
    """Return the words of a part's tokens."""
    pieces, text = tokenizer.pieces(part.source), part.source
    if [piece.id for piece in pieces] != part.source_ids:  # the text names special tokens
        pieces, text = tokenizer.pieces_of(part.source_ids), tokenizer.decode(part.source_ids)
    return WordIndices(
        word_index_of_pieces(pieces, text),
        word_index_of_pieces(target.pieces_of(part.ids), part.text),
        len(part.source.split()),
        len(part.text.split()),
    )


def word_index_of_pieces(pieces: Sequence[Piece], text: str) -> list[int | None]:
    """Return the index of the whitespace-separated word of each piece."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    found: list[int | None] = []
    for piece in pieces:
        first = piece.end - len(text[piece.start : piece.end].lstrip())
        word = min(bisect_right(ends, first), len(ends) - 1) if ends else None
        found.append(None if piece.word is None else word)
    return found


def word_weights(weights: np.ndarray, words: WordIndices) -> np.ndarray:
    """Return weights between words, … × target × source; rows sum to 1, or to 0 if empty."""
    by_source = weights[..., : len(words.source)] @ membership(words.source, words.n_source)
    by_target = membership(words.target, words.n_target).T
    totals = by_target @ by_source[..., : len(words.target), :]
    mass = totals.sum(axis=-1, keepdims=True)
    return np.divide(totals, mass, out=np.zeros_like(totals), where=mass > 0)


def membership(indices: Sequence[int | None], count: int) -> np.ndarray:
    """Return the token × word matrix that sums tokens by word; special tokens are left out."""
    table = np.zeros((len(indices), count))
    for i, index in enumerate(indices):
        if index is not None and index < count:
            table[i, index] = 1
    return table


@dataclass(frozen=True)
class Gold:
    """The known links of a pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # includes the sure links
    known_targets: frozenset[int] | None = None
    """Target words whose links are known; None means all."""

    @classmethod
    def only(cls, sure: Iterable[Link]) -> "Gold":
        """Return links that are sure, without knowledge of the other target words."""
        links = frozenset(sure)
        return cls(links, links, frozenset(target for _, target in links))


def error_rate(found: Iterable[tuple[Iterable[Link], Gold]]) -> float:
    """Return the alignment error rate (Och and Ney 2003): 0 if all sure and only possible links."""
    n_found = n_sure = right = 0
    for links, gold in found:
        known = gold.known_targets
        counted = {link for link in links if known is None or link[1] in known}
        n_found += len(counted)
        n_sure += len(gold.sure)
        right += len(counted & gold.sure) + len(counted & gold.possible)
    return 1 - right / (n_found + n_sure) if n_found + n_sure else 0.0
