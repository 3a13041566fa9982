"""Beam search over a batch, with or without required phrases, and the alternatives at one position.

In `constrained_search`, the beam is divided among sequences that have generated equally many tokens
of the phrases, so that those with more of them, which are less probable at first, are not pruned
(dynamic beam allocation, Post and Vilar 2018).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generation.search import BeamEvent, Hypothesis, SearchOptions
from regard.generation.stepper import Stepper, TranslationStepper


@dataclass
class _Sentence:
    limit: int
    finished: list[Hypothesis] = field(default_factory=list)
    events: list[BeamEvent] = field(default_factory=list)


def beam_search(
    stepper: Stepper,
    limits: Sequence[int],
    options: SearchOptions,
    *,
    start_id: int,
    end_id: int,
    prefix: Int[Tensor, "sentence token"] | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` sequences of each sentence, the best first.

    Args:
        stepper: has one row for each sentence.
        limits: maximum number of tokens of each sentence, including the end token.
        prefix: tokens with which every sequence of a sentence must start.
    """
    if not limits:
        return []
    read = torch.full((len(limits), 1), start_id, device=stepper.device)
    read = read if prefix is None else torch.cat([read, prefix], dim=1)
    search = _Search(stepper, limits, options, end_id, read)
    while search.active:
        search.advance()
    found = []
    for sentence in search.sentences:
        best = sorted(sentence.finished, key=lambda h: h.score, reverse=True)[: options.n_best]
        found.append([replace(one, events=sentence.events) for one in best[:1]] + best[1:])
    return found


@torch.no_grad()
def greedy_search(
    module: Any,
    source_ids: Int[Tensor, "batch source"],
    source_lengths: Int[Tensor, "batch"],
    *,
    start_id: int,
    end_id: int,
) -> list[list[int]]:
    """Return the target ids that an encoder–decoder writes if it takes the best token each time."""
    options = SearchOptions(beam=1)
    limits = [options.limit(length) for length in source_lengths.tolist()]
    stepper = TranslationStepper(module, source_ids, source_lengths)
    found = beam_search(stepper, limits, options, start_id=start_id, end_id=end_id)
    return [best[0].ids for best in found]


class _Search:
    """All unfinished sequences: `beam` rows for each active sentence."""

    def __init__(
        self,
        stepper: Stepper,
        limits: Sequence[int],
        options: SearchOptions,
        end_id: int,
        read: Tensor,
    ) -> None:
        n, beam = read.size(0), options.beam
        self.stepper, self.options = stepper, options
        self.end_id, self.device = end_id, stepper.device
        self.sentences = [_Sentence(limit) for limit in limits]
        self.active = list(self.sentences)
        self.length = read.size(1) - 1
        self.log_probs = stepper.step(read)
        if beam > 1:
            rows = torch.arange(n, device=self.device).repeat_interleave(beam)
            stepper.keep(rows)
            self.log_probs = self.log_probs[rows]
        self.ids = read[:, 1:].repeat_interleave(beam, dim=0)
        self.totals = self.log_probs.new_full((n, beam), -inf)
        self.totals[:, 0] = 0.0  # all rows of a sentence are equal now, so only one of them counts
        self.token_log_probs = self.totals.new_zeros(self.ids.shape)

    def advance(self) -> None:
        """Extend every unfinished sequence by one token."""
        beam, (totals, parents, tokens) = self.options.beam, self._candidates()
        self.length += 1
        columns = zip(totals.tolist(), parents.tolist(), tokens.tolist(), strict=True)
        kept: dict[int, list[int]] = {}
        for index, (sentence, column) in enumerate(zip(self.active, columns, strict=True)):
            if ranks := self._select(sentence, list(zip(*column, strict=True))):
                kept[index] = ranks
        self.active = [self.active[index] for index in kept]
        if not kept:
            return
        # Each sentence keeps `beam` rows: where fewer continue, impossible ones fill up.
        short = [[i >= len(ranks) for i in range(beam)] for ranks in kept.values()]
        filled = [(ranks + ranks[:1] * beam)[:beam] for ranks in kept.values()]
        missing, ranks, places = (
            torch.tensor(x, device=self.device) for x in (short, filled, list(kept))
        )
        totals, parents, tokens = (x[places].gather(1, ranks) for x in (totals, parents, tokens))
        self.totals = totals.masked_fill(missing, -inf)
        self._extend(parents.flatten(), tokens.flatten())

    def _extend(self, parents: Tensor, tokens: Tensor) -> None:
        added = self.log_probs[parents, tokens]
        if not torch.equal(parents, torch.arange(self.stepper.n_rows, device=self.device)):
            self.ids, self.token_log_probs = self.ids[parents], self.token_log_probs[parents]
            self.stepper.keep(parents)
        self.ids = torch.cat([self.ids, tokens[:, None]], dim=1)
        self.token_log_probs = torch.cat([self.token_log_probs, added[:, None]], dim=1)
        self.log_probs = self.stepper.step(tokens[:, None])

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the 2 · beam best continuations of each sentence: totals, parents, tokens.

        At most `beam` of them end a sequence, so at least `beam` remain.
        """
        beam, n_vocab = self.options.beam, self.log_probs.size(-1)
        if beam == 1 and not self.options.beam_tree:
            best, tokens = largest(self.log_probs, 1)
            parents = torch.arange(len(self.active), device=self.device)[:, None]
            return self.totals + best, parents, tokens
        every = self.totals[:, :, None] + self.log_probs.view(-1, beam, n_vocab)
        totals, flat = largest(every.flatten(1), min(2 * beam, beam * n_vocab))
        first = torch.arange(len(self.active), device=self.device)[:, None] * beam
        return totals, first + flat // n_vocab, flat % n_vocab

    def _select(self, sentence: _Sentence, candidates: list[tuple[float, int, int]]) -> list[int]:
        """Return the ranks of the candidates to continue; none if the sentence is done."""
        beam, at_limit = self.options.beam, self.length >= sentence.limit
        ranks: list[int] = []
        for rank, (total, parent, token) in enumerate(candidates):
            ends = token == self.end_id
            if total == -inf:
                break
            if (ends or at_limit) and rank < beam:
                ids = self.ids[parent].tolist() + ([] if ends else [token])
                before = self.token_log_probs[parent].tolist()
                log_probs = [*before, float(self.log_probs[parent, token])]
                score = total / self.options.length_penalty(self.length)
                sentence.finished.append(Hypothesis(ids, log_probs, score, ends))
                self._record(sentence, candidates[rank], "finished")
            elif not ends and not at_limit and len(ranks) < beam:
                ranks.append(rank)
            else:
                self._record(sentence, candidates[rank], "pruned")
        done = not ranks or self._is_done(sentence, candidates[ranks[0]][0])
        for rank in ranks:
            self._record(sentence, candidates[rank], "overtaken" if done else "kept")
        return [] if done else ranks

    def _is_done(self, sentence: _Sentence, best_total: float) -> bool:
        options, n_finished = self.options, len(sentence.finished)
        if n_finished < options.n_best:
            return False
        if options.stop == "first" or options.beam == 1:
            return True
        if options.stop == "beam":
            return n_finished >= options.beam
        worst = sorted((h.score for h in sentence.finished), reverse=True)[options.n_best - 1]
        # Log-probabilities only fall, so the largest possible divisor bounds what can be reached.
        lengths = (self.length + 1, sentence.limit)
        return best_total / max(map(options.length_penalty, lengths)) <= worst

    def _record(self, sentence: _Sentence, candidate: tuple[float, int, int], fate: str) -> None:
        if self.options.beam_tree:
            total, parent, token = candidate
            ids = (*self.ids[parent].tolist(), token)
            score = total / self.options.length_penalty(self.length)
            sentence.events.append(BeamEvent(self.length, ids, total, score, fate))


def largest(
    numbers: Float[Tensor, "rows numbers"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """Return the `count` largest numbers of each row and their indices, like `topk`.

    They lie in the `count` blocks with the largest maxima, which are much faster to find.
    """
    block = 64
    n_blocks = numbers.size(1) // block
    if n_blocks < 4 * count:
        return numbers.topk(count, dim=1)
    even = n_blocks * block
    blocks = numbers[:, :even].unflatten(1, (n_blocks, block))
    best = blocks.amax(dim=2).topk(count, dim=1).indices
    inside = torch.arange(block, device=numbers.device)
    indices = (best[:, :, None] * block + inside).flatten(1)
    rest = torch.arange(even, numbers.size(1), device=numbers.device)
    indices = torch.cat([indices, rest.expand(len(numbers), -1)], dim=1)
    found, ranks = numbers.gather(1, indices).topk(count, dim=1)
    return found, indices.gather(1, ranks)


@dataclass(frozen=True)
class Alternative:
    """One possible next token and the best sequence that continues with it."""

    token: int
    log_prob: float
    continuation: Hypothesis


def alternatives(
    make_stepper: Callable[[int], Stepper],
    prefix: list[int],
    limit: int,
    options: SearchOptions,
    *,
    start_id: int,
    end_id: int,
    count: int = 5,
) -> list[Alternative]:
    """Return the `count` most probable tokens after `prefix`, each with its best continuation.

    Args:
        make_stepper: returns a new stepper with this many rows of the same sentence.
        prefix: the tokens before the position, without the start token.
        limit: maximum number of tokens, including the prefix and the end token.
    """
    stepper = make_stepper(1)
    read = torch.tensor([[start_id, *prefix]], device=stepper.device)
    log_probs = stepper.step(read)[0]
    values, tokens = log_probs.topk(min(count, len(log_probs)))
    open_tokens = [token for token in tokens.tolist() if token != end_id]
    best = {end_id: Hypothesis(list(prefix), [], 0.0)}
    if open_tokens:
        rows = torch.tensor([[*prefix, token] for token in open_tokens], device=stepper.device)
        limits = [limit] * len(rows)
        ends = {"start_id": start_id, "end_id": end_id}
        found = beam_search(make_stepper(len(rows)), limits, options, **ends, prefix=rows)
        best |= {token: several[0] for token, several in zip(open_tokens, found, strict=True)}
    pairs = zip(tokens.tolist(), values.tolist(), strict=True)
    return [Alternative(token, log_prob, best[token]) for token, log_prob in pairs]


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
