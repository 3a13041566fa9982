"""The PyTorch engine: every family, every device, and whatever the fast engine cannot do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.beam import BeamOptions, Event, beam_search
from regard.decoding.hypothesis import LengthPenalty
from regard.decoding.stepper import Ensemble, NarrowStepper, Stepper, TranslationStepper
from regard.engine.batch import batches_by_length
from regard.engine.search import Found, SearchOptions
from regard.engine.shortlist import Shortlist
from regard.engine.vocabulary import never_written
from regard.text.tokenizer import Tokenizer

_TOKENS, _ROWS = 4096, 64
"""Most source tokens (padding included) and sentences that are searched at once."""


@dataclass(frozen=True)
class _Waiting:
    """Sentences that are translated when somebody waits for them."""

    engine: "PlainEngine"
    sources: Sequence[list[int]]
    options: SearchOptions

    def wait(self) -> list[list[Found]]:
        """All translations, in the order of the sentences."""
        return self.engine.translate(self.sources, self.options)


class PlainEngine:
    """Beam search with PyTorch, by one model or by several that vote."""

    name = "torch"

    def __init__(
        self, models: Sequence[Any], tokenizer: Tokenizer, *, shortlist: Shortlist | None = None
    ) -> None:
        self.models, self.shortlist = list(models), shortlist
        self.start_id, self.end_id = tokenizer.start_id, tokenizer.end_id
        self.never = never_written(tokenizer, self.models[0].config.n_vocab)

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> _Waiting:
        """Take these sentences; they are translated when somebody waits for them."""
        return _Waiting(self, sources, options)

    def translate(self, sources: Sequence[list[int]], options: SearchOptions) -> list[list[Found]]:
        """The n best translations of each sentence."""
        found: list[list[Found]] = [[] for _ in sources]
        tokens = max(_TOKENS // options.beam, 1)
        lengths = [len(source) for source in sources]
        with torch.inference_mode(), _threads(1):
            for batch in batches_by_length(lengths, tokens=tokens, rows=_ROWS):
                for index, best in zip(batch, self._search(sources, batch, options), strict=True):
                    found[index] = best
        return found

    def _search(
        self, sources: Sequence[list[int]], batch: list[int], options: SearchOptions
    ) -> list[list[Found]]:
        lengths = torch.tensor([len(sources[i]) for i in batch])
        ids = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
        for row, index in enumerate(batch):
            ids[row, : len(sources[index])] = torch.tensor(sources[index])
        steppers = [self._stepper(model, ids, lengths) for model in self.models]
        stepper = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
        stepper = _Barred(stepper, self.never, _known(self.end_id))
        beam = BeamOptions(
            start_id=_known(self.start_id),
            end_id=_known(self.end_id),
            beam=options.beam,
            n_best=options.n_best,
            penalty=LengthPenalty("average", options.alpha),
        )
        limits = [options.limit(length) for length in lengths.tolist()]
        record: list[list[Event]] | None = [] if options.beam_tree else None
        found = beam_search(stepper, limits, beam, record=record)
        trees = record or [()] * len(found)
        return [
            [Found(one.ids, one.score, () if i else tree) for i, one in enumerate(hypotheses)]
            for hypotheses, tree in zip(found, trees, strict=True)
        ]

    def _stepper(self, model: Any, ids: Tensor, lengths: Tensor) -> Stepper:
        if self.shortlist is None:
            return TranslationStepper(model, ids, lengths)
        candidates = self.shortlist.candidates(ids.tolist())
        return NarrowStepper(model, ids, lengths, torch.tensor(candidates))


class _Barred(Stepper):
    """A stepper for which some tokens are impossible; the others share their probability.

    The end is impossible at first: a translation has at least one token.
    """

    def __init__(self, inner: Stepper, never: Sequence[int], end_id: int) -> None:
        self.inner = inner
        self.n_rows, self.device = inner.n_rows, inner.device
        self._never = torch.tensor(never, dtype=torch.long, device=inner.device)
        self._now = torch.tensor([*never, end_id], device=inner.device)

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        log_probs, barred = self.inner.step(ids), self._now
        lost = log_probs[:, barred].exp().sum(dim=1, keepdim=True)
        self._now = self._never
        return (log_probs - torch.log1p(-lost)).index_fill_(1, barred, -inf)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.inner.keep(rows)
        self.n_rows = len(rows)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Products of a few rows are far slower on two threads that sleep in between than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _known(id: int | None) -> int:
    assert id is not None, "translators have start and end tokens"
    return id
