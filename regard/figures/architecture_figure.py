"""Architecture of a model: columns of blocks from input to output, with shapes and counts."""

from itertools import pairwise

from regard.analysis.architecture import Architecture, Block, Column
from regard.figures.captions import caption, text_width, truncate
from regard.figures.colors import FAINT, ROLES
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame

_WIDTH, _HEIGHT, _GAP, _COLUMN_GAP, _MARGIN = 250, 44, 20, 130, 12
_FILLS = {
    "self-attention": "#E3EEF7",
    "cross-attention": "#FBEFD8",
    "feed-forward": "#DDF1EA",
    "embedding": "#EFECF6",
    "positional": "#EFECF6",
    "linear": "#EFECF6",
    "recurrent": "#E3EEF7",
    "norm": "#F2F2F2",
}


def draw_architecture(plan: Architecture, *, name: str = "", language: str = "en") -> Drawing:
    """Draw a model with data flowing upwards, as in figure 1 of the Transformer paper."""
    bottom = 40 + _GAP + max(sum(g + _HEIGHT for g in _gaps(column)) for column in plan.columns)
    step = _WIDTH + _COLUMN_GAP
    drawing = Drawing(_MARGIN + len(plan.columns) * step - 60, bottom + 22)
    tops = [
        _add_column(drawing, plan, column, (_MARGIN + i * step, bottom), language)
        for i, column in enumerate(plan.columns)
    ]
    if len(plan.columns) == 2:
        _add_memory_arrow(drawing, plan.columns[1], tops)
    count = f"{plan.parameters:,} {caption('parameters', language)}"
    notes = [f"{plan.title}, d_model {plan.d_model}, {count}"]
    if plan.norm:
        notes.append(caption(f"norm {plan.norm}", language))
    return add_frame(drawing, name or plan.title, notes, language)


def _gaps(column: Column) -> list[float]:
    """Return the gap below each block, larger where the frame of repeated blocks has an edge."""
    repeated = [False, *(block.repeated for block in column.blocks)]
    return [_GAP + 16 * (below != above) for below, above in pairwise(repeated)]


def _add_column(
    drawing: Drawing, plan: Architecture, column: Column, corner: tuple[float, float], language: str
) -> list[float]:
    """Draw a column from the bottom up; return the top of each block and of the column."""
    x, y = corner
    middle, tops = x + _WIDTH / 2, []
    label = f"{caption(column.side, language)}: {caption('input', language)}"
    drawing.add(Text(middle, y + 16, label, 12, "middle", True))
    for block, gap in zip(column.blocks, _gaps(column), strict=True):
        drawing.add(Line(((middle, y), (middle, y - gap)), arrow=True))
        y -= gap + _HEIGHT
        tops.append(y)
        _add_block(drawing, block, (x, y), language)
        if block.name.endswith("tokens") and plan.positions not in ("", "none", "learned"):
            label = f"+ {caption('positional', language)}: {plan.positions}"
            drawing.add(Text(middle + 10, y - 7, label, 11, color=FAINT))
    drawing.add(Line(((middle, y), (middle, y - _GAP)), arrow=True))
    if repeated := [top for top, block in zip(tops, column.blocks, strict=True) if block.repeated]:
        high, low = repeated[-1] - 9, repeated[0] + _HEIGHT + 9
        drawing.add(Box(x - 10, high, _WIDTH + 20, low - high, stroke=FAINT, radius=8))
        times = f"× {column.n_layers}"
        drawing.add(Text(x + _WIDTH + 16, (low + high) / 2 + 5, times, 14, bold=True))
    if column is plan.columns[-1]:
        drawing.add(Text(middle, y - _GAP - 6, caption("output", language), 12, "middle", True))
    return [*tops, y - _GAP]


def _add_block(drawing: Drawing, block: Block, corner: tuple[float, float], language: str) -> None:
    x, y = corner
    right, known = x + _WIDTH - 12, block.kind in _FILLS
    fill = _FILLS.get(block.kind, "#F2F2F2")
    drawing.add(Box(x, y, _WIDTH, _HEIGHT, fill, FAINT, 6, block.name))
    kind = caption(block.kind, language) if known else block.kind
    drawing.add(Text(x + 12, y + 18, kind, 13, bold=True))
    if block.kind in ("linear", "embedding"):
        drawing.add(Text(right, y + 18, block.name.rpartition(".")[2], 11, "end", color=FAINT))
    count = caption("shared", language) if block.shared else f"{block.parameters:,}"
    shape = truncate(block.shape, _WIDTH - 36 - text_width(count, 11), 11)
    drawing.add(Text(x + 12, y + 35, shape, 11))
    drawing.add(Text(right, y + 35, count, 11, "end", color=FAINT))


def _add_memory_arrow(drawing: Drawing, decoder: Column, tops: list[list[float]]) -> None:
    """Draw the arrow from the encoder's output to the decoder's cross-attention."""
    crossing = [i for i, block in enumerate(decoder.blocks) if block.kind == "cross-attention"]
    if not crossing:
        return
    top, y = tops[0][-1], tops[1][crossing[0]] + _HEIGHT / 2
    start, end = _MARGIN + _WIDTH / 2, _MARGIN + _WIDTH + _COLUMN_GAP
    lane = end - 44
    points = ((start, top), (lane, top), (lane, y), (end, y))
    drawing.add(Line(points, ROLES["key"], 1.5, arrow=True, tooltip="keys, values"))
    drawing.add(Text(lane - 6, y + 4, "K, V", 11, "end"))
