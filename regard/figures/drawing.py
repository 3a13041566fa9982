"""A picture as a list of shapes, before anybody knows which kind of file it becomes."""

import unicodedata
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

INK, FAINT, HAIRLINE = "#222222", "#666666", "#DDDDDD"
"""Text, what is said beside it, and lines that only guide the eye."""


@dataclass(frozen=True)
class Text:
    """A line of text; y is its baseline. `turned` counts degrees, upwards."""

    x: float
    y: float
    text: str
    size: float = 13
    anchor: str = "start"
    bold: bool = False
    color: str = INK
    turned: float = 0


@dataclass(frozen=True)
class Box:
    """A rectangle. `note` is shown by viewers that can point at things."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    radius: float = 0
    note: str = ""


@dataclass(frozen=True)
class Circle:
    """A disc."""

    x: float
    y: float
    radius: float
    fill: str
    note: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points; `arrow` puts a head at its end."""

    points: tuple[tuple[float, float], ...]
    stroke: str = FAINT
    width: float = 1
    opacity: float = 1
    dashed: bool = False
    arrow: bool = False
    note: str = ""


@dataclass(frozen=True, eq=False)
class Image:
    """Colored cells, one pixel each: height × width × 3 bytes."""

    x: float
    y: float
    width: float
    height: float
    pixels: np.ndarray


Shape = Text | Box | Circle | Line | Image


@dataclass
class Drawing:
    """Shapes on white ground, in the order in which they are drawn."""

    width: float
    height: float
    title: str
    language: str = "en"
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw these on top of what is there."""
        self.shapes.extend(shapes)

    def place(self, other: "Drawing", x: float, y: float) -> None:
        """Draw another picture with its corner at (x, y)."""
        self.shapes.extend(_moved(shape, x, y) for shape in other.shapes)


def text_width(text: str, size: float = 13) -> float:
    """About how wide a text is, in most fonts and never much less."""
    return size * sum(_advance(c) for c in text)


def fitted(text: str, width: float, size: float = 13) -> str:
    """The text, with an ellipsis in place of what does not fit."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"


def visible(token: str) -> str:
    """A token with its spaces as signs, so that one can see them."""
    return "".join("␣" if c.isspace() else c for c in token)


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "ilj.,:;'|!":
        return 0.32
    return 0.68 if character.isupper() or character in "mw" else 0.57


def _moved(shape: Any, x: float, y: float) -> Shape:
    if isinstance(shape, Line):
        return replace(shape, points=tuple((a + x, b + y) for a, b in shape.points))
    return replace(shape, x=shape.x + x, y=shape.y + y)
