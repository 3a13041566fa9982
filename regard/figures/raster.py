"""A drawing as PNG or PDF, drawn by matplotlib."""

import io
import warnings
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Shape, Text
from regard.figures.svg import arrow_head

PREFERRED = (
    "Inter",
    "Noto Sans",
    "Noto Sans KR",
    "Noto Sans CJK KR",
    "Noto Sans CJK JP",
    "NanumGothic",
    "Apple SD Gothic Neo",
    "Malgun Gothic",
    "UnDotum",
    "DejaVu Sans",
)
"""The last one comes with matplotlib, so there is always one."""
_FILES = ("notosanscjk", "notosanskr", "nanumgothic", "applesdgothicneo", "malgun", "undotum")
MISSING = "□"


@lru_cache
def families() -> tuple[str, ...]:
    """Those of the preferred fonts that this machine has, in order."""
    from matplotlib import font_manager

    def known() -> set[str]:
        return {entry.name for entry in font_manager.fontManager.ttflist}

    if not known() & set(PREFERRED[2:-1]):  # matplotlib's list may be older than the font
        for path in font_manager.findSystemFonts():
            stem = Path(path).stem.lower().replace("-", "")
            if stem.startswith(_FILES):
                font_manager.fontManager.addfont(path)
    here = known()
    return tuple(name for name in PREFERRED if name in here)


def korean_font() -> str | None:
    """The font that writes Korean, if there is one."""
    return next((name for name in families() if not _lacking(name, "한글")), None)


def unwritable(text: Iterable[str]) -> set[str]:
    """The characters of a text that no font of this machine has."""
    left = {c for c in "".join(text) if c.isprintable() and not c.isspace()}
    for name in families():
        left = _lacking(name, left)
    return left


def _lacking(name: str, characters: Iterable[str]) -> set[str]:
    return {c for c in characters if ord(c) not in _characters(name)}


@lru_cache
def _characters(name: str) -> frozenset[int]:
    from matplotlib import font_manager

    path = font_manager.findfont(name, fallback_to_default=False)
    return frozenset(font_manager.get_font(path).get_charmap())


_SHARP = 144
"""Dots to 72 units: two for each, so that pictures are sharp on screens of today."""


def to_png(drawing: Drawing) -> bytes:
    """The picture as PNG, two pixels for each of its units."""
    return _drawn(drawing, "png")


def to_pdf(drawing: Drawing) -> bytes:
    """The picture as PDF; its lines stay sharp at any size."""
    return _drawn(drawing, "pdf")


def _drawn(drawing: Drawing, kind: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    missing = unwritable(shape.text for shape in drawing.shapes if isinstance(shape, Text))
    if missing:
        some = "".join(sorted(missing)[:8])
        warnings.warn(
            f"no font of this machine can write {some}, so {MISSING} stands for it: install a font "
            "that can (for Korean the Debian package fonts-noto-cjk), or save the picture as .svg.",
            stacklevel=4,
        )
    settings: Any = {"font.family": list(families()), "pdf.fonttype": 3, "svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        figure = Figure((drawing.width / 72, drawing.height / 72), dpi=_SHARP, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.axis("off")
        for order, shape in enumerate(drawing.shapes):
            _add(axes, shape, order, missing)
        made = io.BytesIO()
        about = {"Title": drawing.title}
        if kind == "pdf":
            about["CreationDate"] = None  # type: ignore[assignment]  the same picture, the same file
        figure.savefig(made, format=kind, metadata=about)
    return made.getvalue()


def _add(axes: Any, shape: Shape, order: int, missing: set[str]) -> None:
    from matplotlib import patches

    if isinstance(shape, Text):
        _add_text(axes, shape, order, missing)
    elif isinstance(shape, Image):
        box = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
        axes.imshow(shape.pixels, extent=box, interpolation="nearest", aspect="auto", zorder=order)
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    elif isinstance(shape, Line):
        _add_line(axes, shape, order)
    elif isinstance(shape, Circle):
        place = (shape.x, shape.y)
        axes.add_patch(patches.Circle(place, shape.radius, color=shape.fill, lw=0, zorder=order))
    elif isinstance(shape, Box):
        look = {"fc": shape.fill or "none", "ec": shape.stroke or "none", "lw": 1, "zorder": order}
        place, size = (shape.x, shape.y), (shape.width, shape.height)
        if shape.radius:
            style = f"round,pad=0,rounding_size={shape.radius}"
            axes.add_patch(patches.FancyBboxPatch(place, *size, boxstyle=style, **look))
        else:
            axes.add_patch(patches.Rectangle(place, *size, **look))


def _add_text(axes: Any, text: Text, order: int, missing: set[str]) -> None:
    written = "".join(MISSING if c in missing else c for c in text.text)
    axes.text(
        text.x,
        text.y,
        written,
        fontsize=text.size,
        color=text.color,
        ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
        va="baseline",
        weight="bold" if text.bold else "normal",
        rotation=text.turned,
        rotation_mode="anchor",
        parse_math=False,
        zorder=order,
    )


def _add_line(axes: Any, line: Line, order: int) -> None:
    from matplotlib import patches

    xs, ys = zip(*line.points, strict=True)
    look = {"color": line.stroke, "lw": line.width, "alpha": line.opacity, "zorder": order}
    style = (0, (4 / line.width, 3 / line.width)) if line.dashed else "-"
    axes.plot(xs, ys, linestyle=style, solid_capstyle="butt", **look)
    if line.arrow:
        axes.add_patch(patches.Polygon(arrow_head(line), color=line.stroke, lw=0, zorder=order))
