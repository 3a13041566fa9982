"""A table of numbers from 0 to 1 as circles or colored cells, with names along its sides."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import InputError
from regard.figures.captions import caption
from regard.figures.color import ROLES, shade, shades, signed
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

_MARGIN = 20


def framed(inner: Drawing, title: str, notes: list[str], language: str) -> Drawing:
    """The picture with its title above, lines that explain it, and a margin around."""
    top = _MARGIN + 14 + 18 * len(notes) + 14
    needed = max(text_width(title, 15) * 1.05, *(text_width(note, 12) for note in notes), 0)
    width = max(inner.width, needed) + 2 * _MARGIN
    whole = Drawing(width, top + inner.height + _MARGIN, title, language)
    whole.add(Text(_MARGIN, _MARGIN + 12, title, 15, bold=True))
    for i, note in enumerate(notes):
        whole.add(Text(_MARGIN, _MARGIN + 32 + 18 * i, note, 12, color=FAINT))
    whole.place(inner, _MARGIN, top)
    return whole


def add_below(drawing: Drawing, legend: Drawing, *, left: float = 0) -> None:
    """Put a legend under a picture."""
    drawing.place(legend, left, drawing.height + 6)
    drawing.height += legend.height + 6
    drawing.width = max(drawing.width, left + legend.width)


def circles_legend(cell: float, language: str) -> Drawing:
    """Discs of known sizes."""
    drawing, x = Drawing(0, max(cell, 24), ""), 0.0
    middle = drawing.height / 2
    for value in (0.1, 0.25, 0.5, 1.0):
        radius = circle_radius(value, cell)
        drawing.add(Circle(x + radius, middle, radius, ROLES["weight"]))
        drawing.add(Text(x + 2 * radius + 5, middle + 4, f"{value:g}", 11, color=FAINT))
        x += 2 * radius + 42
    said = caption("area is weight", language)
    drawing.add(Text(x, middle + 4, said, 11, color=FAINT))
    drawing.width = x + text_width(said, 11)
    return drawing


def scale_legend(
    language: str, *, low: float = 0, high: float = 1, says: str = "weight"
) -> Drawing:
    """A bar of all colors with its ends; from `low` below 0, the two-sided scale."""
    wide, drawing = 180, Drawing(0, 30, "")
    line = np.linspace(low, high, 256)[None]
    pixels = signed(line, max(-low, high)) if low < 0 else shades(line / max(high, 1e-12))
    drawing.add(Image(0, 4, wide, 12, pixels))
    drawing.add(Text(0, 28, _number(low), 11, color=FAINT))
    drawing.add(Text(wide, 28, _number(high), 11, "end", color=FAINT))
    name = caption(says, language)
    drawing.add(Text(wide + 12, 14, name, 11, color=FAINT))
    drawing.width = wide + 12 + text_width(name, 11)
    return drawing


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


STYLES = ("circles", "heat")
MANY = 40
"""Beyond so many rows or columns cells are colored pixels without names."""
_FEW = 16
"""Up to so many columns colored cells hold their numbers."""
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
        drawing.add(Text(left, 12, table.answers, 12, color=ROLES["key"], bold=True))
    if table.asks:
        middle = top + cell * len(table.rows) / 2
        ask = Text(14, middle, table.asks, 12, "middle", color=ROLES["query"], bold=True)
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
            digits = Text(x + cell / 2, y + cell / 2 + 4, f"{value:.2f}", 11, "middle", color=dark)
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
    drawing.add(Text(left, 12, table.answers, 12, color=ROLES["key"], bold=True))
    asks = Text(14, top + high / 2, table.asks, 12, "middle", True, ROLES["query"], 90)
    drawing.add(asks)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        row, column = round(share * (n_rows - 1)), round(share * (n_columns - 1))
        place = top + (row + 0.5) * scale + 4
        drawing.add(Text(left - 6, place, str(row), 11, "end", color=FAINT))
        across = left + (column + 0.5) * scale
        drawing.add(Text(across, top - 6, str(column), 11, "middle", color=FAINT))
    return drawing
