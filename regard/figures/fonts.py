"""Fonts for pictures made of pixels, and what they cannot write."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

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
