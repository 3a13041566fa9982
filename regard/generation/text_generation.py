"""Text generation: prompts in, continued texts out, on whatever engine is open; no torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from regard.capabilities import usable_writers
from regard.errors import InputError
from regard.generation.ctranslate2_writer import CTranslate2Writer
from regard.generation.fastest_engine import fastest_engine, measured_fastest
from regard.generation.numpy_decoder import NumpyDecoder, NumpyStepper
from regard.generation.sampling import OnToken, sample
from regard.generation.search import Hypothesis, SamplingOptions
from regard.generation.text_stream import TextStream
from regard.generation.translator import max_positions
from regard.hardware import chosen_device
from regard.model_folder import (
    Description,
    is_transformers_folder,
    read_description,
    read_tokenizers,
    weights_file,
)
from regard.text.tokenizer import Tokenizer, suppressed_ids

if TYPE_CHECKING:
    from regard.trace.trace import Trace

ROWS = 16
"""Prompts that are continued together."""
WORTHWHILE = 1000
"""Tokens from which on "auto" measures the engines."""
_LARGEST = 2**30  # bytes of weights; a measurement with more would take longer than a second


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
        for first in range(0, len(prompts), ROWS):
            yield from self._generate(prompts[first : first + ROWS], options, on_text)

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
    n_prompts: int = 1,
) -> TextGenerator:
    """Open a model folder to continue texts; torch is imported only if its engine is used.

    Args:
        n_prompts: number of texts to continue; few are not worth a measurement of engines.
    """
    options = options or SamplingOptions()
    if is_transformers_folder(folder) or chosen_device() != "cpu":
        from regard.generation.model_engines import generator_of
        from regard.model import load

        stored = load(folder, dtype="bfloat16" if precision == "bfloat16" else "float32")
        chosen = {"engine": engine, "precision": precision}
        return generator_of(stored, options, **chosen, n_prompts=n_prompts)
    described = read_description(folder)
    if described.family != "decoder" or described.tokenizer is None:
        raise InputError(
            f"this model is of the family {described.family}; only one of the family decoder with "
            "a tokenizer continues a text."
        )
    refusal = options.ctranslate2_refusal
    if not described.tokenizer.get("end"):
        refusal = "its tokenizer has no end token"
    excluded = {"ctranslate2": refusal} if refusal else {}
    names, precision = usable_writers(
        described.family, described.model, engine, precision, excluded=excluded
    )
    # Importing torch takes longer than its engine could win.
    names = [name for name in names if name != "torch"] or names
    open_one = partial(_open_folder, folder, described, precision=precision)
    return open_one(choose_writer(folder, names, options, open_one, n_prompts))


def _open_folder(
    folder: Path, described: Description, chosen: str, *, precision: str
) -> TextGenerator:
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


def choose_writer(
    folder: Path | None,
    names: Sequence[str],
    options: SamplingOptions,
    open_one: Callable[[str], TextGenerator],
    n_prompts: int,
) -> str:
    """Return the fastest engine if it is known or worth a measurement; otherwise the first.

    Texts that are drawn always come from the first, so that a seed keeps its text.
    """
    if len(names) == 1 or folder is None or options.temperature > 0:
        return names[0]
    n_rows, enough = writing_class(options, n_prompts)
    found = fastest_engine(
        folder,
        names,
        {"rows": n_rows, "numpy": np.__version__},
        lambda: _measure({name: open_one(name) for name in names}, n_rows),
        worthwhile=enough and weights_file(folder).stat().st_size <= _LARGEST,
    )
    return found or names[0]


def writing_class(options: SamplingOptions, n_prompts: int) -> tuple[int, bool]:
    """Return the rows of a batch, and True if there is enough to write to pay for a measurement."""
    return 1 if n_prompts == 1 else ROWS, n_prompts * options.max_tokens >= WORTHWHILE


def _measure(generators: Mapping[str, TextGenerator], n_rows: int) -> str:
    """Let each engine write a few tokens after prompts of a few."""
    n_tokens = 4

    def write(generator: TextGenerator) -> None:
        known = min(len(generator.tokenizer), max(1, generator.n_positions - n_tokens), n_tokens)
        greedy = SamplingOptions(temperature=0.0, max_tokens=n_tokens)
        generator.writer.write([list(range(known))] * n_rows, greedy, None)

    return measured_fastest({name: partial(write, one) for name, one in generators.items()})
