"""`regard generate`: continue a prompt."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
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
from regard.cli.output import answer_each, decoded_lines, print_json, use_utf8, write_flushed
from regard.errors import InputError
from regard.files import chunks

if TYPE_CHECKING:
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
    engine: str = Option("auto", help="Engine: auto, numpy, ctranslate2 or torch."),
    precision: PrecisionOption = "float32",
    int8: Int8Flag = False,
    as_json: bool = Option(False, "--json", help="Print JSON with the text's log-probability."),
) -> None:
    """Continue a prompt.

    Without a prompt, every line that is typed or piped in is one; --json prints a line for each.
    The same seed gives the same text on an engine, in every output format.

    Example: regard generate shakespeare "ROMEO:" --temperature 0.8 --top-k 20 --seed 7
    """
    from regard.generation.search import SamplingOptions
    from regard.generation.text_generation import open_generator
    from regard.interop.model_names import find_model

    if prompt is not None and file is not None:
        raise InputError("give either a prompt or --file, not both.")
    options = SamplingOptions(**{**vars(sampling), "stop": tuple(sampling.stop or ())})
    chosen = chosen_precision(precision, int8=int8)
    generator = open_generator(find_model(model), engine=engine, precision=chosen, options=options)
    if file is not None:
        use_utf8()
        for lines in chunks(decoded_lines(file), 16):
            for found in generator.generate(lines, options):
                _print_text(found, as_json=as_json)
        return
    prompts = [] if prompt is None else [sys.stdin.read().rstrip("\n") if prompt == "-" else prompt]

    def answer(given: str) -> None:
        if as_json:
            (found,) = generator.generate([given], options)
            _print_text(found, as_json=True)
        else:
            _stream_text(lambda on_text: list(generator.generate([given], options, on_text)), given)

    answer_each(prompts, answer, what="the start of a text", as_json=as_json)


def _print_text(found: "Generation", *, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
    else:
        write_flushed(found.text + "\n")


def _stream_text(generate: Callable[[Callable[[str], None]], Any], prompt: str) -> None:
    """Print the prompt and its continuation as it is generated."""
    before = prompt

    def write(text: str) -> None:
        nonlocal before
        write_flushed(before + text)  # the prompt waits until something follows
        before = ""

    generate(write)
    write_flushed(before + "\n")
