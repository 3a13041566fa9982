"""The fast engine: CTranslate2, one thread for each worker, as many workers as cores.

A sentence by itself waits for memory more than for the processor: in float32 several threads read
the weights up to twice as fast as one (in int8 one is faster, by far).

Nothing here imports torch, so a translation begins a fraction of a second after the command. The
model is converted once and kept in the user's cache, under a name made of what it was made of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

from regard.engine.batch import batches_by_length, rows_for
from regard.engine.converted import converted
from regard.engine.cores import cores, threads_for_one
from regard.engine.search import Found, SearchOptions
from regard.engine.shortlist import Shortlist
from regard.engine.vocabulary import begun_with, entries
from regard.text.tokenizer import Tokenizer

_TOKENS, _ROWS = 2048, 64
"""Most source tokens (padding included) and sentences of a batch, for a beam of 1."""
_NARROW_ROWS = 32
"""With a shortlist: the more sentences, the more candidates all of them have."""


@dataclass(frozen=True)
class _Batch:
    """Sentences that were handed to a worker together, and promises of their translations."""

    indices: list[int]
    promises: list[Any]


class FastEngine:
    """Beam search by CTranslate2.

    Args:
        n_vocab: how many tokens the model can write; more than its tokenizer has, sometimes.
        shortlist: what each token may become; without one, anything.
    """

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        target: Tokenizer,
        *,
        n_vocab: int,
        int8: bool = False,
        shortlist: Shortlist | None = None,
    ) -> None:
        self._tokens = entries(tokenizer, len(tokenizer))
        self._written = entries(target, n_vocab)
        self._narrow, self._target, self.int8 = shortlist is not None, target, int8
        rules = shortlist and shortlist.vocabulary_map(self._tokens, self._written)
        self._place = converted(folder, int8=int8, vocabulary_map=rules)
        self._ids = {token: id for id, token in enumerate(self._written)}

    @cached_property
    def many(self) -> Any:
        """For batches: as many workers as cores."""
        return self._open(inter_threads=cores(), intra_threads=1)

    @cached_property
    def alone(self) -> Any:
        """For a sentence by itself."""
        if self.int8 or cores() == 1:
            return self.many
        return self._open(inter_threads=1, intra_threads=threads_for_one())

    def _open(self, **threads: int) -> Any:
        import ctranslate2

        kind = "int8" if self.int8 else "float32"
        return ctranslate2.Translator(
            str(self._place), device="cpu", compute_type=kind, max_queued_batches=-1, **threads
        )

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> "_Pending":
        """Hand the sentences to the workers; the call returns at once."""
        lengths = [len(source) for source in sources]
        budget = max(_TOKENS // options.beam, 1)
        # With a shortlist neighbours matter, so there they do not depend on the machine.
        workers, most = (1, _NARROW_ROWS) if self._narrow else (cores(), _ROWS)
        rows = rows_for(len(sources), most=most, workers=workers)
        batches = batches_by_length(lengths, tokens=budget, rows=rows, group=options.group)
        begun = [_Batch(batch, self._begin(sources, batch, options)) for batch in batches]
        return _Pending(self, len(sources), begun)

    def _begin(
        self, sources: Sequence[list[int]], batch: list[int], options: SearchOptions
    ) -> list[Any]:
        names = self._tokens
        begun = [self._written[id] for id in begun_with(self._target, options)]
        translator = self.alone if len(sources) == 1 else self.many
        return translator.translate_batch(
            [[names[id] for id in sources[index]] for index in batch],
            target_prefix=[begun] * len(batch) if begun else None,
            beam_size=options.beam,
            num_hypotheses=options.n_best,
            length_penalty=options.alpha if options.penalty == "average" else 0.0,
            max_decoding_length=options.limit(len(sources[batch[0]])),
            min_decoding_length=options.shortest(len(sources[batch[0]])),
            max_input_length=0,
            use_vmap=self._narrow,
            return_scores=options.scores or options.beam > 1,
            asynchronous=True,
        )

    def found(self, result: Any) -> list[Found]:
        """What a worker has found for one sentence."""
        scores = result.scores or [nan] * len(result.hypotheses)
        pairs = zip(result.hypotheses, scores, strict=True)
        return [Found([self._ids[token] for token in tokens], score) for tokens, score in pairs]


@dataclass(frozen=True)
class _Pending:
    """Batches that workers are busy with."""

    engine: FastEngine
    n_sources: int
    batches: list[_Batch]

    def wait(self) -> list[list[Found]]:
        """All translations, in the order of the sentences."""
        found: list[list[Found]] = [[] for _ in range(self.n_sources)]
        for batch in self.batches:
            for index, promise in zip(batch.indices, batch.promises, strict=True):
                found[index] = self.engine.found(promise.result())
        return found
