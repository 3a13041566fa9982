"""`regard classify`: what is in an image."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import grouped
from regard.cli.output import answer_each
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.generation.predictions import Candidate


@dataclass(frozen=True)
class Drawing:
    """How each next token is drawn; the names are those of SampleOptions."""

    temperature: Annotated[float, typer.Option(help="0 always takes the best token.")] = 1.0
    top_k: Annotated[int | None, typer.Option(help="Only among the k most probable.")] = None
    top_p: Annotated[float | None, typer.Option(help="Only among this much probability.")] = None
    max_tokens: Annotated[int, typer.Option(help="The most tokens to write.")] = 200
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: what was written before becomes less probable.")
    ] = 1.0
    no_repeat: Annotated[int, typer.Option(help="Write no run of this many tokens twice.")] = 0
    seed: Annotated[int, typer.Option(help="The same seed and engine write the same text.")] = 0


@grouped
def generate_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    drawing: Drawing,
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to go on with; - takes all of the input as one."),
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, ctranslate2 or torch.")] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the text's log-probability.")
    ] = False,
) -> None:
    """Write on after a prompt; CTranslate2 does it where it can, and torch where --json asks.

    Without a prompt, every line that is typed or piped in is one; --json gives a line for each.

    Example: regard generate shakespeare "ROMEO:" --temperature 0.8 --top-k 20 --seed 7
    """
    from regard.generation.text_generation import write_fast, writes_fast
    from regard.generation.translator import check_engine
    from regard.interop.model_names import find_model
    from regard.model_folder import read_description

    check_engine(engine)
    if as_json and engine == "ctranslate2":
        raise InputError("--json tells the model's own log-probability, which only torch knows.")
    folder, options = find_model(model), vars(drawing)
    prompts, what = _prompts(prompt), "the beginning of a text"
    fast = writes_fast(read_description(folder))
    if engine == "ctranslate2" and not fast:
        raise InputError("CTranslate2 cannot run this model: use the engine torch.")
    if fast and engine != "torch" and not as_json:
        write = partial(write_fast, folder, **options)
        answer_each(prompts, partial(_tell_all, write), what=what)
        return
    from regard.model import load

    writer = load(folder)
    write = partial(writer.generate, **options)
    if as_json:
        answer_each(prompts, lambda given: _tell_json(write(given)), what=what, as_json=True)
    else:
        answer_each(prompts, partial(_tell_all, write), what=what)


def _prompts(prompt: str | None) -> list[str]:
    """What was given as one prompt, if anything."""
    if prompt == "-":
        return [sys.stdin.read().rstrip("\n")]
    return [] if prompt is None else [prompt]


def _tell_all(write: Callable[..., Any], given: str) -> None:
    """The prompt and what follows it, as it is written."""
    before = given

    def tell(text: str) -> None:
        nonlocal before
        _tell(before + text)  # only now is it sure that something follows
        before = ""

    write(given, on_text=tell)
    _tell(before + "\n")


def _tell_json(written: Any) -> None:
    typer.echo(json.dumps(asdict(written), ensure_ascii=False))


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def fill_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    text: Annotated[
        str | None, typer.Argument(help="A text with [MASK] where a word is missing.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", help="Candidates for each gap.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each.")] = False,
) -> None:
    """Fill the gaps of a text.

    Without a text, every line that is typed is answered with candidates; every line that is piped
    in comes out with its gaps filled.

    Example: regard fill my-bert "The dog is [MASK] in the garden."
    """
    from regard.model import load

    filler = load(model)
    tokenizer = filler.tokenizer
    mask = tokenizer.token_of(tokenizer.mask_id) if tokenizer and tokenizer.mask_id else ""
    piped = text is None and not sys.stdin.isatty()
    given = [] if text is None else [text]

    def answer(line: str) -> None:
        if piped and mask and mask not in line:  # nothing is missing
            typer.echo("[]" if as_json else line)
            return
        gaps = filler.fill(line, count=count)
        if as_json:
            plain = [[asdict(candidate) for candidate in gap] for gap in gaps]
            typer.echo(json.dumps(plain, ensure_ascii=False))
        elif piped:
            typer.echo(_filled(line, mask, [gap[0].text for gap in gaps]))
        else:
            _list(gaps)

    answer_each(given, answer, what=f"a text with {mask or 'a gap'}", as_json=as_json)


def _filled(line: str, mask: str, words: Sequence[str]) -> str:
    for word in words:
        line = line.replace(mask, word, 1)
    return line


def _list(gaps: Sequence[Sequence["Candidate"]]) -> None:
    """The candidates of each gap, one to a line."""
    for number, gap in enumerate(gaps, start=1):
        if len(gaps) > 1:
            typer.echo(f"gap {number}")
        for candidate in gap:
            typer.echo(f"{candidate.probability:7.4f}  {candidate.text}")


def classify_command(
    model: Annotated[str, typer.Argument(help="A bundled model's name, or a model folder.")],
    images: Annotated[
        list[str] | None, typer.Argument(help="Image files (texts for a text model).")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", help="Classes for each.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each.")] = False,
) -> None:
    """Name what is in images.

    Without images, every line that is typed or piped in names one (or is a text).

    Example: regard classify fashion shoe.png shirt.png
    """
    from regard.model import load

    classifier = load(model)
    what = "a text" if classifier.tokenizer else "the name of an image file"

    def answer(image: str) -> None:
        (candidates,) = classifier.classify([image], count=count)
        if as_json:
            plain = {"input": image, "classes": [asdict(candidate) for candidate in candidates]}
            typer.echo(json.dumps(plain, ensure_ascii=False))
        else:
            named = ", ".join(f"{one.text} {one.probability:.4f}" for one in candidates)
            typer.echo(f"{image}\t{named}")

    answer_each(images or [], answer, what=what, as_json=as_json)
