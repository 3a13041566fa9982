"""`regard work`: a worked example in the terminal, or as a page, a picture, Markdown, LaTeX."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import grouped
from regard.errors import InputError, UnknownNameError, nearest

if TYPE_CHECKING:
    from regard.figures.kinds import Figure
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.analysis.worked_example import Worked


@dataclass(frozen=True)
class Shown:
    """What is shown of a model at work."""

    target: Annotated[str | None, typer.Option(help="A target, for translators.")] = None
    site: Annotated[str | None, typer.Option(help="Path of an attention site.")] = None
    head: Annotated[int | None, typer.Option(help="Which head, from 0.")] = None
    query: Annotated[int | None, typer.Option(help="Which query (for steps), from 0.")] = None
    style: Annotated[str | None, typer.Option(help="circles or heat (for pattern).")] = None


@grouped
def figure_command(
    kind: Annotated[
        str,
        typer.Argument(
            help="pattern, lines, heads, steps, alignment; architecture; masks, positions, "
            "schedule, complexity."
        ),
    ],
    *,
    model: Annotated[
        str | None, typer.Argument(help="A bundled model's name, or a model folder.")
    ] = None,
    text: Annotated[str | None, typer.Argument(help="The text (or image) to run it on.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file: .svg, .png or .pdf.")
    ] = None,
    shown: Shown,
    length: Annotated[
        int | None, typer.Option(help="Of masks, positions, schedule, complexity.")
    ] = None,
    language: Annotated[str, typer.Option(help="en or ko.")] = "en",
) -> None:
    """Draw a figure for a slide or a paper: every number in it was computed.

    pattern, lines, heads, steps and alignment show a model at work and need MODEL and TEXT;
    without --site and --head they show the head that reads best. architecture needs a MODEL or a
    preset (regard models --presets). masks, positions, schedule and complexity need neither.

    Example: regard figure pattern en-de "The dog is sleeping." --language ko -o dog.svg
    """
    from regard.figures.kinds import KINDS, OF_NOTHING, ending

    if kind not in KINDS:
        raise UnknownNameError(f"there is no picture {kind!r}; {nearest(kind, KINDS)}.")
    if output is None:
        raise InputError(f"say where to draw to, for example: -o {kind}.svg")
    ending(output)
    if kind in OF_NOTHING:
        _check_unused(kind, model=model, text=text, **vars(shown))
        made = _plain(kind, length, language)
    else:
        _check_unused(kind, length=length)
        made = _of_model(kind, model, text, shown, language)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        made.save(output)
    for one in said:
        typer.echo(f"regard: {one.message}", err=True)


def _plain(kind: str, length: int | None, language: str) -> "Figure":
    from regard.figures.kinds import draw_plain

    return draw_plain(kind, length=length, language=language)


def _of_model(
    kind: str, model: str | None, text: str | None, shown: Shown, language: str
) -> "Figure":
    from regard.figures.kinds import draw_model, draw_trace
    from regard.model import load

    if model is None:
        raise InputError(f"{kind} is a picture of a model: give one, and a text for it.")
    if kind == "architecture":
        _check_unused(kind, text=text, **vars(shown))
        return draw_model(_network(model), name=model, language=language)
    if text is None:
        raise InputError(f"{kind} shows a model at work: give a text after the model.")
    options = vars(shown) | {"language": language}
    return draw_trace(load(model).trace(text, options.pop("target")), kind, **options)


def _network(model: str) -> Any:
    """The network of a folder or bundled model; a preset's without its numbers."""
    from regard.interop.model_names import bundled
    from regard.model import load
    from regard.models.config import build_on_meta
    from regard.models.presets import PRESETS

    if model in PRESETS and model not in bundled() and not Path(model).exists():
        return build_on_meta(PRESETS[model].config)
    return load(model).module


def _check_unused(kind: str, **options: Any) -> None:
    """Refuse what this picture has no use for: whoever gives it expects something else."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{kind} has no use for {' and '.join(given)}: leave it out.")


def work_command(
    example: Annotated[
        Path | None, typer.Argument(help="TOML file with your own small matrices.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write .html, .svg, .md or .tex instead.")
    ] = None,
    language: Annotated[str, typer.Option(help="en or ko.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print all matrices as JSON.")] = False,
) -> None:
    """Work through attention with small matrices, every number shown.

    Without a file it is three words of width 3 with Q, K and V of width 4. A file may have:

        words = ["I", "see", "you"]          # names of the rows of x
        x = [[1, 0, 1], [0, 2, 0], [1, 1, 1]]
        w_query = [[1, 0], [0, 1], [1, 1]]   # also w_key, w_value; without them x serves directly
        x_key = [[1, 1, 0]]                  # other inputs for keys and values, with key_words
        similarity = "scaled_dot"            # or dot, cosine, general, additive
        mask = "causal"                      # or {window = 1}, {edges = [[0, 1]]}, rows of 0 and 1
        temperature = 1.0

    general takes general = [[…]]; additive takes additive = {w_query = …, w_key = …, v = [[…]]}.

    Example: regard work mine.toml -o mine.svg --language ko
    """
    from regard.analysis.worked_example import DEFAULT, read_example, work
    from regard.figures.worked_figure import WRITERS
    from regard.files import write_atomic

    if output is not None and output.suffix not in WRITERS:
        raise InputError(
            f"{output} must end in {', '.join(WRITERS)}: the ending says what to write."
        )
    worked = work(read_example(example) if example else DEFAULT)
    if as_json:
        plain = json.dumps(asdict(worked), ensure_ascii=False).replace("-Infinity", '"-inf"')
        typer.echo(plain)
    elif output is None:
        _show(worked, language)
    if output is not None:
        write_atomic(output, WRITERS[output.suffix](worked, language))


def _show(worked: "Worked", language: str) -> None:
    """Print the example to the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from regard.figures.worked_figure import cells, settings, title, word

    console = Console()
    plain = console.encoding.lower() not in ("utf-8", "utf8")
    console.print(
        f"{word('worked example', language)}  ({settings(worked, language)})", markup=False
    )
    for step in worked.tables:
        heads, rows = cells(step, language)
        picture = Table(box=box.ASCII if plain else box.SIMPLE_HEAD, show_edge=False)
        for i, head in enumerate(heads):
            picture.add_column(head, justify="right" if i else "left", style="" if i else "bold")
        for row in rows:
            picture.add_row(*row)
        console.print()
        console.print(f"{title(step)}   [{word(step.name, language)}]", markup=False, style="bold")
        console.print(picture)
