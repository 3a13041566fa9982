"""The PyTorch engine: every family, every device, and whatever the fast engine cannot do."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generation.beam import BeamOptions, Event, beam_search
from regard.generation.constraints import constrained_search
from regard.generation.fast_decoder import LeanStepper, LeanTransformer, can_be_lean
from regard.generation.search import Found, LengthPenalty, SearchOptions, begun_with, phrases
from regard.generation.sentences import batches_by_length, rows_for
from regard.generation.stepper import Ensemble, NarrowStepper, Stepper, TranslationStepper
from regard.generation.vocabulary_shortlist import Shortlist
from regard.hardware import cpu_count
from regard.tap import listening
from regard.text.token_names import suppressed_ids
from regard.text.tokenizer import Tokenizer

_TOKENS, _ROWS = 4096, 128
"""Most source tokens (padding included) and sequences that are searched at once, with a beam of 1;
with wider ones fewer sentences, so that there are as many sequences."""


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
    """Beam search with PyTorch, by one model or by several that vote.

    Args:
        int8: whether large products of Transformers are computed in int8.
        fixed: whether nobody changes the models' weights any more, so that copies of them, laid
            out as products are fastest, can be made once. In int8 they are copies in any case.
    """

    name = "torch"

    def __init__(
        self,
        models: Sequence[Any],
        tokenizer: Tokenizer,
        *,
        shortlist: Shortlist | None = None,
        int8: bool = False,
        fixed: bool = False,
    ) -> None:
        self.models, self.shortlist, self.tokenizer = list(models), shortlist, tokenizer
        self.start_id, self.end_id = tokenizer.start_id, tokenizer.end_id
        self.never = suppressed_ids(tokenizer, self.models[0].config.n_vocab)
        kind = "int8" if int8 else "turned" if fixed else "own"
        self._copies = None if kind == "own" else self._lean(kind)

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> _Waiting:
        """Take these sentences; they are translated when somebody waits for them."""
        return _Waiting(self, sources, options)

    def translate(self, sources: Sequence[list[int]], options: SearchOptions) -> list[list[Found]]:
        """The n best translations of each sentence."""
        tokens = max(_TOKENS // options.beam, 1)
        lengths = [len(source) for source in sources]
        workers = cpu_count() if self.shortlist is None else 1  # as in the other engine
        most = 1 if options.must else max(_ROWS // options.beam, 1)
        rows = rows_for(len(sources), most=most, workers=workers)
        batches = batches_by_length(lengths, tokens=tokens, rows=rows, group=options.group)
        # The models' own weights are looked up for each call, so that no change is overlooked.
        lean = self._lean() if self._copies is None else self._copies
        done = _side_by_side(
            lambda batch: self._search([sources[i] for i in batch], lean, options), batches
        )
        found: list[list[Found]] = [[] for _ in sources]
        for batch, several in zip(batches, done, strict=True):
            for index, best in zip(batch, several, strict=True):
                found[index] = best
        return found

    def _lean(self, kind: str = "own") -> list[LeanTransformer | None]:
        """The models written down anew where they can be; their products are of this kind."""
        return [
            LeanTransformer(model, never=self.never, kind=kind) if can_be_lean(model) else None
            for model in self.models
        ]

    def _search(
        self,
        sources: Sequence[list[int]],
        lean: Sequence[LeanTransformer | None],
        options: SearchOptions,
    ) -> list[list[Found]]:
        wanted = phrases(self.tokenizer, options) if options.must else []
        known = None
        if self.shortlist is not None:
            found = {*self.shortlist.candidates(sources), *(id for ids in wanted for id in ids)}
            known = torch.tensor(sorted(found))
        steppers = [
            self._stepper(model, one, sources, known, options)
            for model, one in zip(self.models, lean, strict=True)
        ]
        beam = BeamOptions(
            start_id=_known(self.start_id),
            end_id=_known(self.end_id),
            beam=options.beam,
            n_best=options.n_best,
            penalty=LengthPenalty(options.penalty, options.alpha),
            stop=options.stop,
        )
        limits = [options.limit(len(source)) for source in sources]
        if options.must:
            found = constrained_search(_joined(steppers), limits[0], beam, wanted)
            if not found:
                raise InputError(f"a translation has no room for {', '.join(options.must)}.")
            return [[Found(one.ids, one.score) for one in found]]
        record: list[list[Event]] | None = [] if options.beam_tree else None
        begun = begun_with(self.tokenizer, options)
        prefix = torch.tensor([begun] * len(sources), device=steppers[0].device) if begun else None
        found = beam_search(_joined(steppers), limits, beam, prefix=prefix, record=record)
        trees = record or [()] * len(found)
        return [
            [Found(one.ids, one.score, () if i else tree) for i, one in enumerate(hypotheses)]
            for hypotheses, tree in zip(found, trees, strict=True)
        ]

    def _stepper(
        self,
        model: Any,
        lean: LeanTransformer | None,
        sources: Sequence[list[int]],
        candidates: Tensor | None,
        options: SearchOptions,
    ) -> Stepper:
        device = next(model.parameters()).device
        lengths = torch.tensor([len(source) for source in sources])
        ids = torch.zeros(len(sources), int(lengths.max()), dtype=torch.long)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        ids, lengths = ids.to(device), lengths.to(device)
        candidates = None if candidates is None else candidates.to(device)
        shortest, end_id = options.shortest(len(sources[0])), _known(self.end_id)
        if lean is not None and not listening():  # those who listen hear the model itself
            ends = {"end_id": end_id, "shortest": shortest}
            return LeanStepper(lean, ids, lengths, **ends, candidates=candidates)
        if candidates is None:
            plain = TranslationStepper(model, ids, lengths)
        else:
            plain = NarrowStepper(model, ids, lengths, candidates)
        return _Barred(plain, self.never, end_id, shortest)


def _joined(steppers: list[Stepper]) -> Stepper:
    return steppers[0] if len(steppers) == 1 else Ensemble(steppers)


def _side_by_side(
    work: Callable[[list[int]], list[list[Found]]], batches: list[list[int]]
) -> list[list[list[Found]]]:
    """The work on each batch, by as many threads as there are cores, each by one of torch's.

    Products of a few rows are far slower on two threads that sleep in between than on one; and
    torch holds no lock while it computes, so several batches are searched at a time.
    """

    def alone(batch: list[int]) -> list[list[Found]]:
        torch.set_num_threads(1)  # which some libraries keep for each thread
        with torch.inference_mode():
            return work(batch)

    workers = min(cpu_count(), len(batches))
    if workers < 2:
        with _threads(1):
            return [alone(batch) for batch in batches]
    with _threads(1), ThreadPoolExecutor(workers) as pool:
        begun = [pool.submit(copy_context().run, alone, batch) for batch in batches]
        try:
            return [one.result() for one in begun]
        except BaseException:  # an interrupt, too: what was not begun is not begun any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Barred(Stepper):
    """A stepper for which some tokens are impossible; the others share their probability.

    The end is impossible until `shortest` tokens are written.
    """

    def __init__(self, inner: Stepper, never: Sequence[int], end_id: int, shortest: int) -> None:
        self.inner, self.shortest = inner, shortest
        self.n_rows, self.device = inner.n_rows, inner.device
        self._never = torch.tensor(never, dtype=torch.long, device=inner.device)
        self._and_end = torch.tensor([*never, end_id], device=inner.device)
        self._written = -1  # the start token is read, not written

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        self._written += ids.size(1)
        barred = self._and_end if self._written < self.shortest else self._never
        return torch.log_softmax(self.inner.step(ids).index_fill(1, barred, -inf), dim=-1)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.inner.keep(rows)
        self.n_rows = len(rows)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many of torch's threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _known(id: int | None) -> int:
    assert id is not None, "translators have start and end tokens"
    return id
