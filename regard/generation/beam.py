"""What else a model could have written at a position, and how it would have gone on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generation.search import STOPS, Hypothesis, LengthPenalty
from regard.generation.stepper import Stepper, without

_BLOCK = 64
"""Numbers whose maximum stands for them when the largest are looked for."""


@dataclass(frozen=True)
class BeamOptions:
    """How to search.

    Args:
        beam: unfinished sequences kept for each sentence; 1 is greedy search.
        n_best: finished sequences returned for each sentence, at most `beam`.
        penalty: what scores are divided by.
        stop: a sentence is done when `beam` sequences are finished ("beam"), when `n_best` are
            ("first"), or when nothing unfinished could still become one of its n best ("bound").
            With a beam of 1 it is always the first.
        shortest: tokens that must come before the end token.
        never: tokens that are never written, such as the padding's.
    """

    start_id: int
    end_id: int
    beam: int = 4
    n_best: int = 1
    penalty: LengthPenalty = field(default_factory=LengthPenalty)
    stop: str = "beam"
    shortest: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise InputError(f"beam is {self.beam}; it must be 1 (greedy) or more.")
        if not 1 <= self.n_best <= self.beam:
            raise InputError(
                f"{self.n_best} best translations were asked for with a beam of {self.beam}; ask "
                "for at least 1 and at most as many as the beam is wide."
            )
        if self.stop not in STOPS:
            raise InputError(f"stop is {self.stop!r}; it can be {' or '.join(STOPS)}.")


@dataclass(frozen=True)
class Event:
    """One sequence at one step of the search: a node of the beam's tree."""

    step: int
    ids: tuple[int, ...]
    log_prob: float
    score: float
    fate: str
    """"kept", "finished", "pruned" (others were better), or "overtaken" (the sentence was done)."""


@dataclass
class _Sentence:
    """The search for one sentence."""

    index: int
    limit: int
    finished: list[Hypothesis] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass
class _Rows:
    """All unfinished sequences: `beam` rows for each sentence that is still searched."""

    ids: Int[Tensor, "rows token"]
    token_log_probs: Float[Tensor, "rows token"]
    totals: Float[Tensor, "sentence beam"]

    def kept(self, rows: Tensor) -> "_Rows":
        """These rows only, in this order."""
        return _Rows(self.ids[rows], self.token_log_probs[rows], self.totals)

    def longer(self, tokens: Tensor, log_probs: Tensor, totals: Tensor) -> "_Rows":
        """All rows with one more token each."""
        return _Rows(
            torch.cat([self.ids, tokens[:, None]], dim=1),
            torch.cat([self.token_log_probs, log_probs[:, None]], dim=1),
            totals,
        )


def beam_search(
    stepper: Stepper,
    limits: Sequence[int],
    options: BeamOptions,
    *,
    prefix: Int[Tensor, "sentence token"] | None = None,
    record: list[list[Event]] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best sequences for each sentence, the best first.

    Args:
        stepper: with one row for each sentence.
        limits: the most tokens to write for each sentence, the end token included.
        prefix: tokens with which every sequence of a sentence must begin.
        record: filled with the tree of the search, a list of events for each sentence.
    """
    search = _Search(stepper, limits, options, recording=record is not None)
    search.begin(prefix)
    while search.open:
        search.advance()
    if record is not None:
        record.extend(sentence.events for sentence in search.sentences)
    return [_best(sentence, options.n_best) for sentence in search.sentences]


class _Search:
    """The state of one call of `beam_search`."""

    def __init__(
        self, stepper: Stepper, limits: Sequence[int], options: BeamOptions, *, recording: bool
    ) -> None:
        self.stepper, self.options, self.recording = stepper, options, recording
        self.device = stepper.device
        self.sentences = [_Sentence(i, limit) for i, limit in enumerate(limits)]
        self.open = list(self.sentences)
        self.length = 0

    def begin(self, prefix: Tensor | None) -> None:
        """Read the start token (and a prefix), then give every sentence its `beam` rows."""
        n, beam = len(self.open), self.options.beam
        start = torch.full((n, 1), self.options.start_id, device=self.device)
        given = start if prefix is None else torch.cat([start, prefix], dim=1)
        self.length = given.size(1) - 1
        self.log_probs = self._step(given)
        if beam > 1:
            rows = torch.arange(n, device=self.device).repeat_interleave(beam)
            self.stepper.keep(rows)
            self.log_probs = self.log_probs[rows]
        written = given[:, 1:].repeat_interleave(beam, dim=0)
        totals = self.log_probs.new_full((n, beam), -inf)
        totals[:, 0] = 0.0  # all rows of a sentence are the same now: only one of them counts
        self.rows = _Rows(written, totals.new_zeros(written.shape), totals)

    def advance(self) -> None:
        """One more token for every unfinished sequence."""
        totals, parents, tokens = self._candidates()
        self.length += 1
        columns = zip(totals.tolist(), parents.tolist(), tokens.tolist(), strict=True)
        kept: dict[int, list[int]] = {}
        for place, (sentence, candidates) in enumerate(zip(self.open, columns, strict=True)):
            ranks = self._sort_out(sentence, list(zip(*candidates, strict=True)))
            if ranks:
                kept[place] = ranks
        self.open = [self.open[place] for place in kept]
        if not self.open:
            return
        self._go_on(*self._survivors(kept, totals, parents, tokens))

    def _survivors(
        self, kept: dict[int, list[int]], totals: Tensor, parents: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The candidates to go on with: their totals, parents' rows and tokens."""
        beam = self.options.beam
        if len(kept) == len(totals) and all(len(r) == r[-1] + 1 == beam for r in kept.values()):
            totals, parents, tokens = (x[:, :beam] for x in (totals, parents, tokens))
            return totals, parents.flatten(), tokens.flatten()
        # Rows stay `beam` many: where fewer sequences go on, impossible ones fill up.
        short = [[i >= len(ranks) for i in range(beam)] for ranks in kept.values()]
        filled = [(ranks + ranks[:1] * beam)[:beam] for ranks in kept.values()]
        missing, ranks, places = (
            torch.tensor(x, device=self.device) for x in (short, filled, list(kept))
        )
        totals, parents, tokens = (x[places].gather(1, ranks) for x in (totals, parents, tokens))
        return totals.masked_fill(missing, -inf), parents.flatten(), tokens.flatten()

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """For each sentence the best 2 · beam continuations: totals, parents' rows, tokens.

        At most `beam` of them end a sequence, so at least `beam` go on.
        """
        beam, n_vocab = self.options.beam, self.log_probs.size(-1)
        if beam == 1 and not self.recording:  # then nobody asks for the second best
            best, tokens = largest(self.log_probs, 1)
            parents = torch.arange(len(self.open), device=self.device)[:, None]
            return self.rows.totals + best, parents, tokens
        every = self.rows.totals[:, :, None] + self.log_probs.view(-1, beam, n_vocab)
        totals, flat = largest(every.flatten(1), min(2 * beam, beam * n_vocab))
        first = torch.arange(len(self.open), device=self.device)[:, None] * beam
        return totals, first + flat // n_vocab, flat % n_vocab

    def _sort_out(self, sentence: _Sentence, candidates: list[tuple[float, int, int]]) -> list[int]:
        """The ranks of the candidates to go on with; none when the sentence is done."""
        beam, end_id = self.options.beam, self.options.end_id
        going_on: list[int] = []
        at_limit = self.length >= sentence.limit
        for rank, candidate in enumerate(candidates):
            ends = candidate[2] == end_id
            if candidate[0] == -inf:
                break
            if (ends or at_limit) and rank < beam:
                self._finish(sentence, candidate)
                self._note(sentence, candidate, "finished")
            elif not ends and not at_limit and len(going_on) < beam:
                going_on.append(rank)
            else:
                self._note(sentence, candidate, "pruned")
        done = not going_on or self._is_done(sentence, candidates[going_on[0]][0])
        for rank in going_on:
            self._note(sentence, candidates[rank], "overtaken" if done else "kept")
        return [] if done else going_on

    def _is_done(self, sentence: _Sentence, best_total: float) -> bool:
        """Whether going on cannot, or by the chosen rule must not, change the result."""
        n_best, penalty = self.options.n_best, self.options.penalty
        if len(sentence.finished) < n_best:
            return False
        if self.options.stop == "first" or self.options.beam == 1:
            return True
        if self.options.stop == "beam":
            return len(sentence.finished) >= self.options.beam
        worst = sorted((h.score for h in sentence.finished), reverse=True)[n_best - 1]
        # Log-probabilities only fall, so the longest possible sequence bounds what can be reached.
        reach = max(penalty(self.length + 1), penalty(sentence.limit))
        return best_total / reach <= worst

    def _finish(self, sentence: _Sentence, candidate: tuple[float, int, int]) -> None:
        total, parent, token = candidate
        ended = token == self.options.end_id
        ids = self.rows.ids[parent].tolist() + ([] if ended else [token])
        log_probs = [
            *self.rows.token_log_probs[parent].tolist(),
            float(self.log_probs[parent, token]),
        ]
        score = total / self.options.penalty(self.length)
        sentence.finished.append(Hypothesis(ids, log_probs, score, finished=ended))

    def _go_on(self, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        chosen = self.log_probs[parents, tokens]
        if self._are_all(parents):
            self.rows = self.rows.longer(tokens, chosen, totals)
        else:
            self.rows = self.rows.kept(parents).longer(tokens, chosen, totals)
            self.stepper.keep(parents)
        self.log_probs = self._step(tokens[:, None])

    def _are_all(self, parents: Tensor) -> bool:
        """Whether every row goes on, in the order that they have."""
        if len(parents) != self.stepper.n_rows:
            return False
        every = torch.arange(len(parents), device=self.device)
        return self.options.beam == 1 or torch.equal(parents, every)

    def _step(self, ids: Tensor) -> Tensor:
        log_probs = without(self.stepper.step(ids), self.options.never)
        if self.length < self.options.shortest:
            log_probs = without(log_probs, [self.options.end_id])
        return log_probs

    def _note(self, sentence: _Sentence, candidate: tuple[float, int, int], fate: str) -> None:
        if self.recording:
            total, parent, token = candidate
            ids = (*self.rows.ids[parent].tolist(), token)
            score = total / self.options.penalty(self.length)
            sentence.events.append(Event(self.length, ids, total, score, fate))


def largest(
    numbers: Float[Tensor, "rows numbers"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The `count` largest numbers of each row and their places, the largest first.

    They lie in the `count` blocks with the largest maxima, which are found far faster than the
    numbers themselves.
    """
    n_blocks = numbers.size(1) // _BLOCK
    if n_blocks < 4 * count:
        return numbers.topk(count, dim=1)
    even = n_blocks * _BLOCK
    blocks = numbers[:, :even].unflatten(1, (n_blocks, _BLOCK))
    best = blocks.amax(dim=2).topk(count, dim=1).indices
    inside = torch.arange(_BLOCK, device=numbers.device)
    places = (best[:, :, None] * _BLOCK + inside).flatten(1)
    rest = torch.arange(even, numbers.size(1), device=numbers.device)
    places = torch.cat([places, rest.expand(len(numbers), -1)], dim=1)
    found, ranks = numbers.gather(1, places).topk(count, dim=1)
    return found, places.gather(1, ranks)


def _best(sentence: _Sentence, n_best: int) -> list[Hypothesis]:
    return sorted(sentence.finished, key=lambda h: h.score, reverse=True)[:n_best]


@dataclass(frozen=True)
class Alternative:
    """One token that could stand at the position, and the text that begins with it."""

    token: int
    log_prob: float
    continuation: Hypothesis


def alternatives(
    make: Callable[[int], Stepper],
    prefix: list[int],
    options: BeamOptions,
    *,
    count: int = 5,
    limit: int = 200,
) -> list[Alternative]:
    """The `count` most probable tokens after `prefix`, each with its best continuation.

    Args:
        make: gives a fresh stepper with this many equal rows for the sentence.
        prefix: the tokens before the position, without the start token.
    """
    stepper = make(1)
    read = torch.tensor([[options.start_id, *prefix]], device=stepper.device)
    line = without(stepper.step(read), options.never)[0]
    log_probs, tokens = line.topk(min(count, len(line)))
    going_on = [token for token in tokens.tolist() if token != options.end_id]
    texts: dict[int, Hypothesis] = {}
    if going_on:
        begun = torch.tensor([[*prefix, token] for token in going_on], device=stepper.device)
        limits = [limit] * len(going_on)
        found = beam_search(make(len(going_on)), limits, options, prefix=begun)
        texts = {token: best[0] for token, best in zip(going_on, found, strict=True)}
    ended = Hypothesis(list(prefix), [], 0.0, finished=True)
    pairs = zip(tokens.tolist(), log_probs.tolist(), strict=True)
    return [Alternative(token, chance, texts.get(token, ended)) for token, chance in pairs]
