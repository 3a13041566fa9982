"""The CTranslate2 engine: one thread per worker and as many workers as cores.

A single sentence is limited by memory bandwidth: in float32 several threads read the weights up to
twice as fast as one, unless other processes keep the cores busy; in int8 one thread is faster.

Nothing here imports torch, so translation starts a fraction of a second after the command. A model
is converted once and kept in the user's cache under a hash of its files.

A `Shortlist` holds the target tokens that each source token can become.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

from regard.errors import FileError, InputError
from regard.files import cache_folder, cached_folder, write_atomic
from regard.generation.search import Hypothesis, SearchOptions, prefix_ids
from regard.generation.sentences import batches_by_length
from regard.hardware import cpu_count, single_request_threads
from regard.model_folder import (
    CONFIG,
    TARGET_TOKENIZER,
    TOKENIZER,
    read_description,
    read_tokenizers,
    weights_file,
)
from regard.text.tokenizer import Tokenizer, suppressed_ids, token_names

SHORTLIST = "shortlist.json"
_SPACES = set(" \t\n\r")


@dataclass(frozen=True)
class Shortlist:
    """Target ids that can be predicted: always, and for each source id."""

    always: Sequence[int]
    words: Mapping[int, Sequence[int]]

    def candidates(self, sources: Iterable[Sequence[int]]) -> list[int]:
        """Return the sorted target ids for a batch of sources."""
        found = set(self.always)
        for id in {id for source in sources for id in source}:
            found.update(self.words.get(id, ()))
        return sorted(found)

    def save(self, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
        """Write the shortlist into a model folder, with the fingerprints of its tokenizers."""
        data = {
            "tokenizers": [source.fingerprint, target.fingerprint],
            "always": list(self.always),
            "words": {str(id): list(ids) for id, ids in sorted(self.words.items())},
        }
        write_atomic(folder / SHORTLIST, json.dumps(data, separators=(",", ":")))

    def vocabulary_map(self, source: Sequence[str], target: Sequence[str]) -> str:
        """Return CTranslate2's format: source token, tab, target tokens; the general ones first."""
        rules = [("", self.always), *((source[id], ids) for id, ids in sorted(self.words.items()))]
        named = [(name, [target[id] for id in ids]) for name, ids in rules]
        return "".join(
            f"{name}\t{' '.join(one for one in found if not _SPACES & set(one))}\n"
            for name, found in named
            if not _SPACES & set(name)
        )


def read_shortlist(folder: Path, source: Tokenizer, target: Tokenizer) -> Shortlist:
    """Read the shortlist of a model folder; refuses one of other tokenizers."""
    file = folder / SHORTLIST
    if not file.is_file():
        raise InputError(
            f"{folder} has no shortlist: learn one with `regard shortlist {folder} SOURCE TARGET`."
        )
    try:
        data = json.loads(file.read_bytes())
        tokenizers, always = data["tokenizers"], tuple(map(int, data["always"]))
        words = {int(id): tuple(map(int, ids)) for id, ids in data["words"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{file} is damaged ({error}): learn the shortlist again.") from error
    if tokenizers != [source.fingerprint, target.fingerprint]:
        raise InputError(f"{file} was learned with other tokenizers: learn the shortlist again.")
    return Shortlist(always, words)


MODEL, VOCABULARY_MAP = "model.bin", "vmap.txt"
_VERSION = "3"  # changes when the same folder is converted differently


class CTranslate2Engine:
    """Beam search with CTranslate2; the model's `n_vocab` may exceed the tokenizer's."""

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
        self._source_names = token_names(tokenizer, len(tokenizer))
        self._target_names = token_names(target, n_vocab)
        self._target_ids = {name: id for id, name in enumerate(self._target_names)}
        self._target, self._has_shortlist, self.int8 = target, shortlist is not None, int8
        self.precision = "int8" if int8 else "float32"
        rules = shortlist and shortlist.vocabulary_map(self._source_names, self._target_names)
        self._folder = converted(folder, int8=int8, vocabulary_map=rules)

    @cached_property
    def batch_translator(self) -> Any:
        """The translator of batches: as many workers as cores."""
        return self._open(inter_threads=cpu_count(), intra_threads=1)

    @cached_property
    def single_translator(self) -> Any:
        """The translator of a single sentence on several threads, for a machine that is idle."""
        if self.int8 or cpu_count() == 1:
            return self.batch_translator
        return self._open(inter_threads=1, intra_threads=min(cpu_count(), 4))

    def _open(self, **threads: int) -> Any:
        import ctranslate2

        options = {"device": "cpu", "compute_type": self.precision, "max_queued_batches": -1}
        return ctranslate2.Translator(str(self._folder), **options, **threads)

    def submit(
        self,
        sources: Sequence[list[int]],
        options: SearchOptions,
        starts: Sequence[list[int]] | None = None,
    ) -> Callable[[], list[list[Hypothesis]]]:
        # With a shortlist translations depend on their batch, so it must not depend on the machine.
        # It also has more candidates in larger batches.
        workers, rows = (1, 32) if self._has_shortlist else (cpu_count(), 64)
        batches = batches_by_length(
            [len(source) for source in sources],
            tokens=max(2048 // options.beam, 1),
            rows=rows,
            workers=workers,
            group=options.length_group,
        )
        alone = len(sources) == 1 and single_request_threads() > 1
        translator = self.single_translator if alone else self.batch_translator
        started: dict[int, Any] = {}
        for batch in batches:
            forced = None if starts is None else [starts[i] for i in batch]
            futures = self._start(translator, [sources[i] for i in batch], options, forced)
            started |= zip(batch, futures, strict=True)

        def wait() -> list[list[Hypothesis]]:
            limits = [options.limit(len(source)) for source in sources]
            return [self._hypotheses(started[i].result(), n) for i, n in enumerate(limits)]

        return wait

    def _start(
        self,
        translator: Any,
        batch: list[list[int]],
        options: SearchOptions,
        starts: Sequence[list[int]] | None,
    ) -> list[Any]:
        starts = [prefix_ids(self._target, options)] * len(batch) if starts is None else starts
        prefixes = [[self._target_names[id] for id in start] for start in starts]
        return translator.translate_batch(
            [[self._source_names[id] for id in source] for source in batch],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=options.beam,
            num_hypotheses=options.n_best,
            length_penalty=options.alpha if options.penalty == "average" else 0.0,
            max_decoding_length=options.limit(len(batch[0])),
            min_decoding_length=options.min_length(len(batch[0])),
            max_input_length=0,
            no_repeat_ngram_size=options.no_repeat,
            use_vmap=self._has_shortlist,
            return_scores=options.scores or options.beam > 1,
            asynchronous=True,
        )

    def _hypotheses(self, result: Any, limit: int) -> list[Hypothesis]:
        scores = result.scores or [nan] * len(result.hypotheses)
        return [
            Hypothesis([self._target_ids[name] for name in names], [], score, len(names) < limit)
            for names, score in zip(result.hypotheses, scores, strict=True)
        ]


def converted(folder: Path, *, int8: bool, vocabulary_map: str | None = None) -> Path:
    """Return the folder of the converted model; converts it if the cache does not have it."""
    dtype = kind = "int8" if int8 else "float32"
    if vocabulary_map is not None:
        kind += "-" + hashlib.sha256(vocabulary_map.encode()).hexdigest()[:16]
    place = cache_folder() / "ctranslate2" / f"{fingerprint(folder)}-{kind}"
    if place.is_dir():
        return place
    from regard.interop.ctranslate2 import convert

    described = read_description(folder)
    own, separate = read_tokenizers(folder, described)
    target = separate or own
    # Suppressing tokens in the converted model itself costs no time.
    suppressed = [] if target is None else suppressed_ids(target, int(described.model["n_vocab"]))

    def make(fresh: Path) -> None:
        convert(folder, fresh, quantization=dtype, suppressed=suppressed)
        if vocabulary_map is not None:
            write_atomic(fresh / VOCABULARY_MAP, vocabulary_map)

    try:
        return cached_folder(place, make)
    except FileError as error:
        if place.parent.is_dir():
            raise
        raise FileError(
            f"{error} Converted models are kept there: set the environment variable REGARD_CACHE "
            "to another folder."
        ) from error


def fingerprint(folder: Path) -> str:
    """Return a hash of the weights, the configuration and the tokenizers.

    Files are read once; afterwards they are identified by their size and modification time.
    """
    files = _model_files(folder)
    if (known := known_fingerprint(folder, files)) is not None:
        return known
    name = _hash_files(files)
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(_stamp(files), name)
    return name


def known_fingerprint(folder: Path, files: list[Path] | None = None) -> str | None:
    """Return the fingerprint of a folder whose files were read before, or None."""
    with suppress(OSError):
        return _stamp(files or _model_files(folder)).read_text("ascii")
    return None


def _model_files(folder: Path) -> list[Path]:
    files = [folder / CONFIG, weights_file(folder), folder / TOKENIZER, folder / TARGET_TOKENIZER]
    return [file.resolve() for file in files if file.is_file()]


def _stamp(files: list[Path]) -> Path:
    """Return the file that keeps the fingerprint of files with these sizes and times."""
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return cache_folder() / "seen" / hashlib.sha256(repr((_VERSION, stats)).encode()).hexdigest()


def _hash_files(files: list[Path]) -> str:
    digest = hashlib.sha256(_VERSION.encode())
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]
