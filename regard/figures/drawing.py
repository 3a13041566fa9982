"""Shapes, text metrics and colors: a figure before it is written in any file format."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

INK, FAINT, HAIRLINE = "#222222", "#666666", "#DDDDDD"
"""Colors of text, of secondary text, and of guide lines."""
ROLES = {
    "query": "#0072B2",
    "key": "#E69F00",
    "value": "#009E73",
    "weight": "#5B4B8A",
    "positive": "#0072B2",
    "negative": "#D55E00",
    "masked": "#999999",
}
SERIES = ("#0072B2", "#D55E00", "#009E73", "#5B4B8A", "#E69F00", "#56B4E9", "#CC79A7", "#222222")
"""Colors of the series of a chart, distinguishable with color blindness (Okabe and Ito)."""


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
    """Pixels of shape (height, width, 3), uint8, scaled to a rectangle without smoothing."""

    x: float
    y: float
    width: float
    height: float
    pixels: np.ndarray


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
        self.shapes.extend(_shift(shape, x, y) for shape in other.shapes)

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


def text_width(text: str, size: float = 13) -> float:
    """Estimate the width of a text, for most fonts slightly too large."""
    return size * sum(_advance(c) for c in text)


def truncate(
    text: str, limit: float, size: float = 13, *, measure: Callable[[str], float] | None = None
) -> str:
    """Shorten a text to a width with an ellipsis, if it is wider.

    Args:
        measure: function from text to width; `text_width` at `size` by default.
    """
    measured = measure or (lambda t: text_width(t, size))
    if measured(text) <= limit:
        return text
    while text and measured(text + "…") > limit:
        text = text[:-1]
    return text + "…"


def show_spaces(token: str) -> str:
    """Replace whitespace in a token by a visible sign."""
    return "".join("␣" if c.isspace() else c for c in token)


def shade(value: float, role: str = "weight") -> str:
    """Return the color of a value from 0 (white) to 1 (the role's darkest tone), as #RRGGBB."""
    return _to_hex(color_ramp(role)[round(255 * min(1.0, max(0.0, value)))])


def shade_array(values: np.ndarray, role: str = "weight") -> np.ndarray:
    """Return the colors of an array of values from 0 to 1, with a last axis of 3 bytes."""
    return color_ramp(role)[np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(int)]


def shade_signed(values: np.ndarray, largest: float) -> np.ndarray:
    """Return the colors of values from -largest (negative) over 0 (white) to largest (positive)."""
    shares = np.abs(values) / max(largest, 1e-12)
    below = (values < 0)[..., None]
    return np.where(below, shade_array(shares, "negative"), shade_array(shares, "positive"))


def darken(color: str) -> str:
    """Return a darker tone of a color, with enough contrast for text on white."""
    return _to_hex(_from_oklab(_to_oklab(color) * (0.8, 1, 1)))


_DARKEST = {"weight": "#2A1E52", "positive": "#00395A", "negative": "#6B2F00"}
_MIDDLE = 0.6
"""The value at which a ramp reaches its role's own color."""
_RGB_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LMS_TO_OKLAB = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


@lru_cache
def color_ramp(role: str) -> np.ndarray:
    """Return 256 perceptually even colors (OKLab) from white to the role's darkest tone."""
    white, middle, dark = (_to_oklab(code) for code in ("#FFFFFF", ROLES[role], _DARKEST[role]))
    share = np.linspace(0, 1, 256)[:, None]
    light_half = white + (middle - white) * share / _MIDDLE
    dark_half = middle + (dark - middle) * (share - _MIDDLE) / (1 - _MIDDLE)
    return _from_oklab(np.where(share < _MIDDLE, light_half, dark_half))


def _to_oklab(code: str) -> np.ndarray:
    x = np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return _LMS_TO_OKLAB @ np.cbrt(_RGB_TO_LMS @ linear)


def _from_oklab(lab: np.ndarray) -> np.ndarray:
    lms = (lab @ np.linalg.inv(_LMS_TO_OKLAB).T) ** 3
    linear = np.clip(lms @ np.linalg.inv(_RGB_TO_LMS).T, 0, 1)
    x = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * x).astype(np.uint8)


def _to_hex(rgb: np.ndarray) -> str:
    return "#{:02X}{:02X}{:02X}".format(*rgb.tolist())


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "ilj.,:;'|!":
        return 0.32
    return 0.68 if character.isupper() or character in "mw" else 0.57


def _shift(shape: Any, x: float, y: float) -> Shape:
    if isinstance(shape, Line):
        return replace(shape, points=tuple((a + x, b + y) for a, b in shape.points))
    return replace(shape, x=shape.x + x, y=shape.y + y)
