"""Shapes and the look of figures (size, fonts, colors), before they are written in any format."""

from dataclasses import dataclass, field, replace

import numpy as np

from regard.errors import InputError, check_choice
from regard.figures.captions import text_width
from regard.figures.colors import FAINT, INK, from_oklab, to_hex, to_oklab


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
    """A rectangle; with `photo` its colors are the same in every theme."""

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
    photo: bool = False


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


SIZES = {"column": (84.0, None), "page": (178.0, None), "slide": (320.0, 180.0)}
"""Width and largest height in millimeters: one or two columns of a paper, a 16:9 slide."""
THEMES = ("light", "dark", "print")
_SMALLEST = 5.0  # points of the smallest text that can be read in print


@dataclass(frozen=True)
class Look:
    """Options for writing a figure to a file.

    Args:
        size: "column", "page" or "slide"; as large as drawn by default.
        width: width in millimeters, instead of `size`.
        dpi: pixels per inch of .png, .gif, .webp and .mp4; 144, or 300 if a size is given.
        title: replaces the title; "" removes it.
        font: name of the font; it must be installed for .png and .pdf.
        theme: "light", "dark", or "print", which has black text and lines.
    """

    size: str | None = None
    width: float | None = None
    dpi: int | None = None
    title: str | None = None
    font: str | None = None
    theme: str = "light"

    def __post_init__(self) -> None:
        check_choice("theme", self.theme, THEMES)
        if self.size is not None:
            check_choice("size", self.size, SIZES)
            if self.width is not None:
                raise InputError("size and width are both given: leave one of them out.")
        if self.width is not None and not 10 <= self.width <= 2000:
            raise InputError(f"width is {self.width:g} mm; it can be 10 to 2000.")
        if self.dpi is not None and not 36 <= self.dpi <= 1200:
            raise InputError(f"dpi is {self.dpi}; it can be 36 to 1200.")

    def millimeters(self, drawing: Drawing) -> float | None:
        """Return the width on paper; None if the drawing keeps its own."""
        if self.size is None:
            return self.width
        width, height = SIZES[self.size]
        if height is None:
            return width
        return min(width, height * drawing.width / drawing.height)

    def scale(self, drawing: Drawing) -> float:
        """Return points on paper for each unit of the drawing."""
        width = self.millimeters(drawing)
        return 1.0 if width is None else width * 72 / 25.4 / drawing.width

    def resolution(self) -> int:
        """Return the pixels per inch."""
        natural = self.size is None and self.width is None
        return self.dpi or (144 if natural else 300)

    def small_text(self, drawing: Drawing) -> float | None:
        """Return the size in points of the smallest text, if it is too small to be read."""
        sizes = [shape.size for shape in drawing.shapes if isinstance(shape, Text)]
        smallest = min(sizes, default=_SMALLEST) * self.scale(drawing)
        return smallest if self.millimeters(drawing) and smallest < _SMALLEST - 0.05 else None

    def apply(self, drawing: Drawing) -> Drawing:
        """Return the drawing with the title and the colors of this look."""
        shapes = drawing.shapes
        title = drawing.title if self.title is None else self.title
        if self.title is not None:
            shapes = [_retitle(shape, drawing.title, self.title) for shape in shapes]
        if self.theme != "light":
            shapes = [_recolor(shape, self.theme) for shape in shapes]
        return replace(drawing, title=title, shapes=shapes)

    @property
    def background(self) -> str:
        """The color behind the figure."""
        return recolor("#FFFFFF", self.theme)


def _retitle(shape: Shape, old: str, new: str) -> Shape:
    is_title = isinstance(shape, Text) and shape.text == old and shape.bold and shape.size == 15
    return replace(shape, text=new) if is_title else shape


def _recolor(shape: Shape, theme: str) -> Shape:
    if getattr(shape, "photo", False):
        return shape
    if isinstance(shape, Image):
        return replace(shape, pixels=_recolored(shape.pixels / 255, theme))
    names = ("stroke",) if isinstance(shape, Line) else ("fill", "stroke", "color")
    given = {name: getattr(shape, name, None) for name in names}
    return replace(shape, **{name: recolor(color, theme) for name, color in given.items() if color})


def recolor(color: str, theme: str) -> str:
    """Return a color of the light theme as another theme has it."""
    if theme == "light":
        return color
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return to_hex(_recolored(rgb, theme))


def _recolored(rgb: np.ndarray, theme: str) -> np.ndarray:
    """Turn lightness around for a dark background, or darken grays for print."""
    lab = to_oklab(rgb)
    lightness, chroma = lab[..., 0], np.hypot(lab[..., 1], lab[..., 2])
    if theme == "dark":  # strong colors stay light enough to be seen
        changed = np.clip(1.02 - 0.82 * lightness + 1.4 * chroma * lightness, 0, 0.97)
    else:
        gray = (chroma < 0.02) & (lightness < 0.94)
        changed = np.where(gray, lightness * np.clip(lightness, 0, 0.85), lightness)
    return from_oklab(np.concatenate([changed[..., None], lab[..., 1:]], axis=-1))
