"""What circles and colours of a picture mean, and its title."""

import numpy as np

from regard.figures.captions import caption
from regard.figures.colour import ROLES, shades, signed
from regard.figures.drawing import FAINT, Circle, Drawing, Image, Text, text_width
from regard.figures.grid import circle_radius

_MARGIN = 20


def framed(inner: Drawing, title: str, notes: list[str], language: str) -> Drawing:
    """The picture with its title above, lines that explain it, and a margin around."""
    top = _MARGIN + 14 + 18 * len(notes) + 14
    needed = max(text_width(title, 15) * 1.05, *(text_width(note, 12) for note in notes), 0)
    width = max(inner.width, needed) + 2 * _MARGIN
    whole = Drawing(width, top + inner.height + _MARGIN, title, language)
    whole.add(Text(_MARGIN, _MARGIN + 12, title, 15, bold=True))
    for i, note in enumerate(notes):
        whole.add(Text(_MARGIN, _MARGIN + 32 + 18 * i, note, 12, colour=FAINT))
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
        drawing.add(Text(x + 2 * radius + 5, middle + 4, f"{value:g}", 11, colour=FAINT))
        x += 2 * radius + 42
    said = caption("area is weight", language)
    drawing.add(Text(x, middle + 4, said, 11, colour=FAINT))
    drawing.width = x + text_width(said, 11)
    return drawing


def scale_legend(
    language: str, *, low: float = 0, high: float = 1, says: str = "weight"
) -> Drawing:
    """A bar of all colours with its ends; from `low` below 0, the two-sided scale."""
    wide, drawing = 180, Drawing(0, 30, "")
    line = np.linspace(low, high, 256)[None]
    pixels = signed(line, max(-low, high)) if low < 0 else shades(line / max(high, 1e-12))
    drawing.add(Image(0, 4, wide, 12, pixels))
    drawing.add(Text(0, 28, _number(low), 11, colour=FAINT))
    drawing.add(Text(wide, 28, _number(high), 11, "end", colour=FAINT))
    name = caption(says, language)
    drawing.add(Text(wide + 12, 14, name, 11, colour=FAINT))
    drawing.width = wide + 12 + text_width(name, 11)
    return drawing


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
