"""Contenders of the translation benchmark, each in its own process with its own memory.

A process reads one JSON object per line (first its settings, then requests) and answers each with
one. `regard.bench.translation` starts this module.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.bench.timing import process_memory, reset_peak_memory
from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.hardware import cpu_count

BATCH_SIZE = 64  # sentences in a batch of CTranslate2 and transformers


@dataclass(frozen=True)
class TranslationSetting:
    """One way to translate.

    Args:
        batched: all lines in batches, or each line alone, one after another.
        text: from text to text, or from token ids to token ids.
        length: number of tokens to generate for models with random weights; None until the end.
    """

    beam: int
    batched: bool
    text: bool
    length: int | None = None

    def options(self) -> SearchOptions:
        """Return the settings for our engines."""
        fixed = {} if self.length is None else {"factor": 0.0, "extra": self.length}
        return SearchOptions(beam=self.beam, scores=False, **fixed)


class OurContender:
    """Our translator; as in the other contenders, `run` returns the ids of each translation."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.translator = open_translator(folder, **options)

    def run(self, lines: Sequence[str], setting: TranslationSetting) -> list[list[int]]:
        options = setting.options()
        if setting.text:
            groups = [lines] if setting.batched else [[line] for line in lines]
            found = [one for group in groups for one in self.translator.translate(group, options)]
            return [[id for part in one.parts for id in part.ids] for one in found]
        ids = encode_once(self.translator.tokenizer, lines)
        batches = [ids] if setting.batched else [[one] for one in ids]
        engine = self.translator.engine
        return [best[0].ids for batch in batches for best in engine.submit(batch, options)()]


class CTranslate2Contender:
    """CTranslate2 with default settings or, if `best`, one worker for each core."""

    def __init__(self, folder: Path, *, int8: bool, best: bool) -> None:
        import ctranslate2

        from regard.generation.ctranslate2_engine import converted

        settings = {"inter_threads": cpu_count(), "intra_threads": 1} if best else {}
        kind = "int8" if int8 else "float32"
        path = str(converted(folder, int8=int8))
        self.engine = ctranslate2.Translator(path, compute_type=kind, **settings)
        self.tokenizer = open_translator(folder).tokenizer
        self._ids = self.tokenizer.backend.get_vocab()

    def run(self, lines: Sequence[str], setting: TranslationSetting) -> list[list[int]]:
        groups = [list(lines)] if setting.batched else [[line] for line in lines]
        return [ids for group in groups for ids in self._translate(group, setting)]

    def _translate(self, lines: list[str], setting: TranslationSetting) -> list[list[int]]:
        backend = self.tokenizer.backend
        if setting.text:
            tokens = [encoding.tokens for encoding in backend.encode_batch(lines)]
        else:
            tokens = encode_once(self.tokenizer, lines, names=True)
        length = {} if setting.length is None else {"max_decoding_length": setting.length}
        results = self.engine.translate_batch(
            tokens, beam_size=setting.beam, max_batch_size=BATCH_SIZE, **length
        )
        best = [result.hypotheses[0] for result in results]
        if not setting.text:
            return [[0] * len(tokens) for tokens in best]
        ids = [[self._ids[token] for token in tokens] for tokens in best]
        backend.decode_batch(ids)
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

    def run(self, lines: Sequence[str], setting: TranslationSetting) -> list[list[int]]:
        ids = encode_once(self.tokenizer, lines)
        if setting.batched:
            ids = sorted(ids, key=len, reverse=True)
        size = BATCH_SIZE if setting.batched else 1
        batches = (ids[first : first + size] for first in range(0, len(ids), size))
        written = [row for batch in batches for row in self._generate(batch, setting)]
        if setting.text:
            self.tokenizer.decode_batch(written)
        return written

    def _generate(self, batch: list[list[int]], setting: TranslationSetting) -> list[list[int]]:
        import torch

        width = max(map(len, batch))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in batch])
        limits = {"max_new_tokens": 2 * width + 20}
        if setting.length is not None:
            limits = {"max_new_tokens": setting.length, "min_new_tokens": setting.length}
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids, attention_mask=mask, num_beams=setting.beam, **limits
            )
        special = self.tokenizer.end_id, self.tokenizer.pad_id
        return [[id for id in row[1:] if id not in special] for row in found.tolist()]


_ENCODED: dict[tuple[int, str, int, bool], list[Any]] = {}


def encode_once(tokenizer: Any, lines: Sequence[str], *, names: bool = False) -> list[Any]:
    """Return the token ids (or names) of each line, cached so that encoding is not timed."""
    key = id(tokenizer), lines[0], len(lines), names
    if key not in _ENCODED:
        ids = tokenizer.encode_batch(lines, literal=True)
        _ENCODED[key] = [[tokenizer.token_of(id) for id in row] for row in ids] if names else ids
    return _ENCODED[key]


@dataclass(frozen=True)
class TranslationRun:
    """Seconds of wall and CPU time, generated tokens and peak megabytes of one run."""

    wall: float
    cpu: float
    tokens: int
    peak: float


class BenchProcess:
    """The process of a contender."""

    def __init__(self, kind: str, folder: Path, **options: Any) -> None:
        self.kind = kind
        command = [sys.executable, "-m", "regard.bench.translation_contenders"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._request({"kind": kind, "folder": str(folder), **options})

    def run(self, lines: Sequence[str], setting: TranslationSetting) -> TranslationRun:
        """Let the contender translate these lines."""
        return TranslationRun(**self._request({"lines": list(lines), "setting": asdict(setting)}))

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise InputError(f"{self.kind} could not be measured; its error is printed above.")
        return json.loads(answer)


CONTENDER_KINDS: dict[str, Any] = {
    "ours": OurContender,
    "ctranslate2": CTranslate2Contender,
    "transformers": HuggingFaceContender,
}


def timed_run(contender: Any, lines: Sequence[str], setting: TranslationSetting) -> TranslationRun:
    """Measure one run of a contender."""
    reset_peak_memory()
    cpu, wall = time.process_time(), time.perf_counter()
    written = contender.run(lines, setting)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return TranslationRun(wall, cpu, sum(map(len, written)), process_memory())


def main() -> None:
    """Answer requests until standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # libraries that print must not mix with the answers
    first = json.loads(sys.stdin.readline())
    contender = CONTENDER_KINDS[first.pop("kind")](Path(first.pop("folder")), **first)
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        run = timed_run(contender, request["lines"], TranslationSetting(**request["setting"]))
        print(json.dumps(asdict(run)), file=answers, flush=True)


if __name__ == "__main__":
    main()
