"""The fast engine: CTranslate2, one thread for each worker, as many workers as cores.

A sentence by itself waits for memory more than for the processor: in float32 several threads read
the weights up to twice as fast as one (in int8 one is faster, by far).

Nothing here imports torch, so a translation begins a fraction of a second after the command. The
model is converted once and kept in the user's cache, under a name made of what it was made of.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

from regard.errors import FileError
from regard.files import cache_folder, write_atomic
from regard.generation.search import Found, SearchOptions, begun_with
from regard.generation.sentences import batches_by_length, rows_for
from regard.generation.vocabulary_shortlist import Shortlist
from regard.hardware import cpu_count, single_request_threads
from regard.model_folder import (
    CONFIG,
    TARGET_TOKENIZER,
    TOKENIZER,
    read_description,
    read_tokenizers,
    weights_file,
)
from regard.text.token_names import suppressed_ids, token_names
from regard.text.tokenizer import Tokenizer

MODEL, VOCABULARY_MAP = "model.bin", "vmap.txt"
_VERSION = "2"
"""Changes when the same folder is converted differently."""


def converted(folder: Path, *, int8: bool, vocabulary_map: str | None = None) -> Path:
    """The model of a folder as CTranslate2 reads it, converted now if it was not before.

    Args:
        vocabulary_map: a shortlist to put beside it.
    """
    kind = "int8" if int8 else "float32"
    if vocabulary_map is not None:
        kind += "-" + hashlib.sha256(vocabulary_map.encode()).hexdigest()[:16]
    place = cache_folder() / "ctranslate2" / f"{fingerprint(folder)}-{kind}"
    if (place / MODEL).is_file():
        return place
    from regard.interop.ctranslate2 import convert

    # Of several processes that convert at once, each has a folder of its own; one of them stays.
    fresh = _room_beside(place)
    try:
        convert(
            folder,
            fresh / "model",
            quantization="int8" if int8 else "float32",
            never=_never(folder),
        )
        if vocabulary_map is not None:
            write_atomic(fresh / "model" / VOCABULARY_MAP, vocabulary_map)
        (fresh / "model").rename(place)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        if not (place / MODEL).is_file():  # and nobody else has put it there
            raise FileError(f"{place} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return place


def _never(folder: Path) -> list[int]:
    """What no translation holds; engines are slower if they must be told each time."""
    described = read_description(folder)
    own, theirs = read_tokenizers(folder, described)
    target = theirs or own
    return [] if target is None else suppressed_ids(target, int(described.model["n_vocab"]))


def fingerprint(folder: Path) -> str:
    """A name that changes with the weights, the configuration or a tokenizer.

    Large files are read once: afterwards their size and time tell whether they are the same.
    """
    files = [folder / CONFIG, weights_file(folder), folder / TOKENIZER, folder / TARGET_TOKENIZER]
    there = [file.resolve() for file in files if file.is_file()]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in there]
    stamp = cache_folder() / "seen" / hashlib.sha256(repr((_VERSION, stats)).encode()).hexdigest()
    try:
        return stamp.read_text("ascii")
    except OSError:
        name = _contents(there)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(stamp, name)
    return name


def _contents(files: list[Path]) -> str:
    digest = hashlib.sha256(_VERSION.encode())
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]


def _room_beside(place: Path) -> Path:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=place.parent, prefix=".making-"))
    except OSError as error:
        raise FileError(
            f"{place.parent} cannot be written ({error.strerror}), and converted models are kept "
            "there: name another place in the environment as REGARD_CACHE."
        ) from error


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
        self._tokens = token_names(tokenizer, len(tokenizer))
        self._written = token_names(target, n_vocab)
        self._narrow, self._target, self.int8 = shortlist is not None, target, int8
        rules = shortlist and shortlist.vocabulary_map(self._tokens, self._written)
        self._place = converted(folder, int8=int8, vocabulary_map=rules)
        self._ids = {token: id for id, token in enumerate(self._written)}

    @cached_property
    def many(self) -> Any:
        """For batches: as many workers as cores."""
        return self._open(inter_threads=cpu_count(), intra_threads=1)

    @cached_property
    def alone(self) -> Any:
        """For a sentence by itself."""
        if self.int8 or cpu_count() == 1:
            return self.many
        return self._open(inter_threads=1, intra_threads=single_request_threads())

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
        # With a shortlist neighbors matter, so there they do not depend on the machine.
        workers, most = (1, _NARROW_ROWS) if self._narrow else (cpu_count(), _ROWS)
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
