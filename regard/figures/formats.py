"""File formats of figures: SVG with text as text, PNG and PDF by matplotlib, and moving ones."""

import base64
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import InputError, MissingExtraError
from regard.figures.captions import (
    MISSING,
    check_font,
    installed_fonts,
    missing_characters,
    truetype_fonts,
)
from regard.figures.colors import INK
from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Look, Shape, Text, recolor
from regard.files import write_atomic

FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
"""Font stack of SVG and HTML files."""


_PLAIN = Look()


def to_svg(drawing: Drawing, look: Look = _PLAIN) -> str:
    """Return a drawing as an SVG file without external references."""
    drawing = look.apply(drawing)
    width, height = _short(drawing.width), _short(drawing.height)
    sides, paper = (width, height), look.millimeters(drawing)
    if paper is not None:
        sides = f"{_short(paper)}mm", f"{_short(paper * drawing.height / drawing.width)}mm"
    font = f"'{escape(look.font)}', {FONTS}" if look.font else FONTS
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sides[0]}" height="{sides[1]}" '
        f'viewBox="0 0 {width} {height}" role="img" lang="{drawing.language}" '
        f'font-family="{font}" font-size="13" fill="{recolor(INK, look.theme)}">'
        f"<title>{escape(drawing.title)}</title>"
        f'<rect width="100%" height="100%" fill="{look.background}"/>'
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


def rasterize(drawing: Drawing, extension: str, look: Look = _PLAIN) -> bytes:
    """Return a drawing as "png", with two pixels for each unit by default, or as "pdf"."""
    import matplotlib

    drawing = look.apply(drawing)
    text = "".join(shape.text for shape in drawing.shapes if isinstance(shape, Text))
    if look.font is not None:
        check_font(look.font)
    families = tuple(dict.fromkeys(filter(None, (look.font, *installed_fonts()))))
    missing = missing_characters(text, families)
    if extension != "pdf":
        with matplotlib.rc_context({"font.family": list(families)}):
            return _render(drawing, extension, look, missing)
    with (
        truetype_fonts(families, text + MISSING) as names,
        matplotlib.rc_context({"font.family": names, "pdf.fonttype": 42}),
    ):
        return _render(drawing, extension, look, missing)


def _render(drawing: Drawing, extension: str, look: Look, missing: set[str]) -> bytes:
    from matplotlib.figure import Figure as Canvas

    scale, dpi = look.scale(drawing), look.resolution()
    size = drawing.width * scale / 72, drawing.height * scale / 72
    canvas = Canvas(size, dpi=dpi, facecolor=look.background)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.axis("off")
    for order, shape in enumerate(drawing.shapes):
        _paint(axes, shape, order, missing, scale)
    buffer = io.BytesIO()
    undated: Any = {"CreationDate": None} if extension == "pdf" else {}  # equal files
    canvas.savefig(buffer, format=extension, metadata={"Title": drawing.title, **undated})
    return buffer.getvalue()


def _paint(axes: Any, shape: Shape, order: int, missing: set[str], scale: float) -> None:
    from matplotlib import patches

    if isinstance(shape, Text):
        _paint_text(axes, shape, order, missing, scale)
    elif isinstance(shape, Image):
        box = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
        axes.imshow(shape.pixels, extent=box, interpolation="nearest", aspect="auto", zorder=order)
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    elif isinstance(shape, Line):
        dash = (0, tuple(length / shape.width for length in shape.dash)) if shape.dash else "-"
        style = {
            "color": shape.stroke,
            "lw": shape.width * scale,
            "alpha": shape.opacity,
            "ls": dash,
        }
        axes.plot(*zip(*shape.points, strict=True), **style, solid_capstyle="butt", zorder=order)
        if shape.arrow:
            style = {"color": shape.stroke, "lw": 0, "zorder": order}
            axes.add_patch(patches.Polygon(_arrow_head(shape), **style))
    elif isinstance(shape, Circle):
        style = {"color": shape.fill, "lw": 0, "zorder": order}
        axes.add_patch(patches.Circle((shape.x, shape.y), shape.radius, **style))
    else:
        fill = (shape.fill, shape.opacity) if shape.fill else "none"
        style = {"fc": fill, "ec": shape.stroke or "none", "lw": shape.stroke_width * scale}
        corner = f"round,pad=0,rounding_size={shape.radius}" if shape.radius else "square,pad=0"
        place = (shape.x, shape.y), shape.width, shape.height
        axes.add_patch(patches.FancyBboxPatch(*place, boxstyle=corner, zorder=order, **style))


def _paint_text(axes: Any, text: Text, order: int, missing: set[str], scale: float) -> None:
    axes.text(
        text.x,
        text.y,
        "".join(MISSING if c in missing else c for c in text.text),
        fontsize=text.size * scale,
        color=text.color,
        ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
        va="baseline",
        weight="bold" if text.bold else "normal",
        rotation=text.rotation,
        rotation_mode="anchor",
        parse_math=False,
        zorder=order,
    )


FORMATS: dict[str, Callable[..., str | bytes]] = {
    ".svg": to_svg,
    ".png": partial(rasterize, extension="png"),
    ".pdf": partial(rasterize, extension="pdf"),
}


MOVING = (".gif", ".webp", ".mp4")
_FRAME, _LAST = 250, 1250  # milliseconds of each frame, and of the last one


def animate(frames: Sequence[Drawing], extension: str, look: Look = _PLAIN) -> bytes:
    """Return drawings as the frames of a .mp4 file, or of a .gif or .webp file that repeats."""
    sheets = _sheets(frames, look)
    if extension == ".mp4":
        return _mp4(sheets)
    buffer, times = io.BytesIO(), [_FRAME] * (len(sheets) - 1) + [_LAST]
    options: dict[str, Any] = {"lossless": True} if extension == ".webp" else {"optimize": True}
    sheets[0].save(
        buffer,
        format=extension[1:],
        save_all=True,
        append_images=sheets[1:],
        duration=times,
        loop=0,
        **options,
    )
    return buffer.getvalue()


def _sheets(frames: Sequence[Drawing], look: Look) -> list[Any]:
    """Return drawings as images of one size."""
    from PIL import Image as Pillow

    pages = [Pillow.open(io.BytesIO(rasterize(one, "png", look))).convert("RGB") for one in frames]
    size = max(page.width for page in pages), max(page.height for page in pages)
    sheets = [Pillow.new("RGB", size, look.background) for _ in pages]
    for sheet, page in zip(sheets, pages, strict=True):
        sheet.paste(page, (0, 0))
    return sheets


def _mp4(sheets: Sequence[Any]) -> bytes:
    """Return images as an H.264 video; its sides are even, as the format demands."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError(
            "a .mp4 file needs av: pip install 'regard[video]', or save it as .gif or .webp."
        ) from error
    width, height = (side + side % 2 for side in sheets[0].size)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=1000 // _FRAME, options={"crf": "18"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for sheet in [*sheets, *[sheets[-1]] * (_LAST // _FRAME - 1)]:
            page = np.pad(np.asarray(sheet), _even(sheet), mode="edge")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(page, format="rgb24")))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def _even(sheet: Any) -> tuple[tuple[int, int], ...]:
    """Return how much to add to the sides of an image for `numpy.pad`."""
    return (0, sheet.height % 2), (0, sheet.width % 2), (0, 0)


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
    """A drawing that can be saved or shown in a notebook; some have frames that move."""

    drawing: Drawing
    frames: Callable[[], Sequence[Drawing]] | None = None
    look: Look = _PLAIN

    def styled(self, **look: Any) -> "Figure":
        """Return the figure with another look; the options are those of `Look`."""
        return replace(self, look=replace(self.look, **look))

    @property
    def svg(self) -> str:
        """The figure as SVG text."""
        return to_svg(self.drawing, self.look)

    def __repr__(self) -> str:
        width, height = round(self.drawing.width), round(self.drawing.height)
        return f"<Figure {self.drawing.title!r}, {width} × {height}; save it as .svg, .png or .pdf>"

    def save(self, path: str | Path) -> None:
        """Write the figure as .svg, .png or .pdf, or as .gif, .webp or .mp4 if it moves."""
        extension = Path(path).suffix.lower()
        small = self.look.small_text(self.drawing)
        if small is not None:
            warnings.warn(
                f"the smallest text will be {small:.1f} points high: choose a larger size, or a "
                "shorter text.",
                stacklevel=2,
            )
        if extension in MOVING:
            if self.frames is None:
                raise InputError(
                    f"{path} cannot be written because this figure does not move: only decode, "
                    "temperature and training do; save it as .svg, .png or .pdf."
                )
            write_atomic(path, animate(self.frames(), extension, self.look))
            return
        write_atomic(path, FORMATS[check_extension(path)](self.drawing, look=self.look))

    def _repr_svg_(self) -> str:
        return self.svg
