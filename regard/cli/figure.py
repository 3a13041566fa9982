"""`regard figure` and `regard work`: figures, and worked examples with small matrices."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import (
    JsonFlag,
    LanguageFlags,
    LanguageOption,
    OptionalModel,
    complete_from,
    complete_kinds,
    complete_sites,
    grouped,
    load_for,
)
from regard.cli.output import warn
from regard.errors import InputError, UnknownNameError, nearest, user_language

if TYPE_CHECKING:
    from regard.analysis.worked_example import WorkedExample
    from regard.figures.formats import Figure


@dataclass(frozen=True)
class HeadFlags(LanguageFlags):
    """Options that choose what a figure of a trace shows."""

    target: str | None = Option(None, help="Target text, for translators.")
    site: str | None = Option(
        None, help="Path of an attention site.", autocompletion=complete_sites
    )
    head: int | None = Option(None, help="Index of the head, from 0.")
    query: int | None = Option(
        None, help="Index of the query, from 0 (figures of one query, lens, attribution)."
    )
    key: int | None = Option(None, help="Index of the other word, from 0 (reference).")
    style: str | None = Option(None, help="circles or heat (for pattern).")
    queries: str | None = Option(None, help="rows or columns: where grids have their queries.")
    hide_special: bool | None = Option(
        None, "--hide-special", help="Leave out tokens such as [CLS]."
    )
    other_model: str | None = Option(None, help="Second model (compare).")
    other_text: str | None = Option(None, help="Second text (compare).")
    other_site: str | None = Option(None, help="Second site (compare).")
    other_head: int | None = Option(None, help="Second head (compare).")

    def view(self) -> dict[str, Any]:
        """Return the options of `trace.figure` that were given."""
        apart = ("target", "other_model", "other_text", "source_language", "target_language")
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in given.items() if name not in apart}


@dataclass(frozen=True)
class LookFlags:
    """Options of how a figure is written."""

    size: str | None = Option(
        None,
        help="column, page or slide: the size on paper.",
        autocompletion=complete_from("column", "page", "slide"),
    )
    width: float | None = Option(None, help="Width in millimeters, instead of --size.")
    dpi: int | None = Option(None, help="Pixels per inch.  [default: 144, with a size 300]")
    title: str | None = Option(None, help="Title instead of the figure's own.")
    font: str | None = Option(None, help="Name of an installed font.")
    theme: str = Option(
        "light",
        help="light, dark or print.",
        autocompletion=complete_from("light", "dark", "print"),
    )


@grouped
def figure_command(
    kind: str = Argument(help="Name of a kind, see below.", autocompletion=complete_kinds),
    *,
    model: OptionalModel = None,
    text: str | None = Argument(None, help="Input text, or an image file."),
    output: Path | None = Option(
        None,
        "-o",
        "--output",
        help="File to write: .svg, .png, .pdf; .gif, .webp or .mp4 if it moves.",
    ),
    flags: HeadFlags,
    look: LookFlags,
    length: int | None = Option(None, help="Length of masks, positions, schedule or complexity."),
    language: LanguageOption = None,
) -> None:
    """Draw a figure for a slide or a paper from computed numbers.

    Of a model at work, with MODEL and TEXT (by default of the most readable head): pattern, lines,
    heads, compare, alignment; stages, layer, split, additive (the layer, box by box); steps, bars,
    temperature, reference (one query); graph, space, image, decode; lens and attribution.

    Of a MODEL or a preset (regard models --presets): architecture. Of a MODEL and words: merges.
    Of the folder of a training run with snapshots (or dates-replay), and its text: training.

    decode, temperature and training can move.

    Of neither: masks, padding, positions, waves, schedule, scaling, efficient, complexity (by
    formula), cost (measured here, in seconds).

    Example: regard figure pattern en-de "The dog is sleeping." --language ko -o dog.svg
    """
    from regard.figures.captions import check_language
    from regard.figures.drawing import Look
    from regard.figures.formats import FORMATS, MOVING, check_extension
    from regard.figures.kinds import CONCEPT_KINDS, KINDS, LENGTHS, MOVING_KINDS

    if kind not in KINDS:
        raise UnknownNameError(f"unknown figure {kind!r}; {nearest(kind, KINDS)}.")
    if output is None:
        raise InputError(f"no output file was given: add one, for example -o {kind}.svg")
    check_extension(output, (*FORMATS, *MOVING) if kind in MOVING_KINDS else FORMATS)
    language = language or user_language()
    check_language(language)
    styled = Look(**vars(look))
    if kind in CONCEPT_KINDS or kind in LENGTHS:
        _check_unused(kind, model=model, text=text, **vars(flags))
        figure = _concept_figure(kind, length, language)
    else:
        _check_unused(kind, length=length)
        figure = _model_figure(kind, model, text, flags, language)
    with _warnings_to_stderr():
        replace(figure, look=styled).save(output)


def _concept_figure(kind: str, length: int | None, language: str) -> "Figure":
    from regard.figures.captions import caption
    from regard.figures.formats import Figure
    from regard.figures.kinds import check_length, concept_figure
    from regard.figures.plots import draw_schedule
    from regard.training.optimizer import Schedule, paper_rate

    if kind != "schedule":
        return concept_figure(kind, length=length, language=language)
    length = check_length(kind, length or 20_000)
    steps = sorted({max(1, round(length * i / 400)) for i in range(1, 401)})
    rates = {}
    for d_model, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        at = Schedule("paper", paper_rate(d_model, warmup), warmup).at
        label = f"d_model {d_model}, {caption('warm-up', language)} {warmup:,}"
        rates[label] = [(step, at(step)) for step in steps]
    return Figure(draw_schedule(rates, language=language))


def _model_figure(
    kind: str, model: str | None, text: str | None, flags: HeadFlags, language: str
) -> "Figure":
    from regard.figures.kinds import model_figure
    from regard.interop.model_names import bundled
    from regard.model import load
    from regard.models.config import build_on_meta
    from regard.models.presets import PRESETS

    if model is None:
        raise InputError(f"{kind} is a figure of a model: give a model and a text.")
    if kind == "architecture":
        _check_unused(kind, text=text, **vars(flags))
        if model in PRESETS and model not in bundled() and not Path(model).exists():
            module = build_on_meta(PRESETS[model].config)
        else:
            module = load(model).module
        return model_figure(module, name=model, language=language)
    if text is not None and kind == "merges":
        _check_unused(kind, **vars(flags))
        return _merges_figure(model, text, language)
    if kind == "training":
        _check_unused(kind, **{**vars(flags), "site": None})
        return _training_figure(model, text, flags.site, language)
    if text is None:
        raise InputError(f"{kind} shows a model at work: give a text after the model.")
    trace, options = load_for(model, text, flags).trace(text, flags.target), flags.view()
    if flags.other_model is not None or flags.other_text is not None:
        options["other"] = load(flags.other_model or model).trace(flags.other_text or text)
    return trace.figure(kind, **options, language=language)


def _training_figure(run: str, text: str | None, site: str | None, language: str) -> "Figure":
    from regard.figures.curves import Snapshot
    from regard.figures.kinds import training_figure
    from regard.interop.model_names import bundled_replays
    from regard.server.catalog import open_run

    bundled = {folder.name: folder for folder in bundled_replays()}
    opened = open_run(bundled.get(run) or Path(run))
    texts = [one.partition("\t")[0] for one in opened.texts]
    if text is not None and text not in texts:
        raise UnknownNameError(f"the run has no snapshots of {text!r}; {nearest(text, texts)}.")
    number = 0 if text is None else texts.index(text)
    snapshots = [
        Snapshot(one.step, one.loss, opened.trace(one.step, number))
        for one in opened.describe().checkpoints
    ]
    if not snapshots:
        raise InputError(f"the run in {run} has no snapshots yet: wait for its first validation.")
    return training_figure(snapshots, site=site, language=language)


def _merges_figure(model: str, text: str, language: str) -> "Figure":
    from regard.figures.concept_figures import draw_merges
    from regard.figures.formats import Figure
    from regard.model import load
    from regard.text.tokenizer_training import split_words

    tokenizer = load(model).tokenizer
    if tokenizer is None:
        raise InputError(f"{model} has no tokenizer: merges needs a model that reads text.")
    return Figure(draw_merges(split_words(tokenizer, text), language=language))


def _check_unused(kind: str, **options: Any) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise InputError(f"{kind} does not use {' and '.join(given)}: leave it out.")


@contextmanager
def _warnings_to_stderr() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        warn(str(warning.message))


def complete_examples(incomplete: str) -> list[str]:
    """Return the worked examples and the .toml files that start like this."""
    from regard.analysis.worked_example import list_examples

    files = map(str, Path().glob("*.toml"))
    return [one for one in [*list_examples(), *files] if one.startswith(incomplete)]


def work_command(
    example: Path | None = Argument(
        None,
        help="TOML file with small matrices, or a name of --list.",
        autocompletion=complete_examples,
    ),
    output: Path | None = Option(
        None, "-o", "--output", help="File to write: .html, .md, .tex, .svg, .png or .pdf."
    ),
    quiz: bool = Option(False, "--quiz", help="Leave blanks, and write the answers separately."),
    listed: bool = Option(False, "--list", help="List the examples that come with regard."),
    language: LanguageOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Work through attention with small matrices, every number shown.

    Without a file it is three words of width 3 with Q, K and V of width 4. A file may have:

        words = ["I", "see", "you"]          # names of the rows of x
        x = [[1, 0, 1], [0, 2, 0], [1, 1, 1]]
        w_query = [[1, 0], [0, 1], [1, 1]]   # also w_key, w_value; by default x is used directly
        x_key = [[1, 1, 0]]                  # other inputs for keys and values, with key_words
        similarity = "scaled_dot"            # or dot, cosine, general, additive
        mask = "causal"                      # or {window = 1}, {edges = [[0, 1]]}, rows of 0 and 1
        temperature = 1.0
        n_heads = 1                          # with w_output = [[…]]
        form = "exact"                       # or efficient

    general takes general = [[…]]; additive takes additive = {w_query = …, w_key = …, v = [[…]]};
    image = [[…]] with patch_size and w_patch makes x of the patches of an image.

    Example: regard work masked -o masked.svg --language ko
    """
    from regard.analysis.worked_example import (
        DEFAULT,
        find_example,
        list_examples,
        read_example,
        work,
    )
    from regard.figures import worked_figure as shown
    from regard.figures.captions import LANGUAGES, caption, check_language
    from regard.figures.formats import check_extension

    language = language or user_language()
    check_language(language)
    if listed:
        for name, titles in list_examples().items():
            typer.echo(f"{name:16}{titles[LANGUAGES.index(language)]}")
        return
    if output is not None:
        check_extension(output, shown.EXTENSIONS)
    worked = work(read_example(find_example(example)) if example else DEFAULT)
    if as_json:
        typer.echo(json.dumps(asdict(worked), ensure_ascii=False).replace("-Infinity", '"-inf"'))
    elif output is None:
        if quiz:
            typer.echo(f"{caption('quiz', language)}\n")
            _print_worked(shown.quiz(worked), language)
            typer.echo(f"\n{caption('answers', language)}\n")
        _print_worked(worked, language)
    if output is not None:
        with _warnings_to_stderr():
            (shown.save_quiz if quiz else shown.save_worked)(worked, output, language=language)


def _print_worked(worked: "WorkedExample", language: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from regard.figures.captions import caption
    from regard.figures.worked_figure import settings_line, table_cells, table_title

    console = Console()
    unicode = console.encoding.lower() in ("utf-8", "utf8")
    heading = f"{caption('worked example', language)}  ({settings_line(worked, language)})"
    console.print(heading, markup=False)
    for step in worked.tables:
        heads, rows = table_cells(step, language)
        table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, show_edge=False)
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i else "left", style="" if i else "bold")
        for row in rows:
            table.add_row(*row)
        title = f"\n{table_title(step)}   [{caption(step.name, language)}]"
        console.print(title, markup=False, style="bold")
        console.print(table)
