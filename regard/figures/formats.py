"""File formats of figures: SVG with text as text, PNG and PDF by matplotlib."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import InputError
from regard.figures.colors import INK
from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Shape, Text
from regard.files import write_atomic

FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
"""Font stack of SVG and HTML files."""


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as an SVG file without external references."""
    width, height = _short(drawing.width), _short(drawing.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" lang="{drawing.language}" '
        f'font-family="{FONTS}" font-size="13" fill="{INK}">'
        f"<title>{escape(drawing.title)}</title>"
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>'
        f"{''.join(_svg_element(shape) for shape in drawing.shapes)}</svg>\n"
    )


def _svg_element(shape: Shape) -> str:
    if isinstance(shape, Text):
        return _svg_text(shape)
    if isinstance(shape, Circle):
        place = {"cx": shape.x, "cy": shape.y, "r": shape.radius}
        return _tag("circle", _svg_tooltip(shape), **place, fill=shape.fill)
    if isinstance(shape, Line):
        return _svg_line(shape)
    place = {"x": shape.x, "y": shape.y, "width": shape.width, "height": shape.height}
    if isinstance(shape, Image):
        style = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
        return _tag("image", **place, **style, href=_png_url(shape.pixels))
    style = {"fill": shape.fill or "none", "stroke": shape.stroke}
    width = None if shape.stroke_width == 1 else shape.stroke_width
    return _tag(
        "rect",
        _svg_tooltip(shape),
        **place,
        rx=shape.radius or None,
        **style,
        stroke_width=width,
        fill_opacity=None if shape.opacity == 1 else f"{shape.opacity:.4g}",
    )


def _svg_text(text: Text) -> str:
    place: dict[str, Any] = {"x": text.x, "y": text.y}
    if text.rotation:
        x, y, degrees = map(_short, (text.x, text.y, -text.rotation))
        place = {"transform": f"translate({x} {y}) rotate({degrees})"}
    return _tag(
        "text",
        escape(text.text, quote=False),
        **place,
        font_size=None if text.size == 13 else text.size,
        text_anchor=None if text.anchor == "start" else text.anchor,
        font_weight="600" if text.bold else None,
        fill=None if text.color == INK else text.color,
    )


def _svg_line(line: Line) -> str:
    drawn = _tag(
        "polyline",
        _svg_tooltip(line),
        points=_svg_points(line.points),
        fill="none",
        stroke=line.stroke,
        stroke_width=line.width,
        stroke_opacity=None if line.opacity == 1 else f"{line.opacity:.4g}",
        stroke_dasharray=" ".join(map(_short, line.dash)) or None,
    )
    if line.arrow:
        drawn += _tag("polygon", points=_svg_points(_arrow_head(line)), fill=line.stroke)
    return drawn


def _svg_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _png_url(pixels: np.ndarray) -> str:
    from PIL import Image as Pillow

    png = io.BytesIO()
    Pillow.fromarray(pixels).save(png, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


def _svg_tooltip(shape: Box | Circle | Line) -> str | None:
    return f"<title>{escape(shape.tooltip)}</title>" if shape.tooltip else None


def _tag(name: str, content: str | None = None, **attributes: float | str | None) -> str:
    """Return an SVG element; attributes that are None are left out."""
    start = name
    for key, value in attributes.items():
        if value is not None:
            text = value if isinstance(value, str) else _short(value)
            start += f' {key.replace("_", "-")}="{text}"'
    return f"<{start}/>" if content is None else f"<{start}>{content}</{name}>"


def _short(number: float) -> str:
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _arrow_head(line: Line) -> list[tuple[float, float]]:
    """Return the three corners of the arrow head at the end of a line."""
    size = max(6.0, 2.6 * line.width)
    start, end = np.array(line.points[-2]), np.array(line.points[-1])
    along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9) * size
    across = np.array([-along[1], along[0]]) * 0.5
    return [tuple(point) for point in (end, end - along + across, end - along - across)]


_KOREAN_FONTS = "Noto Sans KR|Noto Sans CJK KR|Noto Sans CJK JP|NanumGothic|Apple SD Gothic Neo"
_KOREAN_FONTS += "|Malgun Gothic|UnDotum"
FONT_FAMILIES = ("Inter", "Noto Sans", *_KOREAN_FONTS.split("|"), "DejaVu Sans")
"""Preferred fonts of PNG and PDF files; the last one comes with matplotlib."""
_KOREAN_FILES = "notosanscjk|notosanskr|nanumgothic|applesdgothicneo|malgun|undotum"
_MISSING = "□"


@lru_cache
def installed_fonts() -> tuple[str, ...]:
    """Return the preferred font families that this machine has, in order of preference."""
    from matplotlib import font_manager

    def known() -> set[str]:
        return {entry.name for entry in font_manager.fontManager.ttflist}

    if not known() & set(FONT_FAMILIES[2:-1]):  # matplotlib's font list may be out of date
        for path in font_manager.findSystemFonts():
            if re.match(_KOREAN_FILES, Path(path).stem.lower().replace("-", "")):
                font_manager.fontManager.addfont(path)
    return tuple(name for name in FONT_FAMILIES if name in known())


def korean_font() -> str | None:
    """Return the first installed font with Korean glyphs, or None."""
    needed = {ord(c) for c in "한글"}
    return next((name for name in installed_fonts() if needed <= _glyphs(name)), None)


@lru_cache
def _glyphs(family: str) -> frozenset[int]:
    from matplotlib import font_manager

    path = font_manager.findfont(family, fallback_to_default=False)
    return frozenset(font_manager.get_font(path).get_charmap())


def rasterize(drawing: Drawing, extension: str) -> bytes:
    """Return a drawing as "png", with two pixels for each unit, or as "pdf"."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    text = "".join(shape.text for shape in drawing.shapes if isinstance(shape, Text))
    known = frozenset[int]().union(*map(_glyphs, installed_fonts()))
    missing = {c for c in text if c.isprintable() and not c.isspace() and ord(c) not in known}
    if missing:
        warnings.warn(
            f"no installed font has the characters {''.join(sorted(missing)[:8])}, so {_MISSING} "
            "is drawn instead: install one that has (for Korean the Debian package "
            "fonts-noto-cjk), or save the figure as .svg.",
            stacklevel=4,
        )
    with matplotlib.rc_context({"font.family": list(installed_fonts()), "pdf.fonttype": 3}):
        canvas = Canvas((drawing.width / 72, drawing.height / 72), dpi=144, facecolor="white")
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.axis("off")
        for order, shape in enumerate(drawing.shapes):
            _paint(axes, shape, order, missing)
        buffer = io.BytesIO()
        undated: Any = {"CreationDate": None} if extension == "pdf" else {}  # equal files
        canvas.savefig(buffer, format=extension, metadata={"Title": drawing.title, **undated})
    return buffer.getvalue()


def _paint(axes: Any, shape: Shape, order: int, missing: set[str]) -> None:
    from matplotlib import patches

    if isinstance(shape, Text):
        _paint_text(axes, shape, order, missing)
    elif isinstance(shape, Image):
        box = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
        axes.imshow(shape.pixels, extent=box, interpolation="nearest", aspect="auto", zorder=order)
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    elif isinstance(shape, Line):
        dash = (0, tuple(length / shape.width for length in shape.dash)) if shape.dash else "-"
        style = {"color": shape.stroke, "lw": shape.width, "alpha": shape.opacity, "ls": dash}
        axes.plot(*zip(*shape.points, strict=True), **style, solid_capstyle="butt", zorder=order)
        if shape.arrow:
            style = {"color": shape.stroke, "lw": 0, "zorder": order}
            axes.add_patch(patches.Polygon(_arrow_head(shape), **style))
    elif isinstance(shape, Circle):
        style = {"color": shape.fill, "lw": 0, "zorder": order}
        axes.add_patch(patches.Circle((shape.x, shape.y), shape.radius, **style))
    else:
        fill = (shape.fill, shape.opacity) if shape.fill else "none"
        style = {"fc": fill, "ec": shape.stroke or "none", "lw": shape.stroke_width}
        corner = f"round,pad=0,rounding_size={shape.radius}" if shape.radius else "square,pad=0"
        place = (shape.x, shape.y), shape.width, shape.height
        axes.add_patch(patches.FancyBboxPatch(*place, boxstyle=corner, zorder=order, **style))


def _paint_text(axes: Any, text: Text, order: int, missing: set[str]) -> None:
    axes.text(
        text.x,
        text.y,
        "".join(_MISSING if c in missing else c for c in text.text),
        fontsize=text.size,
        color=text.color,
        ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
        va="baseline",
        weight="bold" if text.bold else "normal",
        rotation=text.rotation,
        rotation_mode="anchor",
        parse_math=False,
        zorder=order,
    )


FORMATS: dict[str, Callable[[Drawing], str | bytes]] = {
    ".svg": to_svg,
    ".png": partial(rasterize, extension="png"),
    ".pdf": partial(rasterize, extension="pdf"),
}


def check_extension(path: str | Path, allowed: Iterable[str] = FORMATS) -> str:
    """Return the extension of a file name in lower case, or raise if it is not allowed."""
    extension = Path(path).suffix.lower()
    if extension not in allowed:
        raise InputError(f"the file {path} must end in {', '.join(allowed)}.")
    return extension


def html_page(title: str, body: str, *, css: str = "", language: str = "en") -> str:
    """Return an HTML page with a heading and its own styles."""
    base = f"body{{font:15px/1.5 {FONTS};margin:2rem auto;padding:0 1rem;color:{INK}}}"
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{base}{css}</style>"
        f"<h1>{escape(title)}</h1>{body}</html>\n"
    )


@dataclass(frozen=True)
class Figure:
    """A drawing that can be saved or shown in a notebook."""

    drawing: Drawing

    @property
    def svg(self) -> str:
        """The figure as SVG text."""
        return to_svg(self.drawing)

    def save(self, path: str | Path) -> None:
        """Write the figure as .svg, .png or .pdf."""
        write_atomic(path, FORMATS[check_extension(path)](self.drawing))

    def _repr_svg_(self) -> str:
        return self.svg
