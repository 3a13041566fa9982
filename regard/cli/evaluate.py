"""`regard evaluate`: what translations are worth, and where they fail."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import EngineFlags, SearchFlags, grouped
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.evaluation.alignment import Gold
    from regard.evaluation.report import Evaluation, Own, System


@dataclass(frozen=True)
class Given:
    """What is read beside the model's translations."""

    source: Annotated[Path, typer.Option(help="What to translate, one sentence to a line.")]
    reference: Annotated[Path, typer.Option(help="How people have translated it.")]
    gold: Annotated[
        Path | None, typer.Option(help="True alignments, such as 0-0 1-2; 1p2 is only possible.")
    ] = None
    training: Annotated[
        Path | None, typer.Option(help="The target's training text, to count words in.")
    ] = None


@dataclass(frozen=True)
class Counting:
    """How scores are counted."""

    tokenize: Annotated[str, typer.Option(help="How BLEU splits words.")] = "13a"
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="A second BLEU, for which capitals do not count.")
    ] = False
    samples: Annotated[int, typer.Option(help="Resamples for confidence.", min=2)] = 1000


@dataclass(frozen=True)
class Report:
    """What is written."""

    html: Annotated[
        Path | None, typer.Option(help="Write a page with all sentences side by side.")
    ] = None
    figure: Annotated[Path | None, typer.Option(help="Write the breakdown as .svg.")] = None
    language: Annotated[str, typer.Option(help="Of page and figure: en or ko.")] = "en"
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False


@grouped
def evaluate_command(
    model: Annotated[
        str, typer.Argument(help="A bundled model's name, a model folder, or a file of lines.")
    ],
    given: Given,
    search: SearchFlags,
    engine: EngineFlags,
    counting: Counting,
    report: Report,
    compare: Annotated[
        str | None, typer.Option(help="Another model, or a file of its translations.")
    ] = None,
) -> None:
    """Compare a model's translations with those that people made.

    BLEU, chrF and TER are sacreBLEU's, with signatures; ± is half the 95 % interval of resampled
    sentences. With --compare each difference has a p-value. Every head that reads the source is
    measured by its alignment error, on --gold or on links that a dictionary learned from the two
    files is sure of; `regard translate --alignments` uses the best of them from then on.

    Example: regard evaluate en-de --source test.en --reference test.de --html test.html
    """
    from regard.evaluation.report import Options, evaluate
    from regard.evaluation.scores import check_lines, count_words
    from regard.figures.captions import check_language
    from regard.figures.formats import check_extension

    check_language(report.language)
    if report.figure is not None:
        check_extension(report.figure)
    sources, references = _lines(given.source), _lines(given.reference)
    check_lines("sources", sources, references)
    golds = None if given.gold is None else _golds(given.gold, len(sources))
    names = [model] if compare is None else [model, compare]
    systems = {
        label: _own(name, sources, references, golds, search, engine)
        for label, name in zip(_labels(names), names, strict=True)
    }
    counted = given.training and count_words(_stream(given.training))
    options = Options(seen=counted, **vars(counting))
    found = evaluate(sources, references, systems, options)
    _write(found, report)
    told = json.dumps(found.to_json(), ensure_ascii=False) if report.as_json else _report(found)
    typer.echo(told)


def _labels(names: list[str]) -> list[str]:
    """Short names that differ."""
    short = [Path(name).name or name for name in names]
    if len(set(short)) == len(short):
        return short
    return [f"{name} ({i})" for i, name in enumerate(names, 1)]


def _own(
    name: str,
    sources: list[str],
    references: list[str],
    golds: "list[Gold] | None",
    search: SearchFlags,
    engine: EngineFlags,
) -> "Own":
    """A file of translations as it is, or what a model translates and says."""
    from regard.evaluation.report import Own
    from regard.evaluation.scores import check_lines

    if Path(name).is_file():
        texts = _lines(Path(name))
        check_lines("translations", texts, references)
        return Own(texts)
    from regard.evaluation.report import examine
    from regard.model import load

    loaded = load(name)
    done = loaded.translate(sources, **vars(engine), **vars(search.options()))
    return examine(loaded, [one.text for one in done], sources, references, golds)


def _lines(path: Path) -> list[str]:
    return list(_stream(path))


def _stream(path: Path) -> Iterator[str]:
    from regard.files import read_lines

    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"Line {number:,} of {path} is not valid UTF-8 at byte {error.start}."
            ) from error


def _golds(path: Path, n: int) -> "list[Gold]":
    from regard.evaluation.report import read_gold

    golds = [read_gold(line, number) for number, line in enumerate(_stream(path), 1)]
    if len(golds) != n:
        raise InputError(f"{path} has {len(golds):,} lines of alignments for {n:,} sentences.")
    return golds


def _write(found: "Evaluation", report: Report) -> None:
    from regard.files import write_atomic

    if report.html is not None:
        from regard.figures.evaluation_figure import evaluation_html

        write_atomic(report.html, evaluation_html(found, language=report.language))
    if report.figure is not None:
        from regard.figures.evaluation_figure import draw_evaluation
        from regard.figures.formats import Figure

        Figure(draw_evaluation(found, language=report.language)).save(report.figure)


def _report(found: "Evaluation") -> str:
    return "\n\n".join(_told(system) for system in found.systems)


def _told(system: "System") -> str:
    lines = [system.name]
    for score in system.scores:
        chance = "" if score.p_value is None else f"   p = {score.p_value:.3f}"
        lines.append(f"  {score.name:12}{score.value:6.2f} ± {score.margin:.2f}{chance}")
        lines.append(f"{'':14}{score.signature}")
    lines.append(f"  exact match {100 * system.exact:6.2f} %")
    if system.perplexity is not None:
        lines.append(f"  perplexity  {system.perplexity:6.2f}")
    for title, groups in (("BLEU by length", system.lengths), ("F1 by count", system.words)):
        told = "  ".join(f"{group.label}: {group.value:.1f}" for group in groups)
        lines.append(f"  {title}: {told}")
    if system.alignment is not None and system.alignment.heads:
        best = system.alignment.best
        heads = ", ".join(f"{site} head {head}" for site, head in best.places)
        lines.append(
            f"  alignment error {best.error:.3f} on {best.n_links:,} links ({best.source}): {heads}"
        )
    return "\n".join(lines)
