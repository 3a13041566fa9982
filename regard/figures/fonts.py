"""Fonts of PNG and PDF files: those installed, their glyphs, and TrueType copies to embed."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.errors import InputError

_KOREAN_FONTS = "Noto Sans KR|Noto Sans CJK KR|Noto Sans CJK JP|NanumGothic|Apple SD Gothic Neo"
_KOREAN_FONTS += "|Malgun Gothic|UnDotum"
FONT_FAMILIES = ("Inter", "Noto Sans", *_KOREAN_FONTS.split("|"), "DejaVu Sans")
"""Preferred fonts of PNG and PDF files; the last one comes with matplotlib."""
_KOREAN_FILES = "notosanscjk|notosanskr|nanumgothic|applesdgothicneo|malgun|undotum"
MISSING = "□"


def _known() -> set[str]:
    from matplotlib import font_manager

    return {entry.name for entry in font_manager.fontManager.ttflist}


@lru_cache
def installed_fonts() -> tuple[str, ...]:
    """Return the preferred font families that this machine has, in order of preference."""
    from matplotlib import font_manager

    if not _known() & set(FONT_FAMILIES[2:-1]):  # matplotlib's font list may be out of date
        for path in font_manager.findSystemFonts():
            if re.match(_KOREAN_FILES, Path(path).stem.lower().replace("-", "")):
                font_manager.fontManager.addfont(path)
    return tuple(name for name in FONT_FAMILIES if name in _known())


def check_font(name: str) -> None:
    """Refuse a font that is not installed."""
    if name not in _known():
        raise InputError(
            f"the font {name!r} is not installed: install it, leave --font out, or save as .svg."
        )


def korean_font() -> str | None:
    """Return the first installed font with Korean glyphs, or None."""
    needed = {ord(c) for c in "한글"}
    return next((name for name in installed_fonts() if needed <= glyphs(name)), None)


@lru_cache
def glyphs(family: str) -> frozenset[int]:
    """Return the characters that a font has."""
    from matplotlib import font_manager

    path = font_manager.findfont(family, fallback_to_default=False)
    return frozenset(font_manager.get_font(path).get_charmap())


def missing_characters(text: str, families: tuple[str, ...]) -> set[str]:
    """Return the visible characters that no font has, with a warning if there are any."""
    known = frozenset[int]().union(*map(glyphs, families))
    missing = {c for c in text if c.isprintable() and not c.isspace() and ord(c) not in known}
    if missing:
        warnings.warn(
            f"no installed font has the characters {''.join(sorted(missing)[:8])}, so {MISSING} "
            "is drawn instead: install one that has (for Korean the Debian package "
            "fonts-noto-cjk), or save the figure as .svg.",
            stacklevel=5,
        )
    return missing


@contextmanager
def truetype_fonts(families: tuple[str, ...], text: str) -> Iterator[list[str]]:
    """Give the names of fonts that a PDF can embed as TrueType while the context lasts.

    Fonts with PostScript outlines, such as Noto Sans CJK, are replaced by TrueType copies of the
    glyphs that the text needs.
    """
    from matplotlib import font_manager

    manager, names = font_manager.fontManager, []
    before = list(manager.ttflist)
    with TemporaryDirectory() as folder:
        for number, family in enumerate(families):
            name = family
            for bold in (False, True):
                weight = "bold" if bold else "normal"
                wanted = font_manager.FontProperties(family=family, weight=weight)
                path = Path(manager.findfont(wanted, fallback_to_default=False))
                if _is_postscript(path):
                    name = f"{family} TrueType"
                    copy = Path(folder) / f"{number}{weight}.ttf"
                    _write_truetype(path, copy, name, text, bold=bold)
                    manager.addfont(str(copy))
            names.append(name)
        try:
            yield names
        finally:
            manager.ttflist[:] = before


def _is_postscript(path: Path) -> bool:
    from fontTools.ttLib import TTFont

    with TTFont(path, fontNumber=0, lazy=True) as font:
        return "CFF " in font


def _write_truetype(path: Path, copy: Path, name: str, text: str, *, bold: bool) -> None:
    """Write the glyphs of a text with quadratic instead of cubic curves."""
    from fontTools.pens.cu2quPen import Cu2QuPen
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    from fontTools.ttLib import TTFont

    with TTFont(path, fontNumber=0, lazy=True) as font:
        known, drawn, outlines = font.getBestCmap() or {}, font.getGlyphSet(), {}
        cmap = {ord(c): known[ord(c)] for c in sorted({*text, " "}) if ord(c) in known}
        for glyph in dict.fromkeys([".notdef", *cmap.values()]):
            pen = TTGlyphPen(None)
            drawn[glyph].draw(Cu2QuPen(pen, max_err=1.0, reverse_direction=True))
            outlines[glyph] = pen.glyph()
        _build(font, cmap, outlines, copy, (name, "Bold" if bold else "Regular"))


def _build(
    font: Any, cmap: dict[int, str], outlines: dict[str, Any], copy: Path, names: tuple[str, str]
) -> None:
    """Write a TrueType font of these outlines with the metrics of another font."""
    from fontTools.fontBuilder import FontBuilder

    widths, (family, style) = font["hmtx"], names
    ascent, descent = font["hhea"].ascent, font["hhea"].descent
    builder = FontBuilder(font["head"].unitsPerEm, isTTF=True)
    builder.setupGlyphOrder(list(outlines))
    builder.setupCharacterMap(cmap)
    builder.setupGlyf(outlines)
    builder.setupHorizontalMetrics(
        {glyph: (widths[glyph][0], getattr(one, "xMin", 0)) for glyph, one in outlines.items()}
    )
    builder.setupHorizontalHeader(ascent=ascent, descent=descent)
    whole = f"{family}-{style}".replace(" ", "-")
    builder.setupNameTable(
        {"familyName": family, "styleName": style, "psName": whole, "fullName": whole}
    )
    weight = 700 if style == "Bold" else 400
    builder.setupOS2(sTypoAscender=ascent, sTypoDescender=descent, usWeightClass=weight)
    builder.setupPost()
    builder.save(copy)
