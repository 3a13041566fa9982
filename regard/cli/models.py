"""`regard models`: list bundled models and presets, and show the parts of a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import JsonFlag, complete_models
from regard.cli.output import cells, pad, print_json, say, terminal_width, wrapped
from regard.errors import InputError, UnknownNameError, nearest, translate, user_language

if TYPE_CHECKING:
    from regard.model_folder import Card
    from regard.models.summary import Summary


def models_command(
    model: str | None = Argument(
        None,
        help="Name of a bundled model or preset, or a folder.",
        autocompletion=complete_models,
    ),
    presets: bool = Option(False, "--presets", help="List the presets that can be built by name."),
    families: bool = Option(False, "--families", help="List what each family of models can do."),
    as_json: JsonFlag = False,
) -> None:
    """List the bundled models, or show the parts and the card of one model.

    Example: regard models en-de
    """
    if (model is not None) + presets + families > 1:
        raise InputError("give a model, --presets or --families, one at a time.")
    if presets:
        _list_presets(as_json=as_json)
    elif families:
        _list_families(as_json=as_json)
    elif model is None:
        _list_bundled(as_json=as_json)
    else:
        _show(model, as_json=as_json)


def _list_bundled(*, as_json: bool) -> None:
    from regard.interop.model_names import named
    from regard.model_folder import read_card, read_description

    found: list[dict[str, Any]] = []
    for name, folder in named().items():
        described = read_description(folder)
        kind = {"name": name, "task": described.task, "family": described.family}
        found.append({**kind, **read_card(folder).facts()})
    if as_json:
        print_json(found, indent=1)
    elif found:
        _print_table(["name", "task", "family", "score", "size", "license", "data"], found)
    else:
        say("This version has no bundled models: train one, or import a checkpoint.")


def _list_presets(*, as_json: bool) -> None:
    from regard.models.presets import PAPER_VOCABULARY, PRESETS

    found: list[dict[str, Any]] = []
    for preset in PRESETS.values():
        count = preset.count_parameters()
        kind = {"name": preset.name, "family": preset.config.family}
        sizes = {"parameters": count, "memory": 4 * count}
        paper = {"PPL": preset.perplexity, "BLEU": preset.bleu}
        found.append({**kind, **sizes, **paper, "about": preset.about})
    if as_json:
        print_json(found, indent=1)
        return
    shown = []
    for row in found:
        sizes = {"parameters": f"{row['parameters']:,}", "memory": f"{row['memory'] / 1e6:,.1f} MB"}
        paper = {"PPL": "", "BLEU": ""}
        if row["PPL"] is not None:
            paper = {"PPL": f"{row['PPL']:.2f}", "BLEU": f"{row['BLEU']:.1f}"}
        shown.append({**row, **sizes, **paper})
    _print_table(list(shown[0]), shown, right=("parameters", "memory", "PPL", "BLEU"))
    typer.echo()
    note = translate(
        "PPL and BLEU are the paper's, of English to German on newstest2013. Its models have a "
        f"vocabulary of {PAPER_VOCABULARY:,} here: the paper says about 37,000, but the numbers of "
        "parameters in its table 3 imply more."
    )
    typer.echo("\n".join(wrapped(note, terminal_width())))


def _list_families(*, as_json: bool) -> None:
    from regard.capabilities import family_rows

    rows = family_rows("en" if as_json else user_language())
    if as_json:
        print_json(rows, indent=1)
    else:
        _print_table(list(rows[0]), rows)


def _show(name: str, *, as_json: bool) -> None:
    summary, card = _summary_of(name)
    if as_json:
        rows = [vars(row) for row in summary.rows]
        totals = {
            key: getattr(summary, key) for key in ("parameters", "memory", "flops", "n_token")
        }
        facts = {} if card is None else card.facts() | {"text": card.text}
        plain = {"name": name, "kind": summary.title, **totals, "parts": rows, "card": facts}
        print_json(plain, indent=1)
        return
    _print_summary(summary)
    if card is not None:
        width = terminal_width()
        known = [
            f"{translate(name)}: {translate(fact, short=name == 'score')}"
            for name, fact in card.facts().items()
            if fact
        ]
        typer.echo("\n" + "\n".join(part for one in known for part in wrapped(one, width)))
        if card.text:
            typer.echo("\n" + _translated_card(card.text))


def _print_summary(summary: "Summary") -> None:
    """Print a summary, as a table that fits the terminal."""
    text, width = str(summary), terminal_width()
    fits = width is None or all(cells(line) <= width for line in text.splitlines())
    if fits and user_language() == "en":
        typer.echo(text)
        return
    title, *_, end = text.splitlines()
    typer.echo(f"{title}\n")
    totals = {"parameters": f"{summary.parameters:,}", "FLOPs/token": f"{summary.flops:,}"}
    rows = [replace(row, kind=translate(row.kind)).cells() for row in summary.rows]
    heads = list(rows[0])
    _print_table(heads, [*rows, {"part": translate("total"), **totals}], right=heads[-2:])
    typer.echo(f"\n{translate(end)}")


def _translated_card(text: str) -> str:
    """Return the text of a card as it fits the terminal, translated where a translation exists."""
    from regard.model_folder import translated_paragraph

    width, shown = terminal_width(), []
    for own in text.split("\n\n"):
        translated = translated_paragraph(own)
        if own[:1] in "#-|*<0123456789" or (width is None and translated == own):
            shown.append(translated)
        else:
            shown.append("\n".join(wrapped(" ".join(translated.split()), width)))
    return "\n\n".join(shown)


def _summary_of(name: str) -> "tuple[Summary, Card | None]":
    from regard.interop.model_names import bundled, find_model
    from regard.model import load
    from regard.model_folder import is_transformers_folder, read_card, read_description
    from regard.models.config import build_on_meta, config_from_dict
    from regard.models.presets import PRESETS
    from regard.models.summary import summarize

    try:
        folder = find_model(name)
    except UnknownNameError:
        if name in PRESETS:
            return summarize(build_on_meta(PRESETS[name].config)), None
        known = nearest(name, [*bundled(), *PRESETS])
        raise UnknownNameError(
            f"{name!r} is neither a bundled model nor a preset nor a folder; {known}."
        ) from None
    if is_transformers_folder(folder):
        model = load(folder)
        return summarize(getattr(model.module, "inner", model.module)), model.card
    described = read_description(folder)
    config = config_from_dict({"family": described.family, **described.model})
    return summarize(build_on_meta(config)), read_card(folder)


def _print_table(
    heads: Sequence[str], rows: Sequence[dict[str, Any]], *, right: Sequence[str] = ()
) -> None:
    """Print a table; on a terminal, columns that do not fit follow each row, indented."""
    names = {head: translate(head) for head in heads}
    lines = [names]
    for row in rows:
        cell = {head: str(row.get(head, "")) for head in heads}
        lines.append(
            {
                x: text if x == "part" else translate(text, short=x == "score")
                for x, text in cell.items()
            }
        )
    widths = {head: max(cells(line[head]) for line in lines) for head in heads}
    limit = terminal_width()
    long: list[str] = []
    while limit and sum(widths[x] + 2 for x in heads if x not in long) - 2 > limit:
        others = [x for x in heads[1:] if x not in long]
        if not others:
            break
        long.append(max(others, key=lambda x: widths[x]))
    for line in lines:
        short = [pad(line[x], widths[x], right=x in right) for x in heads if x not in long]
        typer.echo("  ".join(short).rstrip())
        for head in heads if line is not names else ():
            if head in long and line[head]:
                for part in wrapped(f"{names[head]}: {line[head]}", limit and limit - 4):
                    typer.echo(f"    {part}")
