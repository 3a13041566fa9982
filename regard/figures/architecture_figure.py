"""A model's plan: columns of blocks from input to output, with shapes and counts."""

from itertools import pairwise

from regard.analysis.architecture import Architecture, Block, Column
from regard.figures.captions import caption
from regard.figures.color import ROLES
from regard.figures.drawing import FAINT, INK, Box, Drawing, Line, Text, fitted, text_width
from regard.figures.grid import framed

_WIDE, _HIGH, _GAP, _APART, _MARGIN = 250, 44, 20, 130, 12
_FILLS = {
    "self-attention": "#E3EEF7",
    "cross-attention": "#FBEFD8",
    "feed-forward": "#DDF1EA",
    "embedding": "#EFECF6",
    "positional": "#EFECF6",
    "linear": "#EFECF6",
    "recurrent": "#E3EEF7",
}


def draw_architecture(plan: Architecture, *, name: str = "", language: str = "en") -> Drawing:
    """Data flows upwards, as in the Transformer paper's figure 1."""
    bottom = max(_height(column) for column in plan.columns) + 20
    drawing = Drawing(_MARGIN + len(plan.columns) * (_WIDE + _APART) - 60, bottom + 22, "")
    places = [
        _add_column(drawing, column, (_MARGIN + i * (_WIDE + _APART), bottom), plan, language)
        for i, column in enumerate(plan.columns)
    ]
    if len(plan.columns) == 2:
        _add_crossing(drawing, plan.columns[1], places)
    count = f"{plan.parameters:,} {caption('parameters', language)}"
    told = [f"{plan.title}, d_model {plan.d_model}, {count}"]
    if plan.norm:
        told.append(caption(f"norm {plan.norm}", language))
    return framed(drawing, name or plan.title, told, language)


def _gaps(column: Column) -> list[float]:
    """The room below each block: more where a frame begins or ends."""
    repeated = [False, *(block.repeated for block in column.blocks)]
    return [_GAP + 16 * (one != other) for one, other in pairwise(repeated)]


def _height(column: Column) -> float:
    return sum(gap + _HIGH for gap in _gaps(column)) + _GAP + 20


def _add_column(
    drawing: Drawing,
    column: Column,
    place: tuple[float, float],
    plan: Architecture,
    language: str,
) -> list[float]:
    """Draw a column from the bottom up; gives where each block is, and where the column ends."""
    x, y = place
    middle, tops = x + _WIDE / 2, []
    given = f"{caption(column.side, language)}: {caption('input', language)}"
    drawing.add(Text(middle, y + 16, given, 12, "middle", True))
    framed_ones = [i for i, block in enumerate(column.blocks) if block.repeated]
    for block, gap in zip(column.blocks, _gaps(column), strict=True):
        drawing.add(Line(((middle, y), (middle, y - gap)), FAINT, 1, arrow=True))
        y -= gap + _HIGH
        tops.append(y)
        _add_block(drawing, block, (x, y), language)
        if block.name.endswith("tokens") and plan.positions not in ("", "none", "learned"):
            said = f"+ {caption('positional', language)}: {plan.positions}"
            drawing.add(Text(middle + 10, y - 7, said, 11, color=FAINT))
    drawing.add(Line(((middle, y), (middle, y - _GAP)), FAINT, 1, arrow=True))
    if framed_ones:
        high, low = tops[framed_ones[-1]] - 9, tops[framed_ones[0]] + _HIGH + 9
        drawing.add(Box(x - 10, high, _WIDE + 20, low - high, stroke=FAINT, radius=8))
        times = f"× {column.n_layers}"
        drawing.add(Text(x + _WIDE + 16, (low + high) / 2 + 5, times, 14, bold=True))
    if column is plan.columns[-1]:
        said = caption("output", language)
        drawing.add(Text(middle, y - _GAP - 6, said, 12, "middle", True))
    return [*tops, y - _GAP]


def _add_block(drawing: Drawing, block: Block, place: tuple[float, float], language: str) -> None:
    x, y = place
    fill = _FILLS.get(block.kind, "#F2F2F2")
    drawing.add(Box(x, y, _WIDE, _HIGH, fill, FAINT, 6, block.name))
    kind = caption(block.kind, language) if block.kind in _KNOWN else block.kind
    drawing.add(Text(x + 12, y + 18, kind, 13, bold=True))
    path = block.name.rpartition(".")[2] if block.kind in ("linear", "embedding") else ""
    if path:
        drawing.add(Text(x + _WIDE - 12, y + 18, path, 11, "end", color=FAINT))
    count = caption("shared", language) if block.shared else f"{block.parameters:,}"
    room = _WIDE - 36 - text_width(count, 11)
    drawing.add(Text(x + 12, y + 35, fitted(block.shape, room, 11), 11))
    drawing.add(Text(x + _WIDE - 12, y + 35, count, 11, "end", color=FAINT))


_KNOWN = {*_FILLS, "norm"}


def _add_crossing(drawing: Drawing, decoder: Column, places: list[list[float]]) -> None:
    """The way from the encoder's end into the decoder's cross-attention."""
    crossing = [i for i, block in enumerate(decoder.blocks) if block.kind == "cross-attention"]
    if not crossing:
        return
    top, y = places[0][-1], places[1][crossing[0]] + _HIGH / 2
    start, end = _MARGIN + _WIDE / 2, _MARGIN + _WIDE + _APART
    lane = end - 44
    way = ((start, top), (lane, top), (lane, y), (end, y))
    drawing.add(Line(way, ROLES["key"], 1.5, arrow=True, note="keys, values"))
    drawing.add(Text(lane - 6, y + 4, "K, V", 11, "end", color=INK))
