"""`regard evaluate`: scores of translations and where they fail."""

from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import EngineFlags, LanguageOption, SearchFlags, grouped
from regard.cli.output import decoded_lines, pad, print_json
from regard.errors import InputError, translate, user_language

if TYPE_CHECKING:
    from regard.evaluation.alignment import Gold
    from regard.evaluation.report import ModelReadings, System


@dataclass(frozen=True)
class EvaluationFiles:
    """Files."""

    source: Path = Option(help="Read this file, one text per line, or this folder of images.")
    reference: list[Path] | None = Option(
        None, help="Compare with the translations or labels in this file; can be repeated."
    )
    gold: Path | None = Option(None, help="Read alignments, such as 0-0 1-2; 1p2 is only possible.")
    training: Path | None = Option(None, help="Count words in this training text of the target.")


@dataclass(frozen=True)
class ScoreFlags:
    """Scores."""

    tokenize: str = Option("13a", help="Split words for BLEU with this tokenizer.")
    lowercase: bool = Option(False, "--lowercase", help="Also print a BLEU that ignores case.")
    samples: int = Option(1000, help="Resample this many times for confidence intervals.", min=2)


@dataclass(frozen=True)
class ReportFlags:
    """Report."""

    html: Path | None = Option(None, help="Write an HTML page with all sentences side by side.")
    figure: Path | None = Option(None, help="Write the breakdown as .svg, .png or .pdf.")
    language: LanguageOption = None
    as_json: bool = Option(False, "--json", help="Print all scores as JSON.")


@grouped
def evaluate_command(
    model: str = Argument(help="Name or folder of a model, or a file of translations."),
    *,
    files: EvaluationFiles,
    search: SearchFlags,
    engine: EngineFlags,
    scoring: ScoreFlags,
    report: ReportFlags,
    compare: str | None = Option(None, help="Compare with this model or file of translations."),
) -> None:
    """Compare a model's translations with references, or measure a model of another task.

    Of language models and masked models, the perplexity of the source is measured; of classifiers,
    the accuracy for labels, one per line, or for a folder of images with a subfolder per class.

    BLEU, chrF and TER are sacreBLEU's, with signatures; ± is half the 95 % interval of resampled
    sentences. With --compare, each difference has a p-value. Every cross-attention head gets an
    alignment error, measured on --gold or on links that a dictionary learned from the two files is
    sure of; `regard translate --alignments` then uses the best heads.

    Example: regard evaluate en-de --source test.en --reference test.de --html test.html
    """
    from regard.evaluation.report import evaluate
    from regard.evaluation.scores import count_words
    from regard.figures.captions import check_language
    from regard.figures.evaluation_figure import draw_evaluation, evaluation_html
    from regard.figures.formats import Figure, check_extension
    from regard.files import write_atomic

    check_language(language := report.language or user_language())
    if report.figure is not None:
        check_extension(report.figure)
    if _measured(model, files, report):
        return
    sources, (references, *others), golds = _read_files(files)
    names = [model] if compare is None else [model, compare]
    labels = [Path(name).name or name for name in names]
    if len(set(labels)) < len(labels):
        labels = [f"{name} ({i})" for i, name in enumerate(names, 1)]
    systems = {
        label: _read_system(name, sources, references, golds, (search, engine))
        for label, name in zip(labels, names, strict=True)
    }
    seen = files.training and count_words(decoded_lines(files.training))
    found = evaluate(sources, references, systems, others=others, seen=seen, **vars(scoring))
    if report.html is not None:
        write_atomic(report.html, evaluation_html(found, language=language))
    if report.figure is not None:
        Figure(draw_evaluation(found, language=language)).save(report.figure)
    if report.as_json:
        print_json(found.to_json())
    else:
        typer.echo("\n\n".join(_summary(system) for system in found.systems))


def _read_files(files: EvaluationFiles) -> "tuple[list[str], list[list[str]], list[Gold] | None]":
    """Return sources, all references and alignments, which correspond line by line."""
    from regard.evaluation.report import read_gold
    from regard.evaluation.scores import check_lines

    sources, references = list(decoded_lines(files.source)), _references(files)
    golds = None
    if files.gold is not None:
        golds = list(starmap(read_gold, enumerate(decoded_lines(files.gold), 1)))
        check_lines("alignments", golds, references[0])
    check_lines("sources", sources, references[0])
    for others in references[1:]:
        check_lines("references", others, references[0])
    return sources, references, golds


def _references(files: EvaluationFiles) -> list[list[str]]:
    if not files.reference:
        raise InputError("translations need references: give them with --reference.")
    return [list(decoded_lines(path)) for path in files.reference]


def _measured(name: str, files: EvaluationFiles, report: ReportFlags) -> bool:
    """Print the scores of a model that does not translate; return False for one that does."""
    from regard.evaluation.report import measure_model
    from regard.interop.model_names import find_model
    from regard.model import load
    from regard.model_folder import is_transformers_folder, read_description

    if Path(name).is_file():
        return False
    folder = find_model(name)
    if not is_transformers_folder(folder) and read_description(folder).task == "translation":
        return False
    model = load(folder)
    if model.task == "translation":
        return False
    labels: list[str] = []
    if files.source.is_dir():
        pictures = sorted(one for one in files.source.glob("*/*") if one.name[0] != ".")
        inputs, labels = [str(one) for one in pictures], [one.parent.name for one in pictures]
    else:
        inputs = list(decoded_lines(files.source))
        if model.task == "classification":
            labels = _references(files)[0]
    _print_measures(name, measure_model(model, inputs, labels), as_json=report.as_json)
    return True


def _print_measures(name: str, found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"system": name, **found})
        return
    classes = found.pop("by_class", {})
    typer.echo(name)
    for what, value in found.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        typer.echo(f"  {pad(translate(what.replace('_', ' ')), 16)}{shown}")
    for label, share in classes.items():
        typer.echo(f"    {pad(label, 14)}{share:.4f}")


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
        texts = list(decoded_lines(Path(name)))
        check_lines("translations", texts, references)
        return ModelReadings(texts)
    model, (search, engine) = load(name), flags
    done = model.translate(sources, **engine.opening(), **vars(search.options()))
    return read_model(model, [one.text for one in done], sources, references, golds)


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
