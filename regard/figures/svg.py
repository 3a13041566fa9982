"""A drawing as SVG: text stays text, numbers can be pointed at, nothing comes from outside."""

import base64
import io
from html import escape

import numpy as np

from regard.figures.drawing import INK, Box, Circle, Drawing, Image, Line, Shape, Text

FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"


def to_svg(drawing: Drawing) -> str:
    """The picture as one SVG file."""
    width, height = _short(drawing.width), _short(drawing.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" lang="{drawing.language}" '
        f'font-family="{FONTS}" font-size="13" fill="{INK}">'
        f"<title>{escape(drawing.title)}</title>"
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>'
        f"{''.join(_element(shape) for shape in drawing.shapes)}</svg>\n"
    )


def _element(shape: Shape) -> str:
    if isinstance(shape, Text):
        return _text(shape)
    if isinstance(shape, Box):
        corner = f' rx="{_short(shape.radius)}"' if shape.radius else ""
        edge = f' stroke="{shape.stroke}"' if shape.stroke else ""
        return _closed(
            f'rect x="{_short(shape.x)}" y="{_short(shape.y)}" width="{_short(shape.width)}" '
            f'height="{_short(shape.height)}"{corner} fill="{shape.fill or "none"}"{edge}',
            shape.note,
        )
    if isinstance(shape, Circle):
        place = f'cx="{_short(shape.x)}" cy="{_short(shape.y)}" r="{_short(shape.radius)}"'
        return _closed(f'circle {place} fill="{shape.fill}"', shape.note)
    if isinstance(shape, Line):
        return _line(shape)
    return _image(shape)


def _text(text: Text) -> str:
    place = f'x="{_short(text.x)}" y="{_short(text.y)}"'
    if text.turned:
        place = (
            f'transform="translate({_short(text.x)} {_short(text.y)}) '
            f'rotate({_short(-text.turned)})"'
        )
    more = "" if text.size == 13 else f' font-size="{_short(text.size)}"'
    more += "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    more += ' font-weight="600"' if text.bold else ""
    more += "" if text.color == INK else f' fill="{text.color}"'
    return f"<text {place}{more}>{escape(text.text, quote=False)}</text>"


def _line(line: Line) -> str:
    points = " ".join(f"{_short(x)},{_short(y)}" for x, y in line.points)
    more = f' stroke-width="{_short(line.width)}"'
    more += "" if line.opacity == 1 else f' stroke-opacity="{line.opacity:.4g}"'
    more += ' stroke-dasharray="4 3"' if line.dashed else ""
    drawn = _closed(
        f'polyline points="{points}" fill="none" stroke="{line.stroke}"{more}', line.note
    )
    if not line.arrow:
        return drawn
    corners = " ".join(f"{_short(x)},{_short(y)}" for x, y in arrow_head(line))
    return drawn + f'<polygon points="{corners}" fill="{line.stroke}"/>'


def arrow_head(line: Line, size: float = 6) -> list[tuple[float, float]]:
    """The three corners of the head at a line's end."""
    start, end = np.array(line.points[-2]), np.array(line.points[-1])
    along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9) * size
    across = np.array([-along[1], along[0]]) * 0.5
    return [tuple(point) for point in (end, end - along + across, end - along - across)]


def _image(image: Image) -> str:
    from PIL import Image as Pillow

    packed = io.BytesIO()
    Pillow.fromarray(image.pixels).save(packed, "PNG", optimize=True)
    data = base64.b64encode(packed.getvalue()).decode()
    return (
        f'<image x="{_short(image.x)}" y="{_short(image.y)}" width="{_short(image.width)}" '
        f'height="{_short(image.height)}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )


def _closed(start: str, note: str) -> str:
    name = start.partition(" ")[0]
    return f"<{start}><title>{escape(note)}</title></{name}>" if note else f"<{start}/>"


def _short(number: float) -> str:
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
