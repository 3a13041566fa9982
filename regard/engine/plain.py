"""The PyTorch engine: every family, every device, and whatever the fast engine cannot do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from regard.decoding.beam import BeamOptions, beam_search
from regard.decoding.hypothesis import LengthPenalty
from regard.decoding.stepper import Ensemble, Stepper, TranslationStepper, Translator
from regard.engine.batch import batches_by_length
from regard.engine.search import Found, SearchOptions
from regard.text.tokenizer import Tokenizer

_TOKENS, _ROWS = 4096, 64
"""Most source tokens (padding included) and sentences that are searched at once."""


@dataclass(frozen=True)
class _Done:
    found: list[list[Found]]

    def wait(self) -> list[list[Found]]:
        return self.found


class PlainEngine:
    """Beam search with PyTorch, by one model or by several that vote."""

    name = "torch"

    def __init__(self, models: Sequence[Translator], tokenizer: Tokenizer) -> None:
        self.models = list(models)
        self.start_id, self.end_id = tokenizer.start_id, tokenizer.end_id
        self.never = tuple(
            id for id in (tokenizer.pad_id, tokenizer.mask_id, tokenizer.start_id) if id is not None
        )

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> _Done:
        """Translate these sentences; the call returns when all are done."""
        found: list[list[Found]] = [[] for _ in sources]
        tokens = max(_TOKENS // options.beam, 1)
        lengths = [len(source) for source in sources]
        with torch.inference_mode(), _threads(1):
            for batch in batches_by_length(lengths, tokens=tokens, rows=_ROWS):
                for index, best in zip(batch, self._search(sources, batch, options), strict=True):
                    found[index] = best
        return _Done(found)

    def _search(
        self, sources: Sequence[list[int]], batch: list[int], options: SearchOptions
    ) -> list[list[Found]]:
        lengths = torch.tensor([len(sources[i]) for i in batch])
        ids = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
        for row, index in enumerate(batch):
            ids[row, : len(sources[index])] = torch.tensor(sources[index])
        steppers: list[Stepper] = [TranslationStepper(model, ids, lengths) for model in self.models]
        stepper = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
        beam = BeamOptions(
            start_id=_known(self.start_id),
            end_id=_known(self.end_id),
            beam=options.beam,
            n_best=options.n_best,
            penalty=LengthPenalty("average", options.alpha),
            never=self.never,
        )
        limits = [options.limit(length) for length in lengths.tolist()]
        return [
            [Found(best.ids, best.score) for best in hypotheses]
            for hypotheses in beam_search(stepper, limits, beam)
        ]


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
