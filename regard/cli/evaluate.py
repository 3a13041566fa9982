"""`regard evaluate`: scores of translations and where they fail."""

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
    from regard.evaluation.report import Evaluation, ModelReadings, System


@dataclass(frozen=True)
class EvaluationFiles:
    """Files."""

    source: Annotated[Path, typer.Option(help="Translate this file, one sentence per line.")]
    reference: Annotated[Path, typer.Option(help="Compare with the translations in this file.")]
    gold: Annotated[
        Path | None,
        typer.Option(help="Read known alignments, such as 0-0 1-2; 1p2 is only possible."),
    ] = None
    training: Annotated[
        Path | None, typer.Option(help="Count words in this training text of the target.")
    ] = None


@dataclass(frozen=True)
class ScoreFlags:
    """Scores."""

    tokenize: Annotated[str, typer.Option(help="Split words for BLEU with this tokenizer.")] = "13a"
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Also print a BLEU that ignores case.")
    ] = False
    samples: Annotated[
        int, typer.Option(help="Resample this many times for confidence intervals.", min=2)
    ] = 1000


@dataclass(frozen=True)
class ReportFlags:
    """Report."""

    html: Annotated[
        Path | None, typer.Option(help="Write an HTML page with all sentences side by side.")
    ] = None
    figure: Annotated[
        Path | None, typer.Option(help="Write the breakdown as .svg, .png or .pdf.")
    ] = None
    language: Annotated[str, typer.Option(help="Write page and figure in en or ko.")] = "en"
    as_json: Annotated[bool, typer.Option("--json", help="Print all scores as JSON.")] = False


@grouped
def evaluate_command(
    model: Annotated[
        str,
        typer.Argument(
            help="Name of a bundled model, path of a model folder, or a file of translations."
        ),
    ],
    files: EvaluationFiles,
    search: SearchFlags,
    engine: EngineFlags,
    scoring: ScoreFlags,
    report: ReportFlags,
    compare: Annotated[
        str | None, typer.Option(help="Compare with this model or file of translations.")
    ] = None,
) -> None:
    """Compare a model's translations with references.

    BLEU, chrF and TER are sacreBLEU's, with signatures; ± is half the 95 % interval of resampled
    sentences. With --compare, each difference has a p-value. Every cross-attention head gets an
    alignment error, measured on --gold or on links that a dictionary learned from the two files is
    sure of; `regard translate --alignments` then uses the best heads.

    Example: regard evaluate en-de --source test.en --reference test.de --html test.html
    """
    from regard.evaluation.report import EvaluationOptions, evaluate, read_gold
    from regard.evaluation.scores import check_lines, count_words
    from regard.figures.captions import check_language
    from regard.figures.formats import check_extension

    check_language(report.language)
    if report.figure is not None:
        check_extension(report.figure)
    sources, references = list(_lines(files.source)), list(_lines(files.reference))
    check_lines("sources", sources, references)
    golds = None
    if files.gold is not None:
        golds = [read_gold(line, number) for number, line in enumerate(_lines(files.gold), 1)]
        check_lines("alignments", golds, references)
    names = [model] if compare is None else [model, compare]
    labels = [Path(name).name or name for name in names]
    if len(set(labels)) < len(labels):
        labels = [f"{name} ({i})" for i, name in enumerate(names, 1)]
    systems = {
        label: _read_system(name, sources, references, golds, (search, engine))
        for label, name in zip(labels, names, strict=True)
    }
    seen = files.training and count_words(_lines(files.training))
    found = evaluate(sources, references, systems, EvaluationOptions(seen=seen, **vars(scoring)))
    _write(found, report)
    if report.as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        typer.echo("\n\n".join(_summary(system) for system in found.systems))


def _read_system(
    name: str,
    sources: list[str],
    references: list[str],
    golds: "list[Gold] | None",
    flags: tuple[SearchFlags, EngineFlags],
) -> "ModelReadings":
    from regard.evaluation.report import ModelReadings, read_model
    from regard.evaluation.scores import check_lines
    from regard.model import load

    if Path(name).is_file():
        texts = list(_lines(Path(name)))
        check_lines("translations", texts, references)
        return ModelReadings(texts)
    model, (search, engine) = load(name), flags
    done = model.translate(sources, **vars(engine), **vars(search.options()))
    return read_model(model, [one.text for one in done], sources, references, golds)


def _lines(path: Path) -> Iterator[str]:
    from regard.files import read_lines

    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            what = f"Line {number:,} of {path} is not valid UTF-8 at byte {error.start}."
            raise InputError(what) from error


def _write(found: "Evaluation", report: ReportFlags) -> None:
    from regard.figures.evaluation_figure import draw_evaluation, evaluation_html
    from regard.figures.formats import Figure
    from regard.files import write_atomic

    if report.html is not None:
        write_atomic(report.html, evaluation_html(found, language=report.language))
    if report.figure is not None:
        Figure(draw_evaluation(found, language=report.language)).save(report.figure)


def _summary(system: "System") -> str:
    lines = [system.name]
    for score in system.scores:
        p_value = "" if score.p_value is None else f"   p = {score.p_value:.3f}"
        lines.append(f"  {score.name:12}{score.value:6.2f} ± {score.margin:.2f}{p_value}")
        lines.append(f"{'':14}{score.signature}")
    lines.append(f"  exact match {100 * system.exact:6.2f} %")
    if system.perplexity is not None:
        lines.append(f"  perplexity  {system.perplexity:6.2f}")
    for title, groups in (("BLEU by length", system.lengths), ("F1 by count", system.words)):
        values = "  ".join(f"{group.label}: {group.value:.1f}" for group in groups)
        lines.append(f"  {title}: {values}")
    if system.alignment is not None and system.alignment.heads:
        best = system.alignment.best
        heads = ", ".join(f"{site} head {head}" for site, head in best.places)
        links = f"{best.n_links:,} links ({best.source})"
        lines.append(f"  alignment error {best.error:.3f} on {links}: {heads}")
    return "\n".join(lines)
