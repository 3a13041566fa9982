"""Architecture of a model: columns of blocks from input to output, with shapes and counts."""

import re
from dataclasses import dataclass

from regard.analysis.architecture import Architecture, Block, Column
from regard.figures.captions import caption, text_width, truncate
from regard.figures.colors import FAINT, ROLES
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame

_WIDTH, _HEIGHT, _GAP, _COLUMN_GAP, _MARGIN = 270, 44, 20, 130, 12
_THIN = 22  # height of Norm, Add, and Add & Norm
_RESIDUAL = ("self-attention", "cross-attention", "feed-forward")
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
    columns = [_items(plan, column) for column in plan.columns]
    bottom = 40 + _GAP + max(sum(_gaps(one)) + sum(item.height for item in one) for one in columns)
    step = _WIDTH + _COLUMN_GAP
    drawing = Drawing(_MARGIN + len(plan.columns) * step - 60, bottom + 22)
    tops = [
        _add_column(drawing, plan, column, (_MARGIN + i * step, bottom), language)
        for i, column in enumerate(plan.columns)
    ]
    if len(plan.columns) == 2:
        _add_memory_arrow(drawing, plan.columns[1], tops)
    count = caption("parameters", language).format(count=f"{plan.parameters:,}")
    notes = [f"{plan.title}, d_model {plan.d_model}, {count}"]
    if plan.norm:
        notes.append(caption(f"norm {plan.norm}", language))
    return add_frame(drawing, name or plan.title, notes, language)


@dataclass(frozen=True)
class _Item:
    """A block of a column, or one of the thin boxes around it."""

    block: Block
    label: str = ""  # of a thin box: "norm layer", "add", "add norm layer", …

    @property
    def height(self) -> float:
        return _THIN if self.label else _HEIGHT


def _items(plan: Architecture, column: Column) -> list[_Item]:
    """Return the blocks, with norms and additions around those that have a residual connection."""
    items = []
    for block in column.blocks:
        residual = block.repeated and block.kind in _RESIDUAL and bool(plan.norm)
        if residual and plan.norm == "pre":
            items.append(_Item(block, f"norm {plan.norm_kind}"))
        items.append(_Item(block))
        if residual:
            items.append(
                _Item(block, "add" if plan.norm == "pre" else f"add norm {plan.norm_kind}")
            )
    return items


def _gaps(items: list[_Item]) -> list[float]:
    """Return the gap below each item, larger where the frame of repeated blocks has an edge."""
    gaps, below = [], None
    for item in items:
        edge = item.block.repeated != (below.block.repeated if below else False)
        same = below is not None and below.block is item.block
        gaps.append(10 if same else _GAP + 16 * edge)
        below = item
    return gaps


def _add_column(
    drawing: Drawing, plan: Architecture, column: Column, corner: tuple[float, float], language: str
) -> list[float]:
    """Draw a column from the bottom up; return the top of each block and of the column."""
    x, y = corner
    middle, tops, items = x + _WIDTH / 2, [], _items(plan, column)
    shifted = f" ({caption('shifted right', language)})" if column is not plan.columns[0] else ""
    label = f"{caption(column.side, language)}: {caption('input', language)}{shifted}"
    drawing.add(Text(middle, y + 16, label, 12, "middle", True))
    edges, starts = [], {}
    for item, gap in zip(items, _gaps(items), strict=True):
        block = item.block
        starts.setdefault(id(block), y - gap + 5)
        drawing.add(Line(((middle, y), (middle, y - gap)), arrow=True))
        y -= gap + item.height
        if item.label:
            _add_thin(drawing, item.label, (x, y), language)
        else:
            tops.append(y)
            _add_block(drawing, block, (x, y), language, side=column.side, plan=plan)
            _add_positions(drawing, plan, block, (middle + 10, y - 7), language)
        if item.label.startswith("add"):
            lane, start = x + _WIDTH + 5, starts[id(block)]
            points = ((middle, start), (lane, start), (lane, y + 11), (x + _WIDTH - 2, y + 11))
            drawing.add(Line(points, FAINT, 1, arrow=True, tooltip=caption("residual", language)))
        edges += [y, y + item.height] if block.repeated else []
    drawing.add(Line(((middle, y), (middle, y - _GAP)), arrow=True))
    _add_column_frame(drawing, column, x, edges)
    if column is plan.columns[-1]:
        softmax = "softmax → " if column.blocks[-1].kind == "linear" else ""
        label = f"{softmax}{caption('output', language)}"
        drawing.add(Text(middle, y - _GAP - 6, label, 12, "middle", True))
    return [*tops, y - _GAP]


def _add_column_frame(drawing: Drawing, column: Column, x: float, edges: list[float]) -> None:
    """Draw the frame around repeated blocks, and how often they are repeated."""
    if edges:
        high, low = min(edges) - 9, max(edges) + 9
        drawing.add(Box(x - 10, high, _WIDTH + 20, low - high, stroke=FAINT, radius=8))
        times = f"× {column.n_layers}"
        drawing.add(Text(x + _WIDTH + 16, (low + high) / 2 + 5, times, 14, bold=True))


def _add_thin(drawing: Drawing, label: str, corner: tuple[float, float], language: str) -> None:
    drawing.add(Box(*corner, _WIDTH, _THIN, "#F7F4E3", FAINT, 5))
    x, y = corner[0] + _WIDTH / 2, corner[1] + 15
    drawing.add(Text(x, y, caption(label, language), 11, "middle"))


def _add_positions(
    drawing: Drawing, plan: Architecture, block: Block, at: tuple[float, float], language: str
) -> None:
    """Name positions that are added to the embedding; rotary ones are named at the attention."""
    if not block.name.endswith("tokens") or plan.positions in ("", "none", "learned"):
        return
    if plan.positions not in ("rotary", "alibi"):
        name = caption(f"positions {plan.positions}", language)
        label = f"+ {caption('positional', language)}: {name}"
        drawing.add(Text(*at, label, 11, color=FAINT))


def _add_block(
    drawing: Drawing,
    block: Block,
    corner: tuple[float, float],
    language: str,
    *,
    side: str,
    plan: Architecture,
) -> None:
    x, y = corner
    right, known = x + _WIDTH - 12, block.kind in _FILLS
    fill = _FILLS.get(block.kind, "#F2F2F2")
    drawing.add(Box(x, y, _WIDTH, _HEIGHT, fill, FAINT, 6, block.name))
    kind = caption(block.kind, language) if known else block.kind
    if block.kind == "norm":
        kind = caption(f"norm {plan.norm_kind}", language)
    if block.kind == "self-attention" and side == "decoder":
        kind = caption("masked self-attention", language)
    if block.kind == "self-attention" and plan.positions in ("rotary", "alibi"):
        name = caption(f"positions {plan.positions}", language)
        drawing.add(Text(right, y + 18, name, 11, "end", color=FAINT))
    drawing.add(Text(x + 12, y + 18, kind, 13, bold=True))
    if block.kind in ("linear", "embedding"):
        drawing.add(Text(right, y + 18, block.name.rpartition(".")[2], 11, "end", color=FAINT))
    count = caption("shared", language) if block.shared else f"{block.parameters:,}"
    shape = block.shape
    if language == "ko":
        shape = re.sub(r"(\d+) heads?", r"헤드 \1개", shape)
    shape = truncate(shape, _WIDTH - 36 - text_width(count, 11), 11)
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
