"""`regard generate`: texts continued, one at a time as they are written or many in batches."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from regard.cli.options import (
    Int8Flag,
    ModelArgument,
    PrecisionOption,
    chosen_precision,
    grouped,
)
from regard.cli.output import answer_each, answer_lines, to_json, use_utf8, write_flushed
from regard.errors import InputError
from regard.files import read_lines

if TYPE_CHECKING:
    from regard.generation.search import SamplingOptions
    from regard.generation.text_generation import Generation


@dataclass(frozen=True)
class SamplingFlags:
    """Sampling."""

    max_tokens: int = Option(200, help="Generate at most this many tokens.")
    temperature: float = Option(1.0, help="Divide logits by this; 0 always takes the best token.")
    top_k: int | None = Option(None, help="Sample among this many most probable tokens.")
    top_p: float | None = Option(None, help="Sample among tokens with this much probability.")
    repetition_penalty: float = Option(1.0, help="Make used tokens less probable; 1 has no effect.")
    no_repeat: int = Option(0, help="Never repeat n-grams of this size; 0 allows all.")
    seed: int = Option(0, help="Seed the random generator with this number.")
    stop: list[str] | None = Option(None, help="End in front of this text; can be repeated.")


@grouped
def generate_command(
    model: ModelArgument,
    sampling: SamplingFlags,
    prompt: str | None = Argument(
        None, help="Text to continue; - reads all input as one prompt. Without it, lines of input."
    ),
    file: Path | None = Option(None, "--file", help="Continue every line of this file."),
    engine: str = Option(
        "auto", help="Engine: numpy, ctranslate2, torch, or auto, the fastest for many tokens."
    ),
    precision: PrecisionOption = "float32",
    int8: Int8Flag = False,
    as_json: bool = Option(False, "--json", help="Print JSON with the text's log-probability."),
    differences: bool = Option(
        False, "--differences", help="With --json, mark tokens that float32 would not have chosen."
    ),
) -> None:
    """Continue a prompt.

    Without a prompt, every line that is typed or piped in is one; --json prints a line for each.
    Lines of files and pipes are continued in batches.
    The same seed gives the same text on an engine, in every output format.

    Example: regard generate shakespeare "ROMEO:" --temperature 0.8 --top-k 20 --seed 7
    """
    from regard.generation.search import SamplingOptions
    from regard.generation.text_generation import ROWS, open_generator
    from regard.interop.model_names import find_model

    if prompt is not None and file is not None:
        raise InputError("give either a prompt or --file, not both.")
    options = SamplingOptions(**{**vars(sampling), "stop": tuple(sampling.stop or ())})
    # Texts that nobody watches are written in batches.
    batched = file or (None if prompt is not None or _watched() else Path("-"))
    generator = open_generator(
        find_model(model),
        engine=engine,
        precision=chosen_precision(precision, int8=int8),
        options=options,
        n_prompts=1 if batched is None else _count_lines(batched, ROWS),
    )
    if differences and not (as_json and options.temperature == 0):
        raise InputError(
            "--differences needs --json and --temperature 0: tokens that are drawn cannot be "
            "compared."
        )
    mark = _marker(model, options) if differences else lambda found: found

    def answer_all(lines: list[str]) -> list[str]:
        found = generator.generate(lines, options)
        return [to_json(mark(one).to_dict()) if as_json else one.text for one in found]

    def answer(given: str) -> None:
        if as_json:
            write_flushed(answer_all([given])[0] + "\n")
        else:
            _stream_text(lambda on_text: list(generator.generate([given], options, on_text)), given)

    if batched is not None:
        use_utf8()
        answer_lines(str(batched), answer_all, as_json=as_json, size=ROWS)
        return
    prompts = [] if prompt is None else [sys.stdin.read().rstrip("\n") if prompt == "-" else prompt]
    answer_each(prompts, answer, what="the start of a text", as_json=as_json)


def _watched() -> bool:
    """Return True if lines are typed, or a terminal shows the texts as they are written."""
    return sys.stdin.isatty() or sys.stdout.isatty()


def _count_lines(file: Path, most: int) -> int:
    """Return the number of lines up to `most`, which is also that of pipes: they are read once."""
    if str(file) == "-" or (file.exists() and not file.is_file()):
        return most
    return sum(1 for _ in islice(read_lines(file), most))


def _marker(model: str, options: "SamplingOptions") -> Callable[["Generation"], "Generation"]:
    """Return a function that marks the tokens that float32 would have chosen otherwise."""
    from regard.generation.tracing import trace_generation
    from regard.model import load

    return partial(trace_generation, load(model), options=options)


def _stream_text(generate: Callable[[Callable[[str], None]], Any], prompt: str) -> None:
    """Print the prompt and its continuation as it is generated."""
    before = prompt

    def write(text: str) -> None:
        nonlocal before
        write_flushed(before + text)  # the prompt waits until something follows
        before = ""

    generate(write)
    write_flushed(before + "\n")
