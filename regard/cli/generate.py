"""`regard generate`: a decoder-only model goes on with a text."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer

from regard.cli.grouped import grouped
from regard.cli.lines import answer_each
from regard.errors import InputError


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
    from regard.bundle.folder import read_description
    from regard.engine.opening import check_engine
    from regard.engine.writing import write_fast, writes_fast
    from regard.interop.named import find_model

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
