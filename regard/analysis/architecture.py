"""What a model is made of, in the order in which data flows, ready to be drawn."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from torch import nn

from regard.models.summary import SummaryRow, summarize

_LAYERS = re.compile(r"\.layers\.[\d–]+")


@dataclass(frozen=True)
class Block:
    """One part of a model."""

    kind: str
    """"embedding", "self-attention", "cross-attention", "feed-forward", "norm", "linear", …"""
    name: str
    """Its path."""
    shape: str
    parameters: int
    """Of one such part."""
    repeated: bool = False
    """Whether it is part of a layer that comes several times."""
    shared: bool = False
    """Whether its matrix is another part's."""


@dataclass(frozen=True)
class Column:
    """The parts that one text passes, first to last."""

    side: str
    """"encoder" or "decoder"."""
    blocks: tuple[Block, ...]
    n_layers: int


@dataclass(frozen=True)
class Architecture:
    """The columns of a model, and what holds for all of it."""

    title: str
    columns: tuple[Column, ...]
    parameters: int
    d_model: int
    positions: str
    norm: str
    """"pre", "post", or "" where there is none to choose."""


def architecture(model: nn.Module) -> Architecture:
    """The plan of a model of any family; its weights need no room."""
    summary, config = summarize(model), _settings(model)
    rows = summary.rows
    sides = [s for s in ("encoder", "decoder") if any(r.path.startswith(s + ".") for r in rows)]
    return Architecture(
        title=summary.title,
        columns=tuple(_column(side, sides, rows) for side in sides),
        parameters=summary.parameters,
        d_model=config["d_model"],
        positions=config.get("positions", ""),
        norm=config.get("norm", ""),
    )


def _settings(model: nn.Module) -> dict[str, Any]:
    config = getattr(model, "config")  # noqa: B009  every family's model has one
    return config.to_dict()


def _column(side: str, sides: list[str], rows: tuple[SummaryRow, ...]) -> Column:
    last, single = side == sides[-1], len(sides) == 1
    own = sorted((row for row in rows if row.path.startswith(side + ".")), key=_order)
    named = {row.path: row for row in rows}
    first = "source_tokens" if "source_tokens" in named and not last else "tokens"
    outside = [row for row in rows if not row.path.startswith((*_BEFORE, "bridges."))]
    after = [row for row in outside if _is_on_the_way(row, named)] if last else []
    begin = [named[first]] if first in named else []
    blocks = [_block(row, side) for row in [*begin, *own, *after]]
    if last and not single and begin and "source_tokens" not in named:
        blocks[0] = replace(blocks[0], shared=True)
    counts = [row.count for row in own if _LAYERS.search(row.path)]
    return Column(side, tuple(_joined(blocks)), max(counts, default=1))


_BEFORE = ("encoder.", "decoder.", "tokens", "source_tokens")
_EMBEDDING = ("to_token", "special", "types", "positions", "norm")


def _order(row: SummaryRow) -> int:
    """Parts of an embedding in the order of use; all others stay behind them as they are."""
    if ".embedding." not in row.path:
        return len(_EMBEDDING)
    name = row.path.rpartition(".")[2]
    return _EMBEDDING.index(name) if name in _EMBEDDING else 0


def _is_on_the_way(row: SummaryRow, named: dict[str, SummaryRow]) -> bool:
    """Whether a part lies on the way to the output.

    What hands states over at the start does not, nor does a pooler beside a projection.
    """
    return row.kind != "parameter" and not (row.path == "pooler" and "projection" in named)


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """Blocks in order; the matrices of one similarity as one block."""
    for name, group in groupby(blocks, key=lambda b: b.name if b.kind != _ALIGNS else _ALIGNS):
        parts = list(group)
        if name == _ALIGNS and len(parts) > 1:
            shape = ", ".join(part.shape for part in parts)
            total = sum(part.parameters for part in parts)
            yield replace(parts[0], name="cross", shape=shape, parameters=total)
        else:
            yield from parts


_ALIGNS = "cross-attention"


def _block(row: SummaryRow, side: str) -> Block:
    kind = row.kind
    if row.kind == "attention":
        kind = "cross-attention" if row.path.endswith("cross") else "self-attention"
    elif row.kind.startswith("feed-forward"):
        kind = "feed-forward"
    elif "embedding" in row.kind or "positions" in row.path or row.path.endswith("special"):
        kind = "positional" if "positions" in row.path else "embedding"
    elif "Norm" in row.kind:
        kind = "norm"
    elif row.kind == "RecurrentLayer":
        kind = "recurrent"
    elif ".cross." in row.path:
        kind = "cross-attention"
    shared = row.kind == "the embedding again"
    return Block(
        "linear" if shared or kind in ("linear", "parameter") else kind,
        row.path.removeprefix(side + "."),
        row.shape,
        row.parameters // row.count,
        repeated=bool(_LAYERS.search(row.path)),
        shared=shared,
    )
