"""The fast engine: CTranslate2, one thread for each worker, as many workers as cores.

Nothing here imports torch, so a translation begins a fraction of a second after the command. The
model is converted once and kept in the user's cache, under a name made of what it was made of.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.bundle.folder import CONFIG, replaced_folder, weights_file
from regard.engine.batch import batches_by_length
from regard.engine.search import Found, SearchOptions
from regard.text.tokenizer import Tokenizer

_TOKENS, _ROWS = 2048, 64
"""Most source tokens (padding included) and sentences of a batch, for a beam of 1."""


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Where converted models are kept: $REGARD_CACHE, or the user's cache directory."""
    if given := os.environ.get("REGARD_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def converted(folder: Path, *, int8: bool) -> Path:
    """The model of a folder as CTranslate2 reads it, converted now if it was not before."""
    kind = "int8" if int8 else "float32"
    place = cache_folder() / "ctranslate2" / f"{_fingerprint(folder)}-{kind}"
    if not (place / "model.bin").is_file():
        from regard.interop.ctranslate2 import convert

        with replaced_folder(place) as temporary:
            convert(folder, temporary, int8=int8)
    return place


def _fingerprint(folder: Path) -> str:
    """A name that changes with the weights and the configuration."""
    digest = hashlib.sha256()
    for file in (folder / CONFIG, weights_file(folder)):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class _Batch:
    """Sentences that were handed to a worker together."""

    indices: list[int]
    results: list[Any]


class FastEngine:
    """Beam search by CTranslate2."""

    name = "ctranslate2"

    def __init__(
        self, folder: Path, tokenizer: Tokenizer, target: Tokenizer, *, int8: bool = False
    ) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(
            str(converted(folder, int8=int8)),
            device="cpu",
            compute_type="int8" if int8 else "float32",
            inter_threads=cores(),
            intra_threads=1,
            max_queued_batches=-1,
        )
        self._tokens = [tokenizer.token_of(id) for id in range(len(tokenizer))]
        self._ids = {target.token_of(id): id for id in range(len(target))}

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> "_Pending":
        """Hand the sentences to the workers; the call returns at once."""
        lengths = [len(source) for source in sources]
        budget = max(_TOKENS // options.beam, 1)
        batches = batches_by_length(lengths, tokens=budget, rows=_ROWS)
        pending = _Pending(self, sources, options)
        for batch in batches:
            pending.batches.append(_Batch(batch, self.begin(sources, batch, options)))
        return pending

    def begin(
        self, sources: Sequence[list[int]], batch: list[int], options: SearchOptions
    ) -> list[Any]:
        """Results of one batch, as promises."""
        longest = max(len(sources[index]) for index in batch)
        return self.translator.translate_batch(
            [[self._tokens[id] for id in sources[index]] for index in batch],
            beam_size=options.beam,
            num_hypotheses=options.n_best,
            length_penalty=options.alpha,
            max_decoding_length=options.limit(longest),
            max_input_length=0,
            disable_unk=True,
            return_scores=True,
            asynchronous=True,
        )

    def found(self, result: Any) -> list[Found]:
        """What a worker has found for one sentence."""
        pairs = zip(result.hypotheses, result.scores, strict=True)
        return [Found([self._ids[token] for token in tokens], score) for tokens, score in pairs]


@dataclass
class _Pending:
    """Batches that workers are busy with."""

    engine: FastEngine
    sources: Sequence[list[int]]
    options: SearchOptions

    def __post_init__(self) -> None:
        self.batches: list[_Batch] = []

    def wait(self) -> list[list[Found]]:
        """All translations, in the order of the sentences."""
        found: list[list[Found]] = [[] for _ in self.sources]
        for batch in self.batches:
            for index, promise in zip(batch.indices, batch.results, strict=True):
                best = self.engine.found(promise.result())
                found[index] = best if self._within_limit(index, best) else self._alone(index)
        return found

    def _within_limit(self, index: int, best: list[Found]) -> bool:
        limit = self.options.limit(len(self.sources[index]))
        return all(len(one.ids) < limit for one in best)

    def _alone(self, index: int) -> list[Found]:
        """Once more with the sentence's own limit, so that no neighbour decides where it ends."""
        (promise,) = self.engine.begin(self.sources, [index], self.options)
        return self.engine.found(promise.result())
