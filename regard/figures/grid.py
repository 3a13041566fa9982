"""A table of numbers from 0 to 1 as circles or coloured cells, with names along its sides."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import InputError
from regard.figures.colour import ROLES, shade, shades
from regard.figures.drawing import (
    FAINT,
    HAIRLINE,
    INK,
    Box,
    Circle,
    Drawing,
    Image,
    Line,
    Text,
    fitted,
    text_width,
    visible,
)

STYLES = ("circles", "heat")
MANY = 40
"""Beyond so many rows or columns cells are coloured pixels without names."""
_FEW = 16
"""Up to so many columns coloured cells hold their numbers."""
_WIDEST, _GAP, _FONT = 130, 8, 12


@dataclass(frozen=True, eq=False)
class Table:
    """What a grid shows: row asks column."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    asks: str = ""
    answers: str = ""
    """What stands beside the rows and above the columns."""


@dataclass(frozen=True)
class _Layout:
    cell: float
    left: float
    top: float
    slanted: bool


def draw_grid(table: Table, *, style: str | None = None, cell: float | None = None) -> Drawing:
    """The grid; circles (area is the number) unless it is large, or `style` says "heat"."""
    if style is not None and style not in STYLES:
        raise InputError(f"style is {style!r}; a grid can be {' or '.join(STYLES)}.")
    n_rows, n_columns = table.values.shape
    if max(n_rows, n_columns) > MANY:
        return _draw_pixels(table)
    layout = _lay_out(table, cell)
    wide, high = layout.cell * n_columns, layout.cell * n_rows
    lean = text_width(visible(table.columns[-1]), _FONT) * 0.72 if layout.slanted else 0
    width = layout.left + wide + max(12, min(lean, _WIDEST * 0.72))
    drawing = Drawing(width, layout.top + high + 12, "")
    if style == "heat":
        _add_cells(drawing, table, layout)
    else:
        _add_circles(drawing, table, layout)
    _add_names(drawing, table, layout)
    return drawing


def _lay_out(table: Table, cell: float | None) -> _Layout:
    def widest(names: Sequence[str]) -> float:
        return min(max((text_width(visible(name), _FONT) for name in names), default=0), _WIDEST)

    size = cell or max(20.0, min(46.0, 640 / max(table.values.shape)))
    above = widest(table.columns)
    slanted = above > size - 4
    title = 22 if table.answers else 0
    left = max(widest(table.rows) + _GAP, 20) + (20 if table.asks else 0) + 12
    return _Layout(size, left, title + (above * 0.72 + 18 if slanted else 24), slanted)


def _add_names(drawing: Drawing, table: Table, layout: _Layout) -> None:
    cell, left, top = layout.cell, layout.left, layout.top
    for i, name in enumerate(table.rows):
        label = fitted(visible(name), _WIDEST, _FONT)
        y = top + cell * (i + 0.5) + 4
        drawing.add(Text(left - _GAP, y, label, _FONT, "end"))
    for j, name in enumerate(table.columns):
        label, x = fitted(visible(name), _WIDEST, _FONT), left + cell * (j + 0.5)
        if layout.slanted:
            drawing.add(Text(x, top - _GAP, label, _FONT, turned=45))
        else:
            drawing.add(Text(x, top - _GAP, label, _FONT, "middle"))
    if table.answers:
        drawing.add(Text(left, 12, table.answers, 12, colour=ROLES["key"], bold=True))
    if table.asks:
        middle = top + cell * len(table.rows) / 2
        ask = Text(14, middle, table.asks, 12, "middle", colour=ROLES["query"], bold=True)
        drawing.add(Text(**{**ask.__dict__, "turned": 90}))


def _add_circles(drawing: Drawing, table: Table, layout: _Layout) -> None:
    cell, left, top = layout.cell, layout.left, layout.top
    n_rows, n_columns = table.values.shape
    right, bottom = left + cell * n_columns, top + cell * n_rows
    for i in range(n_rows + 1):
        drawing.add(Line(((left, top + cell * i), (right, top + cell * i)), HAIRLINE, 0.5))
    for j in range(n_columns + 1):
        drawing.add(Line(((left + cell * j, top), (left + cell * j, bottom)), HAIRLINE, 0.5))
    for (i, j), value in np.ndenumerate(table.values):
        note, x, y = _note(table, i, j, value), left + cell * (j + 0.5), top + cell * (i + 0.5)
        radius = circle_radius(float(value), cell)
        if radius > 0:
            drawing.add(Circle(x, y, radius, ROLES["weight"], note))


def circle_radius(value: float, cell: float) -> float:
    """The radius of a disc whose area is the value; that of 1 all but fills its cell."""
    return max(value, 0.0) ** 0.5 * cell * 0.46


def _add_cells(drawing: Drawing, table: Table, layout: _Layout) -> None:
    cell, left, top = layout.cell, layout.left, layout.top
    for (i, j), value in np.ndenumerate(table.values):
        x, y, note = left + cell * j, top + cell * i, _note(table, i, j, value)
        drawing.add(Box(x, y, cell, cell, shade(float(value)), HAIRLINE, note=note))
        if table.values.shape[1] <= _FEW:
            dark = "#FFFFFF" if value > 0.45 else INK
            digits = Text(x + cell / 2, y + cell / 2 + 4, f"{value:.2f}", 11, "middle", colour=dark)
            drawing.add(digits)


def _note(table: Table, i: int, j: int, value: float) -> str:
    return f"{table.rows[i]} → {table.columns[j]}: {value:.4f}"


def _draw_pixels(table: Table) -> Drawing:
    """Large tables: one pixel a cell, made as large as the page allows."""
    n_rows, n_columns = table.values.shape
    scale = 640 / max(n_rows, n_columns)
    wide, high, left, top = n_columns * scale, n_rows * scale, 54, 44
    drawing = Drawing(left + wide + 20, top + high + 20, "")
    drawing.add(Image(left, top, wide, high, shades(table.values)))
    drawing.add(Box(left, top, wide, high, stroke=HAIRLINE))
    drawing.add(Text(left, 12, table.answers, 12, colour=ROLES["key"], bold=True))
    asks = Text(14, top + high / 2, table.asks, 12, "middle", True, ROLES["query"], 90)
    drawing.add(asks)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        row, column = round(share * (n_rows - 1)), round(share * (n_columns - 1))
        place = top + (row + 0.5) * scale + 4
        drawing.add(Text(left - 6, place, str(row), 11, "end", colour=FAINT))
        across = left + (column + 0.5) * scale
        drawing.add(Text(across, top - 6, str(column), 11, "middle", colour=FAINT))
    return drawing
