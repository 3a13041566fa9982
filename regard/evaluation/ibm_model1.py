"""Dictionaries learned from sentence pairs (IBM Model 1): shortlists and sure word links."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from regard.evaluation.alignment import Gold
from regard.generation.vocabulary_shortlist import Shortlist
from regard.text.tokenizer import Tokenizer

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
