"""Contenders of the translation benchmark, each in its own process with its own memory."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.bench.timing import process_memory, reset_peak_memory
from regard.data.batches import pad
from regard.files import chunks
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.hardware import cpu_count

BATCH_SIZE = 64  # sentences in a batch of CTranslate2 and transformers


@dataclass(frozen=True)
class TranslationSetting:
    """One way to translate."""

    beam: int
    batched: bool  # all lines in batches, or each line alone, one after another
    text: bool  # from text to text, or from token ids to token ids
    length: int | None = None  # tokens to generate with random weights; None: until the end

    def options(self) -> SearchOptions:
        """Return the settings for our engines."""
        fixed = {} if self.length is None else {"factor": 0.0, "extra": self.length}
        return SearchOptions(beam=self.beam, scores=False, **fixed)


class OurContender:
    """Our translator.

    As in all contenders, `encode` returns the tokens of each line, and `translate` those of each
    translation, given texts or (without `setting.text`) what `encode` returned.
    """

    def __init__(self, folder: Path, *, int8: bool = False, **options: Any) -> None:
        precision = "int8" if int8 else "float32"
        self.translator = open_translator(folder, precision=precision, **options)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self.translator.tokenizer.encode_batch(lines, literal=True)

    def translate(self, given: Sequence[Any], setting: TranslationSetting) -> list[list[int]]:
        options = setting.options()
        if setting.text:
            found = self.translator.translate(given, options)
            return [[id for part in one.parts for id in part.ids] for one in found]
        return [best[0].ids for best in self.translator.engine.submit(given, options)()]


class CTranslate2Contender:
    """CTranslate2 with default settings or, if `best`, one worker for each core."""

    def __init__(self, folder: Path, *, int8: bool, best: bool) -> None:
        import ctranslate2

        from regard.generation.ctranslate2_engine import converted

        settings = {"inter_threads": cpu_count(), "intra_threads": 1} if best else {}
        kind = "int8" if int8 else "float32"
        path = str(converted(folder, int8=int8))
        self.engine = ctranslate2.Translator(path, compute_type=kind, **settings)
        self.backend = open_translator(folder).tokenizer.backend
        self._ids = self.backend.get_vocab()

    def encode(self, lines: Sequence[str]) -> list[list[str]]:
        return [encoding.tokens for encoding in self.backend.encode_batch(list(lines))]

    def translate(self, given: Sequence[Any], setting: TranslationSetting) -> list[list[Any]]:
        length = {} if setting.length is None else {"max_decoding_length": setting.length}
        results = self.engine.translate_batch(
            self.encode(given) if setting.text else given,
            beam_size=setting.beam,
            max_batch_size=BATCH_SIZE,
            **length,
        )
        best = [result.hypotheses[0] for result in results]
        if not setting.text:
            return best
        ids = [[self._ids[token] for token in tokens] for tokens in best]
        self.backend.decode_batch(ids)
        return ids


class HuggingFaceContender:
    """`generate` of transformers with the same weights."""

    def __init__(self, folder: Path, *, exported: str) -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        torch.set_num_threads(cpu_count())
        self.model = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
        self.tokenizer = open_translator(folder, engine="ctranslate2").tokenizer

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch(lines, literal=True)

    def translate(self, given: Sequence[Any], setting: TranslationSetting) -> list[list[int]]:
        ids = sorted(self.encode(given) if setting.text else given, key=len, reverse=True)
        batches = chunks(ids, BATCH_SIZE)
        written = [row for batch in batches for row in self._generate(batch, setting)]
        if setting.text:
            self.tokenizer.decode_batch(written)
        return written

    def _generate(self, batch: list[list[int]], setting: TranslationSetting) -> list[list[int]]:
        import torch

        ids, lengths = map(torch.from_numpy, pad(batch, 0))
        limits = {"max_new_tokens": 2 * ids.size(1) + 20}
        if setting.length is not None:
            limits = {"max_new_tokens": setting.length, "min_new_tokens": setting.length}
        mask = (torch.arange(ids.size(1)) < lengths[:, None]).long()
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids, attention_mask=mask, num_beams=setting.beam, **limits
            )
        special = self.tokenizer.end_id, self.tokenizer.pad_id
        return [[id for id in row[1:] if id not in special] for row in found.tolist()]


@dataclass(frozen=True)
class TranslationRun:
    """Seconds of wall and CPU time, generated tokens and peak megabytes of one run."""

    wall: float
    cpu: float
    tokens: int
    peak: float


@lru_cache
def _open(kind: Callable[..., Any], folder: Path, **options: Any) -> Any:
    return kind(folder, **options)


def timed_run(
    kind: Callable[..., Any],
    folder: Path,
    options: dict[str, Any],
    lines: Sequence[str],
    setting: TranslationSetting,
) -> TranslationRun:
    """Measure one run of a contender, which is opened once in each process."""
    contender = _open(kind, folder, **options)
    given = list(lines) if setting.text else contender.encode(lines)
    groups = [given] if setting.batched else [[one] for one in given]
    reset_peak_memory()
    cpu, wall = time.process_time(), time.perf_counter()
    written = [tokens for group in groups for tokens in contender.translate(group, setting)]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return TranslationRun(wall, cpu, sum(map(len, written)), process_memory())
