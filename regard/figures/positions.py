"""Sinusoidal positions as a picture: one row for each position, one column for each number."""

from regard.figures.captions import caption
from regard.figures.colour import signed
from regard.figures.drawing import FAINT, HAIRLINE, Box, Drawing, Image, Text
from regard.figures.legend import add_below, framed, scale_legend
from regard.layers.position import sinusoid

_WIDE, _HIGH = 640, 400


def draw_positions(*, length: int = 64, d_model: int = 128, language: str = "en") -> Drawing:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same."""
    table = sinusoid(length, d_model).numpy()
    left, top = 56, 26
    drawing = Drawing(left + _WIDE + 10, top + _HIGH + 10, "")
    drawing.add(Image(left, top, _WIDE, _HIGH, signed(table, 1.0)))
    drawing.add(Box(left, top, _WIDE, _HIGH, stroke=HAIRLINE))
    for share in (0, 0.25, 0.5, 0.75, 1):
        row, column = round(share * (length - 1)), round(share * (d_model - 1))
        y = top + (row + 0.5) * _HIGH / length + 4
        x = left + (column + 0.5) * _WIDE / d_model
        drawing.add(Text(left - 6, y, str(row), 11, "end", colour=FAINT))
        drawing.add(Text(x, top - 6, str(column), 11, "middle", colour=FAINT))
    middle = top + _HIGH / 2
    drawing.add(Text(16, middle, caption("position", language), 12, "middle", True, turned=90))
    add_below(drawing, scale_legend(language, low=-1, high=1, says="numbers"), left=left)
    formula = f"PE(pos, 2i) = sin(pos / 10000^(2i / {d_model})),  PE(pos, 2i+1) = cos(…)"
    return framed(drawing, caption("positions", language), [formula], language)
