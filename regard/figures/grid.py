"""Grids: a matrix of numbers as circles, colored cells or pixels, with labels and legends."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

import numpy as np

from regard.errors import InputError
from regard.figures.captions import caption, show_spaces, signed, text_width, truncate
from regard.figures.colors import (
    FAINT,
    HAIRLINE,
    INK,
    MASKED,
    ROLES,
    shade,
    shade_array,
    shade_signed,
)
from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Text

STYLES = ("circles", "heat")
MAX_LABELED = 64  # with more rows or columns, cells become pixels without labels
_MAX_DIGITS = 16  # with more columns, colored cells do not hold their numbers
_MAX_LABEL, _GAP = 130, 8
_UPRIGHT = 18  # narrower columns have labels at a right angle
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class GridData:
    """A matrix with labels for its rows (queries) and columns (keys) and titles for both."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str = ""
    column_title: str = ""
    is_turned: bool = False  # True if queries are columns

    def turned(self) -> "GridData":
        """Return the same numbers with rows and columns exchanged."""
        titles = self.column_title, self.row_title
        return GridData(self.values.T, self.columns, self.rows, *titles, not self.is_turned)

    def tooltip(self, i: int, j: int) -> str:
        """Return query, key and number of a cell."""
        row, column = self.rows[i], self.columns[j]
        pair = f"{column} → {row}" if self.is_turned else f"{row} → {column}"
        return f"{pair}: {self.values[i, j]:.4f}"


def draw_grid(
    data: GridData,
    *,
    style: str | None = None,
    cell: float | None = None,
    row_labels: bool = True,
) -> Drawing:
    """Draw a grid of circles whose area is the value, or of colored cells for style "heat".

    The style "signed" is for scores: both signs have a color, and −∞ is crossed out.
    """
    if style not in (None, *STYLES, "signed"):
        raise InputError(f"style is {style!r}; it can be {' or '.join(STYLES)}.")
    n_rows, n_columns = data.values.shape
    if max(n_rows, n_columns) > MAX_LABELED:
        scale = 640 / max(n_rows, n_columns)
        pixels = _signed_pixels(data.values) if style == "signed" else shade_array(data.values)
        drawing = draw_pixels(pixels, n_columns * scale, n_rows * scale)
        _add_titles(drawing, data, left=PIXELS_LEFT, middle=PIXELS_TOP + n_rows * scale / 2)
        return drawing
    cell = cell or cell_size(data.values)
    font = label_size(cell)
    left = (20 if data.row_title else 0) + 12
    left += max(widest_label(data.rows, font) + _GAP, 20) if row_labels else 0
    above, lean = label_space(data.columns, cell)
    top = (22 if data.column_title else 0) + above
    drawing = Drawing(left + cell * n_columns + max(12, lean), top + cell * n_rows + 12)
    draw = {"heat": _add_cells, "signed": _add_signed}.get(style or "", _add_circles)
    draw(drawing, data, cell, left, top)
    if row_labels:
        add_row_labels(drawing, data.rows, left, top, cell)
    add_column_labels(drawing, data.columns, left, top, cell)
    _add_titles(drawing, data, left=left, middle=top + cell * n_rows / 2)
    return drawing


def cell_size(values: np.ndarray) -> float:
    """Return the side of a cell, larger for smaller matrices."""
    return max(14.0, min(46.0, 640 / max(values.shape)))


def circle_radius(value: float, cell: float) -> float:
    """Return the radius of a circle whose area is the value; that of 1 nearly fills its cell."""
    return max(value, 0.0) ** 0.5 * cell * 0.46


def label_size(cell: float) -> float:
    """Return the font size of labels next to cells of this side, which never touch."""
    return max(6.0, min(12.0, cell * 0.8))


def widest_label(names: Sequence[str], size: float) -> float:
    """Return the width of the longest label, as it is drawn."""
    widths = (text_width(show_spaces(name), size) for name in names)
    return min(max(widths, default=0), _MAX_LABEL)


def _angle(names: Sequence[str], cell: float) -> int:
    if widest_label(names, label_size(cell)) <= cell - 4:
        return 0
    return 45 if cell >= _UPRIGHT else 90


def label_space(names: Sequence[str], cell: float) -> tuple[float, float]:
    """Return the height that column labels need, and how far the last one leans to the right."""
    size, angle = label_size(cell), _angle(names, cell)
    if not angle:
        return size + _GAP + 4, 0
    longest, last = widest_label(names, size), widest_label(names[-1:], size)
    return (longest * 0.72 + 18, last * 0.72) if angle == 45 else (longest + _GAP + 4, 0)


def add_column_labels(
    drawing: Drawing, names: Sequence[str], left: float, top: float, cell: float
) -> None:
    """Write labels above columns of a width, straight, slanted or upright as they fit."""
    size, angle = label_size(cell), _angle(names, cell)
    for j, name in enumerate(names):
        label = truncate(show_spaces(name), _MAX_LABEL, size)
        x = left + cell * (j + 0.5) + (size * 0.35 if angle == 90 else 0)
        anchor = "start" if angle else "middle"
        drawing.add(Text(x, top - _GAP, label, size, anchor, rotation=angle))


def add_row_labels(
    drawing: Drawing, names: Sequence[str], left: float, top: float, cell: float
) -> None:
    """Write labels to the left of rows of a height."""
    size = label_size(cell)
    for i, name in enumerate(names):
        label = truncate(show_spaces(name), _MAX_LABEL, size)
        y = top + cell * (i + 0.5) + size * 0.35
        drawing.add(Text(left - _GAP, y, label, size, "end"))


def _add_titles(drawing: Drawing, data: GridData, *, left: float, middle: float) -> None:
    across, down = ("query", "key") if data.is_turned else ("key", "query")
    if data.column_title:
        drawing.add(Text(left, 12, data.column_title, 12, bold=True, color=ROLES[across]))
        drawing.width = max(drawing.width, left + text_width(data.column_title, 12) * 1.05)
    if data.row_title:
        drawing.add(Text(14, middle, data.row_title, 12, "middle", True, ROLES[down], 90))
        missing = text_width(data.row_title, 12) / 2 + 4 - min(middle, drawing.height - middle)
        if missing > 0:  # a long title next to few rows
            inner = drawing.shapes[:]
            drawing.shapes.clear()
            drawing.place(Drawing(0, 0, shapes=inner), 0, missing)
            drawing.height += 2 * missing


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
            drawing.add(Circle(x, y, radius, ROLES["weight"], data.tooltip(i, j)))


def _add_cells(drawing: Drawing, data: GridData, cell: float, left: float, top: float) -> None:
    for (i, j), value in np.ndenumerate(data.values):
        x, y = left + cell * j, top + cell * i
        drawing.add(
            Box(x, y, cell, cell, shade(float(value)), HAIRLINE, tooltip=data.tooltip(i, j))
        )
        if data.values.shape[1] <= _MAX_DIGITS and cell >= 26:
            color = "#FFFFFF" if value > 0.45 else INK
            _add_number(drawing, f"{value:.2f}", x, y, cell, color)


def _add_signed(drawing: Drawing, data: GridData, cell: float, left: float, top: float) -> None:
    largest = largest_finite(data.values)
    for (i, j), value in np.ndenumerate(data.values):
        x, y, tooltip = left + cell * j, top + cell * i, data.tooltip(i, j)
        digits = data.values.shape[1] <= _MAX_DIGITS and cell >= 26
        add_signed_cell(drawing, (x, y, cell, cell), float(value), largest, tooltip, digits=digits)


def add_signed_cell(
    drawing: Drawing,
    place: tuple[float, float, float, float],
    value: float,
    largest: float,
    tooltip: str,
    *,
    digits: bool,
) -> None:
    """Draw a cell in the color of a positive or negative number, or crossed out for −∞."""
    x, y, width, height = place
    stroke = HAIRLINE if min(width, height) > 8 else None
    if isinf(value):
        drawing.add(Box(x, y, width, height, MASKED, stroke, tooltip=tooltip))
        if not digits:
            ends = (x + 0.15 * width, y + 0.85 * height), (x + 0.85 * width, y + 0.15 * height)
            drawing.add(Line(ends, ROLES["masked"], 0.7))
        else:
            _add_number(drawing, "−∞", x, y, min(width, height), FAINT, width, height)
        return
    share = abs(value) / max(largest, 1e-12)
    fill = shade(share, "negative" if value < 0 else "positive")
    drawing.add(Box(x, y, width, height, fill, stroke, tooltip=tooltip))
    if digits:
        color = "#FFFFFF" if share > 0.45 else INK
        side = min(width, height)
        _add_number(drawing, number_in_cell(value, width), x, y, side, color, width, height)


def number_in_cell(value: float, width: float) -> str:
    """Return a number with as many decimals, up to two, as a cell can hold."""
    if value == round(value) and abs(value) < 1e4:
        return signed(value, 0)
    texts = [signed(value, digits) for digits in (2, 1, 0)]
    return next((text for text in texts if text_width(text, 11) <= width - 4), texts[-1])


def _add_number(
    drawing: Drawing,
    text: str,
    x: float,
    y: float,
    cell: float,
    color: str,
    width: float | None = None,
    height: float | None = None,
) -> None:
    size = min(11.0, (width or cell) * 0.34)
    middle, base = x + (width or cell) / 2, y + (height or cell) / 2 + size * 0.36
    drawing.add(Text(middle, base, text, size, "middle", color=color))


def largest_finite(values: np.ndarray) -> float:
    """Return the largest absolute value, without infinities."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _signed_pixels(values: np.ndarray) -> np.ndarray:
    pixels = shade_signed(np.where(np.isfinite(values), values, 0), largest_finite(values))
    return np.where(np.isfinite(values)[..., None], pixels, np.uint8(221))


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
