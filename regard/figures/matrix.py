"""Matrices as boxes of numbers: colored cells that can be read back, or pixels if many."""

from dataclasses import dataclass

import numpy as np

from regard.figures.captions import text_width
from regard.figures.colors import FAINT, HAIRLINE, INK, shade, shade_array, shade_signed
from regard.figures.drawing import Box, Drawing, Image, Line, Text
from regard.figures.grid import add_signed_cell, largest_finite

MAX_CELLS = 1200  # larger matrices are pixels without a tooltip for each number
_CELL, _MIN_CELL = 36, 3  # sides of cells with numbers, and of the smallest cells


@dataclass(frozen=True, eq=False)
class MatrixBox:
    """A matrix with its name and formula; `largest` is the value of the darkest color.

    Weights have the color of weights, all others those of both signs.
    """

    name: str
    values: np.ndarray
    formula: str = ""
    is_weights: bool = False
    largest: float | None = None

    @property
    def heading(self) -> str:
        """Name and formula."""
        return f"{self.name} = {self.formula}" if self.formula else self.name

    @property
    def shape(self) -> str:
        """Rows × columns."""
        return " × ".join(map(str, self.values.shape))

    def tooltip(self, i: int, j: int) -> str:
        """Return name, indices and number of a cell."""
        return f"{self.name}[{i}, {j}]: {self.values[i, j]:.4f}"


def cell_sides(
    shape: tuple[int, ...], most: tuple[float, float], *, digits: bool = True
) -> tuple[float, float, bool]:
    """Return width and height of the cells of a matrix, and True if they hold numbers."""
    n_rows, n_columns = shape
    if digits and n_columns * _CELL <= most[0] and n_rows * 22 <= most[1]:
        return _CELL, 22, True
    width = max(min(most[0] / n_columns, 14), min(_MIN_CELL, most[0] / n_columns))
    return width, min(most[1] / n_rows, 14), False


def draw_matrix(
    matrix: MatrixBox,
    *,
    most: tuple[float, float] = (180, 160),
    color: str = INK,
    digits: bool = True,
) -> Drawing:
    """Draw a heading, the shape, and the numbers in a box of at most this size."""
    width, height, digits = cell_sides(matrix.values.shape, most, digits=digits)
    n_rows, n_columns = matrix.values.shape
    drawing = Drawing(width * n_columns, 34 + height * n_rows)
    drawing.add(Text(0, 12, matrix.heading, 13, bold=True, color=color))
    drawing.add(Text(0, 27, matrix.shape, 11, color=FAINT))
    add_cells(drawing, matrix, (0, 34, width, height), digits=digits)
    drawing.add(Box(0, 34, drawing.width, height * n_rows, stroke=color))
    drawing.width = max(drawing.width, text_width(matrix.heading, 13) * 1.05)
    return drawing


def add_cells(
    drawing: Drawing,
    matrix: MatrixBox,
    place: tuple[float, float, float, float],
    *,
    digits: bool = False,
    as_pixels: bool | None = None,
) -> None:
    """Draw the numbers of a matrix as cells of a width and height from a corner.

    Pixels without a tooltip for each number are the default of large matrices.
    """
    x, y, width, height = place
    values = matrix.values
    largest = largest_finite(values) if matrix.largest is None else matrix.largest
    n_rows, n_columns = values.shape
    if values.size > MAX_CELLS if as_pixels is None else as_pixels:
        finite = np.where(np.isfinite(values), values, 0)
        pixels = shade_array(values) if matrix.is_weights else shade_signed(finite, largest)
        drawing.add(Image(x, y, width * n_columns, height * n_rows, pixels))
        return
    for (i, j), value in np.ndenumerate(values):
        cell = x + width * j, y + height * i, width, height
        if matrix.is_weights:
            stroke = HAIRLINE if width > 8 else None
            drawing.add(Box(*cell, shade(float(value)), stroke, tooltip=matrix.tooltip(i, j)))
            if digits:
                ink = "#FFFFFF" if value > 0.45 else INK
                middle, base = cell[0] + width / 2, cell[1] + height / 2 + 4
                drawing.add(Text(middle, base, f"{value:.2f}", 11, "middle", color=ink))
        else:
            tooltip = matrix.tooltip(i, j)
            add_signed_cell(drawing, cell, float(value), largest, tooltip, digits=digits)


def add_arrow(
    drawing: Drawing, *points: tuple[float, float], label: str = "", color: str = FAINT
) -> None:
    """Draw an arrow through points, with a label above its middle."""
    drawing.add(Line(points, color, 1.2, arrow=True))
    if label:
        (x0, y0), (x1, y1) = points[0], points[-1]
        drawing.add(Text((x0 + x1) / 2, min(y0, y1) - 6, label, 11, "middle", color=FAINT))


def add_vector(
    drawing: Drawing,
    largest: float,
    vector: np.ndarray,
    x: float,
    y: float,
    width: float = 150,
    height: float = 18,
) -> None:
    """Draw the entries of a vector as a strip of pixels, framed."""
    drawing.add(Image(x, y, width, height, shade_signed(vector[None], largest)))
    drawing.add(Box(x, y, width, height, stroke=HAIRLINE))
