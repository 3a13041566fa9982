"""`regard models`: list bundled models and presets, and show the parts of a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from regard.cli.options import JsonFlag
from regard.cli.output import print_json
from regard.errors import InputError, UnknownNameError, nearest

if TYPE_CHECKING:
    from regard.model_folder import Card
    from regard.models.summary import Summary


def models_command(
    model: str | None = Argument(None, help="Name of a bundled model or preset, or a folder."),
    presets: bool = Option(False, "--presets", help="List the presets that can be built by name."),
    as_json: JsonFlag = False,
) -> None:
    """List the bundled models, or show the parts and the card of one model.

    Example: regard models en-de
    """
    if presets and model is not None:
        raise InputError("give a model or --presets, not both.")
    if presets:
        _list_presets(as_json=as_json)
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
        typer.echo("This version has no bundled models: train one, or import a checkpoint.")


def _list_presets(*, as_json: bool) -> None:
    from regard.models.presets import PRESETS

    found: list[dict[str, Any]] = []
    for preset in PRESETS.values():
        count = preset.count_parameters()
        kind = {"name": preset.name, "family": preset.config.family}
        found.append({**kind, "parameters": count, "memory": 4 * count, "about": preset.about})
    if as_json:
        print_json(found, indent=1)
        return
    shown = [
        {**row, "parameters": f"{row['parameters']:,}", "memory": f"{row['memory'] / 1e6:,.1f} MB"}
        for row in found
    ]
    _print_table(list(shown[0]), shown, right=("parameters", "memory"))


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
    typer.echo(str(summary))
    if card is not None:
        known = [f"{name}: {fact}" for name, fact in card.facts().items() if fact]
        typer.echo("\n" + "\n".join(known))
        if card.text:
            typer.echo("\n" + card.text)


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
    lines = [dict(zip(heads, heads, strict=True)), *rows]
    columns = []
    for head in heads:
        cells = [str(line.get(head, "")) for line in lines]
        width = max(map(len, cells))
        columns.append([c.rjust(width) if head in right else c.ljust(width) for c in cells])
    for cells in zip(*columns, strict=True):
        typer.echo("  ".join(cells).rstrip())
