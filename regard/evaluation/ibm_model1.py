"""Links that a model shows without looking at its attention: what a word is lost without.

Where nobody has aligned anything, each word of the source is left out in turn; a word of the
translation that becomes improbable without exactly one of them comes from that one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from regard.evaluation.alignment import Gold
from regard.generation.vocabulary_shortlist import Shortlist
from regard.text.tokenizer import Tokenizer

_PAIRS = 50_000
"""Pairs that are looked at: a dictionary learns the same from more, and its tables grow."""


def learn_shortlist(
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    *,
    per_token: int = 50,
    frequent: int = 100,
) -> Shortlist:
    """What each source token may become: the likeliest by a dictionary (IBM Model 1).

    Args:
        per_token: at most so many for each token of the source.
        frequent: so many of the most frequent tokens may always be written.
    """
    texts = list(islice(pairs, _PAIRS))
    sources = source.encode_batch([text for text, _ in texts], specials=False, literal=True)
    targets = target.encode_batch([text for _, text in texts], specials=False, literal=True)
    named = [(_names(s), _names(t)) for s, t in zip(sources, targets, strict=True)]
    often = Counter(id for ids in targets for id in ids)
    special = {id for id in target.special_ids if id != target.unknown_id}
    always = sorted({id for id, _ in often.most_common(frequent)} | special)
    likely = Lexicon(named).learn().likely(per_token)
    words = {int(word): sorted(map(int, found)) for word, found in likely.items()}
    return Shortlist(tuple(always), {id: tuple(ids) for id, ids in words.items()})


def _names(ids: Sequence[int]) -> list[str]:
    return [str(id) for id in ids]


Words = Sequence[str]
_ROUNDS = 5
_SURE = 0.5
_OFTEN = 2
_MARKS = ".,;:!?\"'()[]«»„“”‘’…-–"


class Lexicon:
    """How probably each source word becomes each target word (IBM Model 1, Brown et al. 1993).

    Only pairs that stand in some sentence together have a probability above 0.
    """

    def __init__(self, pairs: Sequence[tuple[Words, Words]]) -> None:
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        (source_ids, self._sources), (target_ids, self._targets) = map(
            _numbered, (sources, targets)
        )
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
        """Which word of the whole text a cell may explain."""
        self._bounds = np.cumsum([0, *sizes])
        self._shapes = [(len(s), len(t)) for s, t in zip(source_ids, target_ids, strict=True)]
        width = int(target.max(initial=0)) + 1
        self._kind, self._cell = np.unique(self._source * width + target, return_inverse=True)
        self.table = np.ones(len(self._kind))
        self._owner, self._made = self._kind // width, self._kind % width

    def learn(self, rounds: int = _ROUNDS) -> "Lexicon":
        """Expectation maximization, from equal probabilities on."""
        for _ in range(rounds):
            counts = np.bincount(self._cell, self.posteriors(), minlength=len(self._kind))
            totals = np.bincount(self._owner, counts)
            self.table = counts / np.maximum(totals[self._owner], 1e-300)
        return self

    def likely(self, count: int, *, least: float = 1e-4) -> dict[str, list[str]]:
        """For each source word the `count` likeliest target words, the best first."""
        found: dict[str, list[str]] = {word: [] for word in self._sources}
        order = np.argsort(-self.table, kind="stable")
        for cell in order[self.table[order] >= least].tolist():
            words = found[self._sources[self._owner[cell]]]
            if len(words) < count:
                words.append(self._targets[self._made[cell]])
        return found

    def posteriors(self) -> np.ndarray:
        """How probably each target word was made by each source word of its sentence."""
        chances = self.table[self._cell]
        totals = np.bincount(self._place, chances) if len(chances) else chances
        return chances / np.maximum(totals[self._place], 1e-300)

    def matrices(self) -> list[np.ndarray]:
        """The posteriors of each sentence, source × target."""
        flat = self.posteriors()
        parts = zip(self._bounds[:-1], self._bounds[1:], self._shapes, strict=True)
        return [flat[start:end].reshape(shape) for start, end, shape in parts]


def dictionary_gold(pairs: Sequence[tuple[Words, Words]]) -> list[Gold]:
    """For each pair the links of which a dictionary in either direction is sure.

    Both must find the other word the likeliest, with more than even chances, and each word must
    be there more than once: few links, but true ones.
    """
    plain = [(list(map(_bare, source)), list(map(_bare, target))) for source, target in pairs]
    there = Lexicon(plain).learn().matrices()
    back = Lexicon([(target, source) for source, target in plain]).learn().matrices()
    often = [Counter(word for pair in plain for word in set(pair[side])) for side in (0, 1)]
    return [
        _agreed(forward, backward.T, source, target, often)
        for forward, backward, (source, target) in zip(there, back, plain, strict=True)
    ]


def _agreed(
    forward: np.ndarray, backward: np.ndarray, source: Words, target: Words, often: list[Counter]
) -> Gold:
    if not forward.size:
        return Gold(frozenset(), frozenset(), frozenset())
    sure = set()
    for t, s in enumerate(forward.argmax(axis=0).tolist()):
        known = often[0][source[s]] >= _OFTEN and often[1][target[t]] >= _OFTEN
        likely = min(forward[s, t], backward[s, t]) > _SURE
        if known and likely and int(backward[s].argmax()) == t:
            sure.add((s, t))
    return Gold(frozenset(sure), frozenset(sure), frozenset(t for _, t in sure))


def _bare(word: str) -> str:
    return word.strip(_MARKS).casefold() or word


def _numbered(texts: Sequence[Words]) -> tuple[list[np.ndarray], list[str]]:
    """Each text in numbers, and the words that these stand for."""
    ids: dict[str, int] = {}
    numbers = [
        np.array([ids.setdefault(word, len(ids)) for word in text], dtype=np.int64)
        for text in texts
    ]
    return numbers, list(ids)
