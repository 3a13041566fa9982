"""Text generation: prompts in, continued texts out, on whatever engine is open; no torch."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import nan
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import ref

from regard.capabilities import choose_writer
from regard.errors import InputError
from regard.generation.ctranslate2_engine import converted
from regard.generation.numpy_decoder import NumpyDecoder, NumpyStepper
from regard.generation.sampling import sample
from regard.generation.search import Hypothesis, SamplingOptions
from regard.generation.text_stream import TextStream
from regard.generation.translator import max_positions
from regard.hardware import single_request_threads
from regard.model_folder import (
    is_transformers_folder,
    read_description,
    read_tokenizers,
    weights_file,
)
from regard.text.tokenizer import Tokenizer, suppressed_ids

if TYPE_CHECKING:
    from regard.trace.trace import Trace

OnToken = Callable[[int, int], bool | None]
"""Called with the number of a prompt and its next token; True ends the text."""
_ROWS = 16  # prompts that are continued together


@dataclass(frozen=True)
class Generation:
    """A text that a model generated."""

    text: str  # the prompt and its continuation
    written: str  # the continuation alone
    finished: bool  # True if the model ended the text itself, or a stop text did
    engine: str
    precision: str
    measure: Callable[[], float] = field(repr=False, compare=False)
    prompt: str = ""
    ids: tuple[int, ...] = field(default=(), repr=False)  # of the continuation
    ended: bool = False  # True if the model wrote its end token
    differs: tuple[int, ...] | None = None
    """The tokens of the text that float32 would have chosen otherwise, if that was measured."""
    trace: "Trace | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def log_prob(self) -> float:
        """The log-probability of all tokens that were chosen, as the model itself predicts them.

        CTranslate2 computes it when it is asked for, because it costs a tenth of the writing.
        """
        return self.measure()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the log-probability."""
        names = ["text", "written", "log_prob", "finished", "engine", "precision"]
        names += [] if self.differs is None else ["differs"]
        return {name: getattr(self, name) for name in names}


@runtime_checkable
class Writer(Protocol):
    """An engine that continues token ids."""

    name: str
    precision: str

    def write(
        self, prompts: Sequence[list[int]], options: SamplingOptions, on_token: OnToken | None
    ) -> list[Hypothesis]:
        """Continue each prompt."""
        ...

    def log_prob(self, prompt: list[int], found: Hypothesis) -> float:
        """Return the log-probability of what was written after a prompt."""
        ...


class NumpyWriter:
    """Sampling with a NumPy decoder."""

    name, precision = "numpy", "float32"

    def __init__(self, model: NumpyDecoder, tokenizer: Tokenizer) -> None:
        self.model, self.end_id = model, tokenizer.end_id
        self.barred = suppressed_ids(tokenizer, model.settings["n_vocab"])

    def write(
        self, prompts: Sequence[list[int]], options: SamplingOptions, on_token: OnToken | None
    ) -> list[Hypothesis]:
        stepper = NumpyStepper(self.model, [len(prompt) for prompt in prompts])
        # With equal seeds, a prompt's text does not depend on its place.
        return sample(
            stepper,
            prompts,
            options,
            end_id=self.end_id,
            barred=self.barred,
            seeds=[options.seed] * len(prompts),
            on_token=on_token,
        )

    def log_prob(self, prompt: list[int], found: Hypothesis) -> float:
        return found.log_prob


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
        return [self._write(row, ids, options, on_token) for row, ids in enumerate(prompts)]

    def _seeded(self, seed: int, prompt: list[str]) -> Any:
        """Return a generator whose thread, which is new, has this seed."""
        import ctranslate2

        generator = self._open()
        with _SEEDING:
            ctranslate2.set_random_seed(seed % 2**32)
            generator.generate_batch([prompt[:1]], max_length=1, sampling_topk=2)  # takes the seed
        return generator

    def _write(
        self, row: int, ids: list[int], options: SamplingOptions, on_token: OnToken | None
    ) -> Hypothesis:
        best, end_id = options.temperature == 0, self.tokenizer.end_id
        prompt = [self.tokenizer.token_of(id) for id in ids]
        generator = self._generator if best else self._seeded(options.seed, prompt)
        listener = _TokenReceiver(end_id, on_token and partial(on_token, row))
        (result,) = generator.generate_batch(
            [prompt],
            max_length=options.max_tokens,
            include_prompt_in_result=False,
            sampling_topk=1 if best else options.top_k or 0,
            sampling_topp=1.0 if best else options.top_p or 1.0,
            sampling_temperature=1.0 if best else options.temperature,
            return_end_token=True,
            callback=listener.callback(),
            asynchronous=True,
        )
        written = listener.wait(result)
        finished = bool(written) and written[-1] == end_id
        return Hypothesis(written[:-1] if finished else written, [], nan, finished)

    def log_prob(self, prompt: list[int], found: Hypothesis) -> float:
        """Let the model read the text again, in one pass."""
        end = (
            [self.tokenizer.end_id] if found.finished and self.tokenizer.end_id is not None else []
        )
        names = [self.tokenizer.token_of(id) for id in [*prompt, *found.ids, *end]]
        (scored,) = self._generator.score_batch([names])
        return sum(list(scored.log_probs)[len(prompt) - 1 :][: len(found.ids) + len(end)])


class _TokenReceiver:
    """Receives tokens on CTranslate2's thread; the caller's thread waits and can be interrupted."""

    def __init__(self, end_id: int | None, on_token: Callable[[int], bool | None] | None) -> None:
        self.end_id, self.on_token = end_id, on_token
        self._written: list[int] = []
        self._error: BaseException | None = None
        self._stopped, self._released = False, Event()

    def callback(self) -> Callable[[Any], bool]:
        """Return what CTranslate2 calls with each token.

        It alone holds this object and drops it at last, whatever happens. Waiting for that keeps
        its thread from touching Python while the interpreter ends, which would abort the process.
        """
        called = partial(self._receive)
        self._watch = ref(called, lambda _: self._released.set())
        return called

    def _receive(self, step: Any) -> bool:
        """Pass a token on; True ends the text."""
        if self._stopped:
            return True
        self._written.append(step.token_id)
        if self.on_token is not None and step.token_id != self.end_id:
            try:
                self._stopped = bool(self.on_token(step.token_id))
            except BaseException as error:  # raised again by `wait`
                self._error, self._stopped = error, True
        return self._stopped

    def wait(self, result: Any) -> list[int]:
        """Wait for the last token; return all."""
        try:
            self._released.wait()
        finally:
            self._stopped = True
        result.result()  # raises errors of CTranslate2
        if self._error is not None:
            raise self._error
        return self._written


class TextGenerator:
    """A tokenizer and an engine that continues prompts; it stays open."""

    def __init__(self, writer: Writer, tokenizer: Tokenizer, *, n_positions: int) -> None:
        self.writer, self.tokenizer, self.n_positions = writer, tokenizer, n_positions

    def generate(
        self,
        prompts: Sequence[str],
        options: SamplingOptions,
        on_text: Callable[[str], None] | None = None,
    ) -> Iterator[Generation]:
        """Yield the continuation of each prompt, in order.

        `on_text` is called with each new part of the text of a single prompt.
        """
        for first in range(0, len(prompts), _ROWS):
            yield from self._generate(prompts[first : first + _ROWS], options, on_text)

    def _generate(
        self,
        prompts: Sequence[str],
        options: SamplingOptions,
        on_text: Callable[[str], None] | None,
    ) -> list[Generation]:
        read = [self.tokenizer.encode_prompt(prompt) for prompt in prompts]
        for ids in read:
            check_capacity(options, len(ids), self.n_positions)
        streams = [TextStream(self.tokenizer, ids, on_text, options.stop) for ids in read]
        listens = on_text is not None or options.stop
        on_token = (lambda row, token: streams[row].add(token)) if listens else None
        found = self.writer.write(read, options, on_token)
        return [
            self._finish(*several) for several in zip(prompts, read, found, streams, strict=True)
        ]

    def _finish(
        self, prompt: str, ids: list[int], found: Hypothesis, stream: "TextStream"
    ) -> Generation:
        before = self.tokenizer.decode(ids)
        written = self.tokenizer.decode([*ids, *found.ids])[len(before) :]
        stopped = stream.stopped
        if stopped:
            at = [written.find(stop) for stop in stream.stops]
            written = written[: min((i for i in at if i >= 0), default=len(written))]
        else:
            stream.close()
        return Generation(
            prompt + written,
            written,
            found.finished or stopped,
            self.writer.name,
            self.writer.precision,
            partial(self.writer.log_prob, ids, found),
            prompt,
            tuple(found.ids),
            found.finished,
        )


def check_capacity(options: SamplingOptions, n_prompt: int, n_positions: int) -> None:
    """Refuse to generate more tokens than the model has positions left after the prompt."""
    left = max(0, n_positions - n_prompt)
    if options.max_tokens > left:
        raise InputError(
            f"max_tokens is {options.max_tokens}, but after a prompt of {n_prompt} tokens the "
            f"model has positions for {left} more: generate fewer, or shorten the prompt."
        )


def open_generator(
    folder: Path,
    *,
    engine: str = "auto",
    precision: str = "float32",
    options: SamplingOptions | None = None,
) -> TextGenerator:
    """Open a model folder to continue texts; torch is imported only if its engine is used."""
    if is_transformers_folder(folder):
        from regard.generation.graph_engines import generator_of
        from regard.model import load

        settings = SamplingOptions() if options is None else options
        stored = load(folder, dtype="bfloat16" if precision == "bfloat16" else "float32")
        return generator_of(stored, settings, engine=engine, precision=precision)
    described = read_description(folder)
    if described.family != "decoder" or described.tokenizer is None:
        raise InputError(
            f"this model is of the family {described.family}; only one of the family decoder with "
            "a tokenizer continues a text."
        )
    refusal = "" if options is None else options.ctranslate2_refusal
    if not described.tokenizer.get("end"):
        refusal = "its tokenizer has no end token"
    excluded = {"ctranslate2": refusal} if refusal else {}
    chosen, precision = choose_writer(
        described.family, described.model, engine, precision, excluded=excluded
    )
    if chosen == "torch":
        import torch

        from regard.generation.torch_engine import TorchWriter
        from regard.model import Model

        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        model = Model.load(folder, dtype=dtype)
        assert model.tokenizer is not None
        writer: Writer = TorchWriter(model.module, model.tokenizer)
        return TextGenerator(writer, model.tokenizer, n_positions=max_positions(described.model))
    tokenizer, _ = read_tokenizers(folder, described)
    assert tokenizer is not None
    if chosen == "ctranslate2":
        writer = CTranslate2Writer(folder, tokenizer, int8=precision == "int8")
    else:
        from regard.interop.ctranslate2 import read_arrays

        arrays = read_arrays(weights_file(folder))
        writer = NumpyWriter(NumpyDecoder(described.model, arrays), tokenizer)
    return TextGenerator(writer, tokenizer, n_positions=max_positions(described.model))
