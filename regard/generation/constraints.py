"""Beam search in which given words must appear.

Every sequence knows how much of the given phrases it has written. The beam is shared out among
those that have written equally much, so that sequences with more of them, which are less probable
at first, are not crowded out (dynamic beam allocation, Post and Vilar 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch

from regard.errors import InputError
from regard.generation.beam import BeamOptions
from regard.generation.search import Hypothesis
from regard.generation.stepper import Stepper, without

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How much of the phrases a sequence has written."""

    phrases: tuple[Phrase, ...]
    met: frozenset[int] = frozenset()
    current: int | None = None
    """The phrase it is in the middle of, and `inside` tokens of it written."""
    inside: int = 0

    @property
    def tokens_met(self) -> int:
        """How many tokens of the phrases are written."""
        return sum(len(self.phrases[i]) for i in self.met) + self.inside

    @property
    def complete(self) -> bool:
        """Whether every phrase is written."""
        return len(self.met) == len(self.phrases)

    def wanted(self) -> list[int]:
        """The tokens that would bring it further."""
        if self.current is not None:
            return [self.phrases[self.current][self.inside]]
        return [phrase[0] for i, phrase in enumerate(self.phrases) if i not in self.met]

    def after(self, token: int) -> "Progress":
        """The progress with one more token; a phrase that is broken off must be begun again."""
        if self.current is not None and token == self.phrases[self.current][self.inside]:
            return self._entered(self.current, self.inside + 1)
        for i, phrase in enumerate(self.phrases):
            if i not in self.met and token == phrase[0]:
                return self._entered(i, 1)
        return Progress(self.phrases, self.met)

    def _entered(self, phrase: int, inside: int) -> "Progress":
        if inside == len(self.phrases[phrase]):
            return Progress(self.phrases, self.met | {phrase})
        return Progress(self.phrases, self.met, phrase, inside)


@dataclass(frozen=True)
class _Row:
    """One unfinished sequence."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float
    progress: Progress


@dataclass(frozen=True)
class _Candidate:
    parent: int
    token: int
    total: float
    progress: Progress


def constrained_search(
    stepper: Stepper, limit: int, options: BeamOptions, phrases: Sequence[Sequence[int]]
) -> list[Hypothesis]:
    """The best sequences for one sentence in which all phrases appear, the best first.

    The stepper has one row. No sequence ends before its phrases are complete; if the limit leaves
    no room for that, the result is empty.
    """
    wanted = tuple(tuple(phrase) for phrase in phrases)
    if not all(wanted):
        raise InputError("a phrase that must appear has no tokens; leave empty ones out.")
    rows = [_Row((), (), 0.0, Progress(wanted))]
    log_probs = stepper.step(torch.tensor([[options.start_id]], device=stepper.device))
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        log_probs = without(log_probs, options.never)
        chosen = []
        for one in _allocated(_candidates(rows, log_probs, options, length), options.beam):
            row = _extended(rows[one.parent], one, float(log_probs[one.parent, one.token]))
            if one.token == options.end_id or (length == limit and one.progress.complete):
                finished.append(_finish(row, one, options, length))
            elif length < limit:
                chosen.append((one, row))
        if not chosen or len(finished) >= options.beam:
            break
        stepper.keep(torch.tensor([one.parent for one, _ in chosen], device=stepper.device))
        tokens = torch.tensor([[one.token] for one, _ in chosen], device=stepper.device)
        rows, log_probs = [row for _, row in chosen], stepper.step(tokens)
    return sorted(finished, key=lambda h: h.score, reverse=True)[: options.n_best]


def _candidates(
    rows: Sequence[_Row], log_probs: torch.Tensor, options: BeamOptions, length: int
) -> list[_Candidate]:
    """The most probable continuations, and those that bring a sequence further."""
    totals = log_probs + torch.tensor([[row.total] for row in rows], device=log_probs.device)
    n_vocab = totals.size(1)
    best = totals.flatten().topk(min(2 * options.beam, totals.numel())).indices.tolist()
    pairs = {(place // n_vocab, place % n_vocab) for place in best}
    for i, row in enumerate(rows):
        pairs |= {(i, token) for token in row.progress.wanted()}
        pairs.add((i, int(totals[i].argmax())))
    found = []
    for parent, token in sorted(pairs):
        before = rows[parent].progress
        ends = token == options.end_id
        if float(totals[parent, token]) == -inf:
            continue
        if ends and (not before.complete or length <= options.shortest):
            continue
        after = before if ends else before.after(token)
        found.append(_Candidate(parent, token, float(totals[parent, token]), after))
    return found


def _allocated(candidates: list[_Candidate], beam: int) -> list[_Candidate]:
    """`beam` candidates, shared out evenly among those that have met equally many tokens."""
    banks: dict[int, list[_Candidate]] = {}
    for one in sorted(candidates, key=lambda c: c.total, reverse=True):
        banks.setdefault(one.progress.tokens_met, []).append(one)
    chosen: list[_Candidate] = []
    while len(chosen) < beam and any(banks.values()):
        for met in sorted(banks, reverse=True):
            if banks[met] and len(chosen) < beam:
                chosen.append(banks[met].pop(0))
    return chosen


def _extended(row: _Row, one: _Candidate, log_prob: float) -> _Row:
    return _Row((*row.ids, one.token), (*row.log_probs, log_prob), one.total, one.progress)


def _finish(row: _Row, one: _Candidate, options: BeamOptions, length: int) -> Hypothesis:
    ended = one.token == options.end_id
    ids = list(row.ids[:-1] if ended else row.ids)
    return Hypothesis(ids, list(row.log_probs), one.total / options.penalty(length), ended)
