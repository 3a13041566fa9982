"""Text in figures: captions in English and Korean (captions.toml), labels that fit a width, fonts.

Also patterns as text for the terminal: a row for each query, a column for each key.
"""

import re
import tomllib
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.cells import cell_len

from regard.errors import LANGUAGES, InputError, check_language

CAPTIONS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)


def caption(key: str, language: str = "en") -> str:
    """Return a caption in a language."""
    check_language(language)
    return CAPTIONS[key][LANGUAGES.index(language)]


_LAYER = re.compile(r"(?:(encoder|decoder)\.)?(?:layers\.(\d+)\.)?(self|cross|feed_forward)\b")
_SUBLAYERS = {
    "self": "self-attention",
    "cross": "cross-attention",
    "feed_forward": "feed-forward",
}


def sublayer_label(path: str, language: str, *, stack: bool = False) -> str:
    """Return the name of a sub-layer, such as "layer 0 · self-attention", or its path.

    With `stack` the name starts with "encoder" or "decoder".
    """
    match = _LAYER.search(path)
    if match is None:
        return path
    side, number, name = match.groups()
    parts = [caption(side, language)] if stack and side else []
    if number is not None:
        parts.append(f"{caption('layer', language)} {number}")
    return " · ".join([*parts, caption(_SUBLAYERS[name], language)])


def signed(number: float, digits: int = 4) -> str:
    """Return a number with a fixed number of decimals, a minus sign and the sign of infinity."""
    text = f"{number:.{digits}f}".replace("inf", "∞")
    return text.removeprefix("-") if float(text.replace("∞", "1")) == 0 else text.replace("-", "−")


def text_width(text: str, size: float = 13) -> float:
    """Estimate the width of a text, for most fonts slightly too large."""
    return size * sum(_advance(c) for c in text)


def truncate(
    text: str, limit: float, size: float = 13, *, measure: Callable[[str], float] | None = None
) -> str:
    """Shorten a text to a width with an ellipsis; `measure` is `text_width` at `size`."""
    measured = measure or (lambda t: text_width(t, size))
    if measured(text) <= limit:
        return text
    while text and measured(text + "…") > limit:
        text = text[:-1]
    return text + "…"


def show_spaces(token: str) -> str:
    """Replace whitespace in a token by a visible sign."""
    return "".join("␣" if c.isspace() else c for c in token)


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF" or character == "␣":
        return 1.0
    if character in "ilj.,:;'|!":
        return 0.32
    return 0.68 if character.isupper() or character in "mw" else 0.57


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


SHADES = " ·░▒▓█"
ASCII_SHADES = " .:+#@"
_MAX_LABEL = 12


_NOTE = 8  # cells of "  0.97 " and of the space before the columns


@dataclass(frozen=True)
class TextPattern:
    """The lines of a pattern, and the weights that its shades mean."""

    lines: list[str]
    legend: str


def text_pattern(
    weights: Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    shades: str = SHADES,
    width: int | None = None,
) -> TextPattern:
    """Return weights from 0 to 1 as shades, with each row's largest weight as a number.

    Labels of keys are above columns that are as wide as the labels. Keys that do not fit into
    `width` cells follow below, with the labels of the queries again.
    """
    heads = [truncate(show_spaces(key), _MAX_LABEL, measure=cell_len) for key in keys]
    names = [truncate(show_spaces(query), _MAX_LABEL, measure=cell_len) for query in queries]
    margin = max(map(cell_len, names), default=0)
    columns = [max(2, cell_len(head)) for head in heads]
    darkest = len(shades) - 1
    lines = []
    for start, end in _blocks(columns, width and width - margin - _NOTE - max(columns, default=0)):
        lines += [""] if start else []
        lines.append(f"{'':{margin}} {_row(heads[start:end], columns[start:end])}".rstrip())
        for name, row in zip(names, weights, strict=True):
            signs = [shades[min(darkest, int(x * darkest + 0.5))] * 2 for x in row[start:end]]
            best = max(range(len(row)), key=row.__getitem__)
            note = f"{row[best]:.2f} {heads[best]}" if row[best] > 0 else "sees nothing"
            label = " " * (margin - cell_len(name)) + name
            line = f"{label} {_row(signs, columns[start:end])}"
            lines.append(f"{line}  {note}" if end == len(heads) else line.rstrip())
    sign, limits = ">=" if shades.isascii() else "≥", enumerate(shades[1:])
    legend = "  ".join(f"{x * 2} {sign} {(i + 0.5) / darkest:.1f}" for i, x in limits)
    return TextPattern(lines, legend)


def _blocks(columns: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """Divide columns into ranges that each fit into a width, with at least one column."""
    starts, used = [0], 0
    for number, column in enumerate(columns):
        used += column + 1
        if width is not None and used > width and number > starts[-1]:
            starts.append(number)
            used = column + 1
    return list(zip(starts, [*starts[1:], len(columns)], strict=True))


def _row(texts: Sequence[str], columns: Sequence[int]) -> str:
    return " ".join(_center(*cell) for cell in zip(texts, columns, strict=True))


def _center(text: str, columns: int) -> str:
    missing = columns - cell_len(text)
    return " " * (missing // 2) + text + " " * (missing - missing // 2)
