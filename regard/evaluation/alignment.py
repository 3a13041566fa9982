"""Word alignments: from attention between tokens to links between words, and their error rate.

`Lexicon` (IBM Model 1) is learned from sentence pairs, for shortlists and for sure links.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from regard.generation.ctranslate2_engine import Shortlist
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


Words = Sequence[str]
_MAX_PAIRS = 50_000  # pairs that a shortlist is learned from: more would change little


class Lexicon:
    """Translation probabilities of words (IBM Model 1, Brown et al. 1993).

    Only words that occur together in some sentence pair have a probability above 0.
    """

    def __init__(self, pairs: Sequence[tuple[Words, Words]]) -> None:
        source_ids, self._sources = _numbered([source for source, _ in pairs])
        target_ids, self._targets = _numbered([target for _, target in pairs])
        cells = [
            (np.repeat(s, len(t)), np.tile(t, len(s)), np.tile(np.arange(len(t)), len(s)))
            for s, t in zip(source_ids, target_ids, strict=True)
        ]
        first = np.cumsum([0, *(len(t) for t in target_ids)])
        self._source, target, place = (
            np.concatenate([cell[i] for cell in cells] or [np.zeros(0, int)]) for i in range(3)
        )
        sizes = [len(cell[0]) for cell in cells]
        self._place = place + np.repeat(first[:-1], sizes)
        self._bounds = np.cumsum([0, *sizes])
        self._shapes = [(len(s), len(t)) for s, t in zip(source_ids, target_ids, strict=True)]
        width = int(target.max(initial=0)) + 1
        self._kind, self._cell = np.unique(self._source * width + target, return_inverse=True)
        self.table = np.ones(len(self._kind))
        self._owner, self._made = self._kind // width, self._kind % width

    def learn(self, rounds: int = 5) -> "Lexicon":
        """Run expectation maximization, starting from equal probabilities."""
        for _ in range(rounds):
            counts = np.bincount(self._cell, self.posteriors(), minlength=len(self._kind))
            totals = np.bincount(self._owner, counts)
            self.table = counts / np.maximum(totals[self._owner], 1e-300)
        return self

    def likely(self, count: int, *, least: float = 1e-4) -> dict[str, list[str]]:
        """Return the `count` most probable target words of each source word, best first."""
        found: dict[str, list[str]] = {word: [] for word in self._sources}
        order = np.argsort(-self.table, kind="stable")
        for cell in order[self.table[order] >= least].tolist():
            words = found[self._sources[self._owner[cell]]]
            if len(words) < count:
                words.append(self._targets[self._made[cell]])
        return found

    def posteriors(self) -> np.ndarray:
        """Return the probability that each source word of a sentence explains each target word."""
        joint = self.table[self._cell]
        totals = np.bincount(self._place, joint) if len(joint) else joint
        return joint / np.maximum(totals[self._place], 1e-300)

    def matrices(self) -> list[np.ndarray]:
        """Return the posteriors of each sentence, source × target."""
        flat = self.posteriors()
        parts = zip(self._bounds[:-1], self._bounds[1:], self._shapes, strict=True)
        return [flat[start:end].reshape(shape) for start, end, shape in parts]


def learn_shortlist(
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    *,
    per_token: int = 50,
    frequent: int = 100,
) -> Shortlist:
    """Learn the most probable target tokens of each source token.

    Args:
        per_token: maximum number of target tokens for each source token.
        frequent: number of the most frequent target tokens that are always allowed.
    """
    texts = list(islice(pairs, _MAX_PAIRS))
    sources, targets = (
        tokenizer.encode_batch([pair[side] for pair in texts], specials=False, literal=True)
        for side, tokenizer in enumerate((source, target))
    )
    named = [([*map(str, s)], [*map(str, t)]) for s, t in zip(sources, targets, strict=True)]
    counts = Counter(id for ids in targets for id in ids)
    special = {id for id in target.special_ids if id != target.unknown_id}
    always = sorted({id for id, _ in counts.most_common(frequent)} | special)
    likely = Lexicon(named).learn().likely(per_token)
    words = {int(word): tuple(sorted(map(int, found))) for word, found in likely.items()}
    return Shortlist(tuple(always), words)


def dictionary_links(pairs: Sequence[tuple[Words, Words]]) -> list[Gold]:
    """Return the links of each pair that dictionaries in both directions are sure of.

    Each word must be the most probable translation of the other, with a probability above one
    half, and occur in more than one sentence: few links, but correct ones.
    """
    plain = [(_normalized(source), _normalized(target)) for source, target in pairs]
    forward = Lexicon(plain).learn().matrices()
    backward = Lexicon([(target, source) for source, target in plain]).learn().matrices()
    counts = [Counter(word for pair in plain for word in set(pair[side])) for side in (0, 1)]
    return [
        Gold.only(_sure_links(there, back.T, pair, counts))
        for there, back, pair in zip(forward, backward, plain, strict=True)
    ]


def _sure_links(
    forward: np.ndarray, backward: np.ndarray, pair: tuple[Words, Words], counts: list[Counter[str]]
) -> Iterable[tuple[int, int]]:
    source, target = pair
    best: list[int] = forward.argmax(axis=0).tolist() if forward.size else []
    for t, s in enumerate(best):
        frequent = min(counts[0][source[s]], counts[1][target[t]]) >= 2
        probable = min(forward[s, t], backward[s, t]) > 0.5
        if frequent and probable and int(backward[s].argmax()) == t:
            yield s, t


def _normalized(words: Words) -> list[str]:
    return [word.strip(".,;:!?\"'()[]«»„“”‘’…-–").casefold() or word for word in words]


def _numbered(texts: Sequence[Words]) -> tuple[list[np.ndarray], list[str]]:
    """Return each text as indices into a list of words, and that list."""
    ids: dict[str, int] = {}
    numbers = [[ids.setdefault(word, len(ids)) for word in text] for text in texts]
    return [np.array(one, dtype=np.int64) for one in numbers], list(ids)
