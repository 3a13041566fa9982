"""`regard generate`, `fill` and `classify`: predictions of models without a target."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer

from regard.cli.options import ModelArgument, grouped
from regard.cli.output import answer_each, write_flushed
from regard.errors import InputError


@dataclass(frozen=True)
class SamplingFlags:
    """Sampling."""

    max_tokens: Annotated[int, typer.Option(help="Generate at most this many tokens.")] = 200
    temperature: Annotated[
        float, typer.Option(help="Divide logits by this; 0 always takes the best token.")
    ] = 1.0
    top_k: Annotated[
        int | None, typer.Option(help="Sample among this many most probable tokens.")
    ] = None
    top_p: Annotated[
        float | None, typer.Option(help="Sample among tokens with this much probability.")
    ] = None
    repetition_penalty: Annotated[
        float, typer.Option(help="Make tokens of the text less probable; 1 has no effect.")
    ] = 1.0
    no_repeat: Annotated[
        int, typer.Option(help="Never repeat n-grams of this size; 0 allows all.")
    ] = 0
    seed: Annotated[int, typer.Option(help="Seed the random generator with this number.")] = 0


@grouped
def generate_command(
    model: ModelArgument,
    sampling: SamplingFlags,
    prompt: Annotated[
        str | None, typer.Argument(help="Text to continue; - reads all input as one prompt.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Compute with this engine: auto, ctranslate2 or torch.")
    ] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with the text's log-probability.")
    ] = False,
) -> None:
    """Continue a prompt.

    Without a prompt, every line that is typed or piped in is one; --json prints a line for each.

    Example: regard generate shakespeare "ROMEO:" --temperature 0.8 --top-k 20 --seed 7
    """
    from regard.capabilities import choose_engine
    from regard.generation.text_generation import ctranslate2_refusal
    from regard.interop.model_names import find_model
    from regard.model_folder import read_description

    folder = find_model(model)
    described = read_description(folder)
    refusal = ctranslate2_refusal(described)
    if engine == "ctranslate2" and refusal:
        raise InputError(f"CTranslate2 cannot run this model because {refusal}: use engine torch.")
    feature = "log-probabilities of texts (--json)" if as_json else refusal or ""
    chosen = choose_engine(described.family, described.model, engine, torch_feature=feature)
    prompts = [] if prompt is None else [sys.stdin.read().rstrip("\n") if prompt == "-" else prompt]
    if chosen == "ctranslate2":
        from regard.generation.search import SamplingOptions
        from regard.generation.text_generation import generate_with_ctranslate2

        options = SamplingOptions(**vars(sampling))
        generate: Any = partial(generate_with_ctranslate2, folder, options=options)
    else:
        from regard.model import load

        generate = partial(load(folder).generate, **vars(sampling))

    def answer(given: str) -> None:
        if as_json:
            _print_json(asdict(generate(given)))
        else:
            _stream_text(generate, given)

    answer_each(prompts, answer, what="the start of a text", as_json=as_json)


def _stream_text(generate: Callable[..., Any], prompt: str) -> None:
    """Print the prompt and its continuation as it is generated."""
    before = prompt

    def write(text: str) -> None:
        nonlocal before
        write_flushed(before + text)  # the prompt waits until something follows
        before = ""

    generate(prompt, on_text=write)
    write_flushed(before + "\n")


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False))


def fill_command(
    model: ModelArgument,
    text: Annotated[
        str | None, typer.Argument(help="Text with [MASK] where a word is missing.")
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--count", help="Print this many candidates for each gap.")
    ] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON array for each text.")
    ] = False,
) -> None:
    """Fill the gaps of a text.

    Without a text, every line that is typed is answered with candidates, and every line that is
    piped in is printed with its gaps filled.

    Example: regard fill my-bert "The dog is [MASK] in the garden."
    """
    from regard.model import load

    filler = load(model)
    tokenizer = filler.tokenizer
    mask = tokenizer.token_of(tokenizer.mask_id) if tokenizer and tokenizer.mask_id else ""
    piped = text is None and not sys.stdin.isatty()

    def answer(line: str) -> None:
        if piped and mask and mask not in line:
            typer.echo("[]" if as_json else line)
            return
        gaps = filler.fill(line, count=count)
        if as_json:
            _print_json([[asdict(candidate) for candidate in gap] for gap in gaps])
        elif piped:
            for gap in gaps:
                line = line.replace(mask, gap[0].text, 1)
            typer.echo(line)
        else:
            for number, gap in enumerate(gaps, start=1):
                heading = [f"gap {number}"] if len(gaps) > 1 else []
                found = [f"{candidate.probability:7.4f}  {candidate.text}" for candidate in gap]
                typer.echo("\n".join(heading + found))

    given = [] if text is None else [text]
    answer_each(given, answer, what=f"a text with {mask or 'a gap'}", as_json=as_json)


def classify_command(
    model: ModelArgument,
    images: Annotated[
        list[str] | None, typer.Argument(help="Image files, or texts for a text classifier.")
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--count", help="Print this many classes for each input.")
    ] = 3,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each input.")
    ] = False,
) -> None:
    """Classify images or texts.

    Without images, every line that is typed or piped in names one (or is a text).

    Example: regard classify fashion shoe.png shirt.png
    """
    from regard.model import load

    classifier = load(model)

    def answer(image: str) -> None:
        candidates = classifier.classify(image, count=count)
        if as_json:
            _print_json({"input": image, "classes": [asdict(one) for one in candidates]})
        else:
            named = ", ".join(f"{one.text} {one.probability:.4f}" for one in candidates)
            typer.echo(f"{image}\t{named}")

    what = "a text" if classifier.tokenizer else "the name of an image file"
    answer_each(images or [], answer, what=what, as_json=as_json)
