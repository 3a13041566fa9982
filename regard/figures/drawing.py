"""Shapes of figures, before they are written in any file format."""

from dataclasses import dataclass, field, replace

import numpy as np

from regard.figures.captions import text_width
from regard.figures.colors import FAINT, INK


@dataclass(frozen=True)
class Text:
    """A line of text with its baseline at y; `rotation` is in degrees, counterclockwise."""

    x: float
    y: float
    text: str
    size: float = 13
    anchor: str = "start"
    bold: bool = False
    color: str = INK
    rotation: float = 0


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    radius: float = 0
    tooltip: str = ""
    stroke_width: float = 1
    opacity: float = 1  # of the fill


@dataclass(frozen=True)
class Circle:
    """A filled circle."""

    x: float
    y: float
    radius: float
    fill: str
    tooltip: str = ""


@dataclass(frozen=True)
class Line:
    """A polyline; `dash` alternates the lengths of dashes and gaps."""

    points: tuple[tuple[float, float], ...]
    stroke: str = FAINT
    width: float = 1
    opacity: float = 1
    dash: tuple[float, ...] = ()
    arrow: bool = False
    tooltip: str = ""


@dataclass(frozen=True, eq=False)
class Image:
    """Pixels of shape (height, width, 3), uint8, scaled to a rectangle without smoothing.

    The colors of a `photo` are the same in every theme.
    """

    x: float
    y: float
    width: float
    height: float
    pixels: np.ndarray
    photo: bool = False


Shape = Text | Box | Circle | Line | Image


@dataclass
class Drawing:
    """Shapes on a white background, in drawing order."""

    width: float
    height: float
    title: str = ""
    language: str = "en"
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw shapes on top of the existing ones."""
        self.shapes.extend(shapes)

    def place(self, other: "Drawing", x: float, y: float) -> None:
        """Draw another drawing with its top left corner at (x, y)."""
        for shape in other.shapes:
            if isinstance(shape, Line):
                shape = replace(shape, points=tuple((a + x, b + y) for a, b in shape.points))
            else:
                shape = replace(shape, x=shape.x + x, y=shape.y + y)
            self.shapes.append(shape)

    def place_below(self, other: "Drawing", *, left: float = 0, gap: float = 6) -> None:
        """Draw another drawing below this one, which grows to hold it."""
        self.place(other, left, self.height + gap)
        self.height += other.height + gap
        self.width = max(self.width, left + other.width)


def add_frame(inner: Drawing, title: str, notes: list[str], language: str) -> Drawing:
    """Return a drawing with a title and explanatory lines above, and a margin around."""
    margin = 20
    top = margin + 34 + 18 * len(notes)
    needed = max(text_width(title, 15) * 1.05, *(text_width(note, 12) for note in notes), 0)
    width = max(inner.width, needed) + 2 * margin
    whole = Drawing(width, top + inner.height + margin, title, language)
    whole.add(Text(margin, margin + 12, title, 15, bold=True))
    for i, note in enumerate(notes):
        whole.add(Text(margin, margin + 32 + 18 * i, note, 12, color=FAINT))
    whole.place(inner, margin, top)
    return whole
