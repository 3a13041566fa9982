"""The parts of a model in the order in which data flows through them, ready to be drawn."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from torch import nn

from regard.errors import InputError
from regard.models.config import ModelConfig
from regard.models.summary import SummaryRow, summarize

_LAYERS = re.compile(r"\.layers\.[\d–]+")
_CROSS = "cross-attention"


@dataclass(frozen=True)
class Block:
    """One part of a model."""

    kind: str
    """"embedding", "self-attention", "cross-attention", "feed-forward", "norm", "linear", …"""
    name: str  # path of the module
    shape: str
    parameters: int  # parameters of one such part
    repeated: bool = False  # True for a part of repeated layers
    shared: bool = False  # True if its matrix belongs to another part


@dataclass(frozen=True)
class Column:
    """The parts of one side, first to last."""

    side: str  # "encoder" or "decoder"
    blocks: tuple[Block, ...]
    n_layers: int


@dataclass(frozen=True)
class Architecture:
    """The columns of a model and its overall settings."""

    title: str
    columns: tuple[Column, ...]
    parameters: int
    d_model: int
    positions: str
    norm: str  # "pre", "post", or "" if the family has no choice
    norm_kind: str = "layer"  # or "rms"


def architecture(model: nn.Module) -> Architecture:
    """Return the parts of a model of any family, which may be on the meta device."""
    if not isinstance(getattr(model, "config", None), ModelConfig):
        raise InputError(
            f"{type(model).__name__} is not a model of regard's own families, whose architecture "
            "can be drawn: print the model to see its parts."
        )
    summary, config = summarize(model), getattr(model, "config").to_dict()  # noqa: B009
    rows = summary.rows
    sides = [s for s in ("encoder", "decoder") if any(r.path.startswith(s + ".") for r in rows)]
    columns = tuple(_column(side, sides, rows) for side in sides)
    settings = (config["d_model"], config.get("positions", ""), config.get("norm", ""))
    settings = (*settings, config.get("norm_kind", "layer"))
    return Architecture(summary.title, columns, summary.parameters, *settings)


def _column(side: str, sides: list[str], rows: tuple[SummaryRow, ...]) -> Column:
    is_last = side == sides[-1]
    own = sorted((row for row in rows if row.path.startswith(side + ".")), key=_order)
    named = {row.path: row for row in rows}
    tokens = named.get("tokens" if is_last else "source_tokens", named.get("tokens"))
    before = [] if tokens is None else [tokens]
    after = [row for row in rows if is_last and _is_after_stacks(row, named)]
    blocks = [_block(row, side) for row in [*before, *own, *after]]
    if is_last and len(sides) > 1 and before and "source_tokens" not in named:
        blocks[0] = replace(blocks[0], shared=True)
    n_layers = max((row.count for row in own if _LAYERS.search(row.path)), default=1)
    return Column(side, tuple(_join_similarities(blocks)), n_layers)


def _order(row: SummaryRow) -> int:
    """Sort the parts of an embedding by use, before all others."""
    order = ("to_token", "special", "types", "positions", "norm")
    if ".embedding." not in row.path:
        return len(order)
    name = row.path.rpartition(".")[2]
    return order.index(name) if name in order else 0


def _is_after_stacks(row: SummaryRow, named: dict[str, SummaryRow]) -> bool:
    before = ("encoder.", "decoder.", "tokens", "source_tokens", "bridges.")
    unused_pooler = row.path == "pooler" and "projection" in named
    return not (row.path.startswith(before) or row.kind == "parameter" or unused_pooler)


def _join_similarities(blocks: list[Block]) -> Iterator[Block]:
    """Join the matrices of one similarity into one block."""
    for is_cross, group in groupby(blocks, key=lambda block: block.kind == _CROSS):
        parts = list(group)
        if is_cross and len(parts) > 1:
            shape = ", ".join(part.shape for part in parts)
            total = sum(part.parameters for part in parts)
            yield replace(parts[0], name="cross", shape=shape, parameters=total)
        else:
            yield from parts


def _block(row: SummaryRow, side: str) -> Block:
    shared, name = row.kind == "the embedding again", row.path.removeprefix(side + ".")
    kind, repeated = "linear" if shared else _kind(row), bool(_LAYERS.search(row.path))
    return Block(kind, name, row.shape, row.parameters // row.count, repeated, shared)


def _kind(row: SummaryRow) -> str:
    tests = (
        (row.kind == "attention" and row.path.endswith("cross"), _CROSS),
        (row.kind == "attention", "self-attention"),
        (row.kind.startswith("feed-forward"), "feed-forward"),
        ("positions" in row.path, "positional"),
        ("embedding" in row.kind or row.path.endswith("special"), "embedding"),
        ("Norm" in row.kind, "norm"),
        (row.kind == "RecurrentLayer", "recurrent"),
        (".cross." in row.path, _CROSS),
        (row.kind == "parameter", "linear"),
    )
    return next((kind for applies, kind in tests if applies), row.kind)
