"""A contender in a process of its own, so that each has its own memory and nobody's threads.

It reads one JSON object to a line: first who it is, then what to do; and answers each by one.
Run by `regard.bench.translation`, never by hand.
"""

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.bench.timing import forget_peak, memory
from regard.errors import InputError
from regard.generation.search import SearchOptions
from regard.generation.translator import open_translator
from regard.hardware import cpu_count

ROWS = 64
"""Sentences of a batch, for those who are told."""


@dataclass(frozen=True)
class Setting:
    """One way to translate."""

    beam: int
    together: bool
    """All lines in batches, or each line by itself, the next when the last is answered."""
    text: bool
    """From text to text, or from token ids to token ids."""
    length: int | None = None
    """Tokens to write for each line, for models that have learned nothing; None: until the end."""

    def options(self) -> SearchOptions:
        """The same for our own engines; lines of text need no scores."""
        fixed = {} if self.length is None else {"factor": 0.0, "extra": self.length}
        return SearchOptions(beam=self.beam, scores=False, **fixed)


class Contender(ABC):
    """Somebody who translates."""

    @abstractmethod
    def run(self, lines: Sequence[str], setting: Setting) -> list[list[int]]:
        """The token ids of each line's translation; the text is made, too, if asked for."""


class Ours(Contender):
    """Our own way, by one of the engines."""

    def __init__(
        self, folder: Path, *, engine: str, int8: bool = False, shortlist: bool = False
    ) -> None:
        self.translator = open_translator(folder, engine=engine, int8=int8, shortlist=shortlist)

    def run(self, lines: Sequence[str], setting: Setting) -> list[list[int]]:
        options = setting.options()
        if setting.text:
            groups = [lines] if setting.together else [[line] for line in lines]
            found = [one for group in groups for one in self.translator.translate(group, options)]
            return [[id for part in one.parts for id in part.ids] for one in found]
        engine = self.translator.engine
        ids = encoded(self.translator.tokenizer, lines)
        groups = [ids] if setting.together else [[one] for one in ids]
        return [best[0].ids for group in groups for best in engine.submit(group, options)()]


class Bare(Contender):
    """A loop around CTranslate2, as its documentation writes it."""

    def __init__(self, folder: Path, *, int8: bool, best: bool) -> None:
        import ctranslate2

        from regard.generation.ctranslate2_engine import converted

        settings = {"inter_threads": cpu_count(), "intra_threads": 1} if best else {}
        kind = "int8" if int8 else "float32"
        place = str(converted(folder, int8=int8))
        self.engine = ctranslate2.Translator(place, compute_type=kind, **settings)
        self.tokenizer = open_translator(folder).tokenizer
        self._ids = self.tokenizer.backend.get_vocab()

    def run(self, lines: Sequence[str], setting: Setting) -> list[list[int]]:
        groups = [list(lines)] if setting.together else [[line] for line in lines]
        return [ids for group in groups for ids in self._translated(group, setting)]

    def _translated(self, lines: list[str], setting: Setting) -> list[list[int]]:
        backend = self.tokenizer.backend
        if setting.text:
            tokens = [found.tokens for found in backend.encode_batch(lines)]
        else:
            tokens = named(self.tokenizer, lines)
        length = {} if setting.length is None else {"max_decoding_length": setting.length}
        results = self.engine.translate_batch(
            tokens, beam_size=setting.beam, max_batch_size=ROWS, **length
        )
        best = [result.hypotheses[0] for result in results]
        if not setting.text:
            return [[0] * len(written) for written in best]
        ids = [[self._ids[token] for token in written] for written in best]
        backend.decode_batch(ids)
        return ids


class HuggingFace(Contender):
    """`generate` of transformers, with the same weights."""

    def __init__(self, folder: Path, *, exported: str) -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        torch.set_num_threads(cpu_count())
        self.model = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
        self.tokenizer = open_translator(folder, engine="ctranslate2").tokenizer

    def run(self, lines: Sequence[str], setting: Setting) -> list[list[int]]:
        ids = encoded(self.tokenizer, lines)
        if setting.together:  # sorted, as its users do by hand
            order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
            ids = [ids[i] for i in order]
        step = ROWS if setting.together else 1
        written = []
        for first in range(0, len(ids), step):
            written += self._generated(ids[first : first + step], setting)
        if setting.text:
            self.tokenizer.decode_batch(written)
        return written

    def _generated(self, batch: list[list[int]], setting: Setting) -> list[list[int]]:
        import torch

        width = max(map(len, batch))
        table = torch.tensor([ids + [0] * (width - len(ids)) for ids in batch])
        seen = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in batch])
        length: dict[str, Any] = {"max_new_tokens": 2 * width + 20}
        if setting.length is not None:
            length = {"max_new_tokens": setting.length, "min_new_tokens": setting.length}
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=table, attention_mask=seen, num_beams=setting.beam, **length
            )
        end, pad = self.tokenizer.end_id, self.tokenizer.pad_id
        return [[id for id in row[1:] if id not in (end, pad)] for row in found.tolist()]


def encoded(tokenizer: Any, lines: Sequence[str]) -> list[list[int]]:
    """The ids of each line, made once: who is not timed for tokenizing asks here."""
    key = id(tokenizer), lines[0], len(lines)
    if key not in _ENCODED:
        _ENCODED[key] = tokenizer.encode_batch(lines, literal=True)
    return _ENCODED[key]


def named(tokenizer: Any, lines: Sequence[str]) -> list[list[str]]:
    """The same as tokens."""
    key = id(tokenizer), lines[0], len(lines)
    if key not in _NAMED:
        _NAMED[key] = [[tokenizer.token_of(id) for id in ids] for ids in encoded(tokenizer, lines)]
    return _NAMED[key]


_ENCODED: dict[tuple[int, str, int], list[list[int]]] = {}
_NAMED: dict[tuple[int, str, int], list[list[str]]] = {}


@dataclass(frozen=True)
class Run:
    """What one run of a contender took."""

    wall: float
    cpu: float
    """Seconds of all its threads together."""
    tokens: int
    peak: float
    """Megabytes of its process at most."""


class Worker:
    """A contender's process, as its parent sees it."""

    def __init__(self, kind: str, folder: Path, **options: Any) -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard.bench.translation_contenders"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ask({"kind": kind, "folder": str(folder), **options})

    def run(self, lines: Sequence[str], setting: Setting) -> Run:
        """Let it translate these lines."""
        return Run(**self._ask({"lines": list(lines), "setting": asdict(setting)}))

    def close(self) -> None:
        """End its process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise InputError(f"{self.kind} could not be measured; its own words stand above.")
        return json.loads(answer)


def made(kind: str, folder: Path, **options: Any) -> Contender:
    """The contender of this kind."""
    if kind == "ours":
        return Ours(folder, **options)
    return Bare(folder, **options) if kind == "bare" else HuggingFace(folder, **options)


def timed(contender: Contender, lines: Sequence[str], setting: Setting) -> Run:
    """One run, measured."""
    forget_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    written = contender.run(lines, setting)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Run(wall, cpu, sum(map(len, written)), memory())


def main() -> None:
    """Answer questions until there are no more."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    first = json.loads(sys.stdin.readline())
    contender = made(first.pop("kind"), Path(first.pop("folder")), **first)
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run = timed(contender, asked["lines"], Setting(**asked["setting"]))
        print(json.dumps(asdict(run)), file=answers, flush=True)


if __name__ == "__main__":
    main()
