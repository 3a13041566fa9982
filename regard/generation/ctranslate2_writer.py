"""Texts continued by CTranslate2; no torch."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import nan
from pathlib import Path
from threading import Event, Lock
from typing import Any
from weakref import ref

from regard.generation.ctranslate2_engine import converted
from regard.generation.sampling import OnToken
from regard.generation.search import Hypothesis, SamplingOptions
from regard.hardware import single_request_threads
from regard.text.tokenizer import Tokenizer

_LONGER = 16  # tokens that prompts of a batch may be longer than its shortest
_SEEDING = Lock()
"""Held while a thread of CTranslate2 takes its seed, which is one variable for all."""
if hasattr(os, "register_at_fork"):
    _release = {f"after_in_{where}": _SEEDING.release for where in ("parent", "child")}
    os.register_at_fork(before=_SEEDING.acquire, **_release)


class CTranslate2Writer:
    """Greedy search, or sampling by CTranslate2's own random numbers."""

    name = "ctranslate2"

    def __init__(self, folder: Path, tokenizer: Tokenizer, *, int8: bool = False) -> None:
        self.tokenizer, self.int8 = tokenizer, int8
        self.precision = "int8" if int8 else "float32"
        self._folder = converted(folder, int8=int8)

    @cached_property
    def _generator(self) -> Any:
        return self._open()

    def _open(self) -> Any:
        import ctranslate2

        # In int8 one thread is faster than several.
        threads = 1 if self.int8 else single_request_threads()
        return ctranslate2.Generator(
            str(self._folder), compute_type=self.precision, intra_threads=threads
        )

    def write(
        self, prompts: Sequence[list[int]], options: SamplingOptions, on_token: OnToken | None
    ) -> list[Hypothesis]:
        if options.temperature > 0:  # each with its seed
            groups = [[row] for row in range(len(prompts))]
        else:
            groups = _groups([len(prompt) for prompt in prompts])
        found: dict[int, Hypothesis] = {}
        for rows in groups:
            found |= self._write(rows, [prompts[row] for row in rows], options, on_token)
        return [found[row] for row in range(len(prompts))]

    def _seeded(self, seed: int, prompt: list[str]) -> Any:
        """Return a generator whose thread, which is new, has this seed."""
        import ctranslate2

        generator = self._open()
        with _SEEDING:
            ctranslate2.set_random_seed(seed % 2**32)
            generator.generate_batch([prompt[:1]], max_length=1, sampling_topk=2)  # takes the seed
        return generator

    def _write(
        self,
        rows: list[int],
        prompts: list[list[int]],
        options: SamplingOptions,
        on_token: OnToken | None,
    ) -> dict[int, Hypothesis]:
        """Continue some of the prompts together if greedy, or one that is drawn."""
        best, end_id = options.temperature == 0, self.tokenizer.end_id
        named = [[self.tokenizer.token_of(id) for id in ids] for ids in prompts]
        generator = self._generator if best else self._seeded(options.seed, named[0])
        receiver = _TokenReceiver(rows, end_id, on_token)
        results = generator.generate_batch(
            named,
            max_length=options.max_tokens,
            include_prompt_in_result=False,
            sampling_topk=1 if best else options.top_k or 0,
            sampling_topp=1.0 if best else options.top_p or 1.0,
            sampling_temperature=1.0 if best else options.temperature,
            return_end_token=True,
            callback=receiver.callback(),
            asynchronous=True,
        )
        written = receiver.wait(results)
        ended = [bool(ids) and ids[-1] == end_id for ids in written]
        texts = [ids[:-1] if end else ids for ids, end in zip(written, ended, strict=True)]
        found = [Hypothesis(ids, [], nan, end) for ids, end in zip(texts, ended, strict=True)]
        return dict(zip(rows, found, strict=True))

    def log_prob(self, prompt: list[int], found: Hypothesis) -> float:
        """Let the model read the text again, in one pass."""
        end = (
            [self.tokenizer.end_id] if found.finished and self.tokenizer.end_id is not None else []
        )
        names = [self.tokenizer.token_of(id) for id in [*prompt, *found.ids, *end]]
        (scored,) = self._generator.score_batch([names])
        return sum(list(scored.log_probs)[len(prompt) - 1 :][: len(found.ids) + len(end)])


def _groups(lengths: Sequence[int]) -> list[list[int]]:
    """Return the prompts that are continued together: those of similar length.

    What is longer than the shortest prompt of a batch is read token by token.
    """
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if groups and lengths[row] <= lengths[groups[-1][0]] + _LONGER:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


class _TokenReceiver:
    """Receives tokens on CTranslate2's thread; the caller's thread waits and can be interrupted."""

    def __init__(self, rows: list[int], end_id: int | None, on_token: OnToken | None) -> None:
        self.rows, self.end_id, self.on_token = rows, end_id, on_token
        self._written: list[list[int]] = [[] for _ in rows]
        self._stopped = [False] * len(rows)
        self._error: BaseException | None = None
        self._closed, self._released = False, Event()

    def callback(self) -> Callable[[Any], bool]:
        """Return what CTranslate2 calls with each token.

        Only CTranslate2 holds this object, and drops it in the end, whatever happens. Waiting for
        that keeps its thread from touching Python while the interpreter exits, which would abort
        the process.
        """
        called = partial(self._receive)
        self._watch = ref(called, lambda _: self._released.set())
        return called

    def _receive(self, step: Any) -> bool:
        """Pass a token on; True ends the text."""
        row = step.batch_id
        if self._closed or self._stopped[row]:
            return True
        self._written[row].append(step.token_id)
        if self.on_token is not None and step.token_id != self.end_id:
            try:
                self._stopped[row] = bool(self.on_token(self.rows[row], step.token_id))
            except BaseException as error:  # raised again by `wait`
                self._error, self._closed = error, True
        return self._closed or self._stopped[row]

    def wait(self, results: list[Any]) -> list[list[int]]:
        """Wait for the last token of each text; return all."""
        try:
            self._released.wait()
        finally:
            self._closed = True
        for result in results:
            result.result()  # raises errors of CTranslate2
        if self._error is not None:
            raise self._error
        return self._written
