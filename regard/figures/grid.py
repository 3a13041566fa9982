"""Grids: a matrix of numbers from 0 to 1 as circles, colored cells or pixels, with legends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import InputError
from regard.figures.captions import caption, show_spaces, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, shade, shade_array, shade_signed
from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Text

STYLES = ("circles", "heat")
MAX_LABELED = 40  # with more rows or columns, cells become pixels without labels
_MAX_DIGITS = 16  # with more columns, colored cells do not hold their numbers
_MAX_LABEL, _GAP, _FONT = 130, 8, 12
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class GridData:
    """A matrix with labels for its rows (queries) and columns (keys) and titles for both."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str = ""
    column_title: str = ""


def draw_grid(data: GridData, *, style: str | None = None) -> Drawing:
    """Draw a grid of circles whose area is the value, or of colored cells for style "heat"."""
    if style is not None and style not in STYLES:
        raise InputError(f"style is {style!r}; it can be {' or '.join(STYLES)}.")
    n_rows, n_columns = data.values.shape
    if max(n_rows, n_columns) > MAX_LABELED:
        scale = 640 / max(n_rows, n_columns)
        drawing = draw_pixels(shade_array(data.values), n_columns * scale, n_rows * scale)
        _add_titles(drawing, data, left=PIXELS_LEFT, middle=PIXELS_TOP + n_rows * scale / 2)
        return drawing
    cell, above = cell_size(data.values), _widest(data.columns)
    slanted = above > cell - 4
    left = max(_widest(data.rows) + _GAP, 20) + (20 if data.row_title else 0) + 12
    top = (22 if data.column_title else 0) + (above * 0.72 + 18 if slanted else 24)
    lean = _widest(data.columns[-1:]) * 0.72 if slanted else 0
    drawing = Drawing(left + cell * n_columns + max(12, lean), top + cell * n_rows + 12)
    (_add_cells if style == "heat" else _add_circles)(drawing, data, cell, left, top)
    rows, columns = (
        [truncate(show_spaces(name), _MAX_LABEL, _FONT) for name in names]
        for names in (data.rows, data.columns)
    )
    for i, label in enumerate(rows):
        drawing.add(Text(left - _GAP, top + cell * (i + 0.5) + 4, label, _FONT, "end"))
    anchor, rotation = ("start", 45) if slanted else ("middle", 0)
    for j, label in enumerate(columns):
        x = left + cell * (j + 0.5)
        drawing.add(Text(x, top - _GAP, label, _FONT, anchor, rotation=rotation))
    _add_titles(drawing, data, left=left, middle=top + cell * n_rows / 2)
    return drawing


def cell_size(values: np.ndarray) -> float:
    """Return the side of a cell, larger for smaller matrices."""
    return max(20.0, min(46.0, 640 / max(values.shape)))


def circle_radius(value: float, cell: float) -> float:
    """Return the radius of a circle whose area is the value; that of 1 nearly fills its cell."""
    return max(value, 0.0) ** 0.5 * cell * 0.46


def _widest(names: Sequence[str]) -> float:
    widths = (text_width(show_spaces(name), _FONT) for name in names)
    return min(max(widths, default=0), _MAX_LABEL)


def _add_titles(drawing: Drawing, data: GridData, *, left: float, middle: float) -> None:
    if data.column_title:
        drawing.add(Text(left, 12, data.column_title, 12, bold=True, color=ROLES["key"]))
    if data.row_title:
        drawing.add(Text(14, middle, data.row_title, 12, "middle", True, ROLES["query"], 90))


def _add_circles(drawing: Drawing, data: GridData, cell: float, left: float, top: float) -> None:
    n_rows, n_columns = data.values.shape
    right, bottom = left + cell * n_columns, top + cell * n_rows
    for i in range(n_rows + 1):
        drawing.add(Line(((left, top + cell * i), (right, top + cell * i)), HAIRLINE, 0.5))
    for j in range(n_columns + 1):
        drawing.add(Line(((left + cell * j, top), (left + cell * j, bottom)), HAIRLINE, 0.5))
    for (i, j), value in np.ndenumerate(data.values):
        x, y, radius = left + cell * (j + 0.5), top + cell * (i + 0.5), circle_radius(value, cell)
        if radius > 0:
            drawing.add(Circle(x, y, radius, ROLES["weight"], _tooltip(data, i, j)))


def _add_cells(drawing: Drawing, data: GridData, cell: float, left: float, top: float) -> None:
    for (i, j), value in np.ndenumerate(data.values):
        x, y = left + cell * j, top + cell * i
        tooltip = _tooltip(data, i, j)
        drawing.add(Box(x, y, cell, cell, shade(float(value)), HAIRLINE, tooltip=tooltip))
        if data.values.shape[1] <= _MAX_DIGITS:
            color = "#FFFFFF" if value > 0.45 else INK
            x, y = x + cell / 2, y + cell / 2 + 4
            drawing.add(Text(x, y, f"{value:.2f}", 11, "middle", color=color))


def _tooltip(data: GridData, i: int, j: int) -> str:
    return f"{data.rows[i]} → {data.columns[j]}: {data.values[i, j]:.4f}"


PIXELS_LEFT, PIXELS_TOP = 54, 44


def draw_pixels(pixels: np.ndarray, width: float, height: float) -> Drawing:
    """Draw an image of a matrix with the numbers of some rows and columns along its sides."""
    left, top = PIXELS_LEFT, PIXELS_TOP
    n_rows, n_columns = pixels.shape[:2]
    drawing = Drawing(left + width + 20, top + height + 20)
    drawing.add(Image(left, top, width, height, pixels))
    drawing.add(Box(left, top, width, height, stroke=HAIRLINE))
    for row in {round(share * (n_rows - 1)) for share in _TICKS}:
        y = top + (row + 0.5) * height / n_rows + 4
        drawing.add(Text(left - 6, y, str(row), 11, "end", color=FAINT))
    for column in {round(share * (n_columns - 1)) for share in _TICKS}:
        x = left + (column + 0.5) * width / n_columns
        drawing.add(Text(x, top - 6, str(column), 11, "middle", color=FAINT))
    return drawing


def draw_circle_legend(cell: float, language: str) -> Drawing:
    """Draw circles of known weights."""
    drawing, x = Drawing(0, max(cell, 24)), 0.0
    middle = drawing.height / 2
    for value in (0.1, 0.25, 0.5, 1.0):
        radius = circle_radius(value, cell)
        drawing.add(Circle(x + radius, middle, radius, ROLES["weight"]))
        drawing.add(Text(x + 2 * radius + 5, middle + 4, f"{value:g}", 11, color=FAINT))
        x += 2 * radius + 42
    label = caption("area is weight", language)
    drawing.add(Text(x, middle + 4, label, 11, color=FAINT))
    drawing.width = x + text_width(label, 11)
    return drawing


def draw_color_legend(
    language: str, *, low: float = 0, high: float = 1, label: str = "weight"
) -> Drawing:
    """Draw a color scale with its ends; with a negative `low`, the two-sided scale."""
    width, drawing = 180, Drawing(0, 30)
    values = np.linspace(low, high, 256)[None]
    pixels = shade_signed(values, max(-low, high)) if low < 0 else shade_array(values / high)
    drawing.add(Image(0, 4, width, 12, pixels))
    for x, value, anchor in ((0, low, "start"), (width, high, "end")):
        drawing.add(Text(x, 28, f"{value:.3g}".replace("-", "−"), 11, anchor, color=FAINT))
    name = caption(label, language)
    drawing.add(Text(width + 12, 14, name, 11, color=FAINT))
    drawing.width = width + 12 + text_width(name, 11)
    return drawing
