"""Beam search in which given phrases must appear.

The beam is divided among sequences that have generated equally many tokens of the phrases, so that
those with more of them, which are less probable at first, are not pruned (dynamic beam allocation,
Post and Vilar 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch

from regard.errors import InputError
from regard.generation.search import Hypothesis, SearchOptions
from regard.generation.stepper import Stepper


@dataclass(frozen=True)
class PhraseProgress:
    """The part of the required phrases that a sequence contains."""

    phrases: tuple[tuple[int, ...], ...]
    complete_phrases: frozenset[int] = frozenset()
    current: int | None = None  # the phrase that the sequence is in the middle of
    inside: int = 0  # number of its tokens

    @property
    def n_tokens(self) -> int:
        """The number of phrase tokens generated."""
        return sum(len(self.phrases[i]) for i in self.complete_phrases) + self.inside

    @property
    def complete(self) -> bool:
        return len(self.complete_phrases) == len(self.phrases)

    def next_tokens(self) -> list[int]:
        """Return the tokens that would make progress."""
        if self.current is not None:
            return [self.phrases[self.current][self.inside]]
        return [p[0] for i, p in enumerate(self.phrases) if i not in self.complete_phrases]

    def after(self, token: int) -> "PhraseProgress":
        """Return the progress after one more token; an interrupted phrase starts again."""
        phrase, inside = self.current, self.inside
        if phrase is None or token != self.phrases[phrase][inside]:
            rest = (i for i in range(len(self.phrases)) if i not in self.complete_phrases)
            phrase, inside = next((i for i in rest if token == self.phrases[i][0]), None), 0
        if phrase is None:
            return replace(self, current=None, inside=0)
        if inside + 1 == len(self.phrases[phrase]):
            return PhraseProgress(self.phrases, self.complete_phrases | {phrase})
        return replace(self, current=phrase, inside=inside + 1)


@dataclass(frozen=True)
class _Row:
    """One unfinished sequence, or a candidate for one."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float
    progress: PhraseProgress
    parent: int = 0


def constrained_search(
    stepper: Stepper,
    limit: int,
    options: SearchOptions,
    phrases: Sequence[Sequence[int]],
    *,
    start_id: int,
    end_id: int,
) -> list[Hypothesis]:
    """Return the best sequences of one sentence that contain all phrases, the best first.

    The stepper has one row. If the limit is too small for the phrases, the result is empty.
    """
    if not all(phrases):
        raise InputError("a required phrase has no tokens: leave out empty phrases.")
    rows = [_Row((), (), 0.0, PhraseProgress(tuple(map(tuple, phrases))))]
    tokens = torch.tensor([[start_id]], device=stepper.device)
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        candidates = _candidates(rows, stepper.step(tokens), options.beam, end_id)
        rows = []
        for row in _allocate(candidates, options.beam):
            ended = row.ids[-1] == end_id
            if ended or (length == limit and row.progress.complete):
                score = row.total / options.length_penalty(length)
                ids = list(row.ids[:-1] if ended else row.ids)
                finished.append(Hypothesis(ids, list(row.log_probs), score, ended))
            elif length < limit:
                rows.append(row)
        if not rows or len(finished) >= options.beam:
            break
        stepper.keep(torch.tensor([row.parent for row in rows], device=stepper.device))
        tokens = torch.tensor([[row.ids[-1]] for row in rows], device=stepper.device)
    return sorted(finished, key=lambda h: h.score, reverse=True)[: options.n_best]


def _candidates(
    rows: Sequence[_Row], log_probs: torch.Tensor, beam: int, end_id: int
) -> list[_Row]:
    """Return the most probable continuations and those that make progress."""
    totals = log_probs + torch.tensor([[row.total] for row in rows], device=log_probs.device)
    n_vocab = totals.size(1)
    best = totals.flatten().topk(min(2 * beam, totals.numel())).indices.tolist()
    pairs = {(index // n_vocab, index % n_vocab) for index in best}
    for i, row in enumerate(rows):
        pairs |= {(i, token) for token in row.progress.next_tokens()}
        pairs.add((i, int(totals[i].argmax())))
    found = []
    for parent, token in sorted(pairs):
        row, total = rows[parent], float(totals[parent, token])
        if total == -inf or (token == end_id and not row.progress.complete):
            continue
        progress = row.progress if token == end_id else row.progress.after(token)
        log_prob = float(log_probs[parent, token])
        found.append(_Row((*row.ids, token), (*row.log_probs, log_prob), total, progress, parent))
    return found


def _allocate(candidates: list[_Row], beam: int) -> list[_Row]:
    """Return `beam` candidates, taken in turn from those with equally many phrase tokens."""
    banks: dict[int, list[_Row]] = {}
    for one in sorted(candidates, key=lambda c: c.total, reverse=True):
        banks.setdefault(one.progress.n_tokens, []).append(one)
    chosen: list[_Row] = []
    while len(chosen) < beam and any(banks.values()):
        for n_tokens in sorted(banks, reverse=True):
            if banks[n_tokens] and len(chosen) < beam:
                chosen.append(banks[n_tokens].pop(0))
    return chosen
