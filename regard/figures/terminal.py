"""One head's pattern as characters: a row for each query, a column for each key."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

SHADES = " ·░▒▓█"
PLAIN_SHADES = " .:+#@"
"""For terminals that know only ASCII."""


@dataclass(frozen=True)
class Picture:
    """The lines of a picture, and what its shades mean."""

    lines: list[str]
    legend: str


def draw_pattern(
    weights: Sequence[Sequence[float]],
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    shades: str = SHADES,
    widest: int = 12,
) -> Picture:
    """Weights from 0 to 1 as shades; the largest of each row also as its number.

    Names of keys stand above, in columns as wide as they need.
    """
    heads = [_cut(key, widest) for key in keys]
    names = [_cut(query, widest) for query in queries]
    margin = max(map(width, names), default=0)
    columns = [max(2, width(head)) for head in heads]
    top = (
        " " * margin + " " + " ".join(_centered(h, w) for h, w in zip(heads, columns, strict=True))
    )
    lines = [top.rstrip()]
    for name, row in zip(names, weights, strict=True):
        cells = (_centered(_shade(x, shades) * 2, w) for x, w in zip(row, columns, strict=True))
        best = max(range(len(row)), key=row.__getitem__)
        note = f"  {row[best]:.2f} {heads[best]}" if row[best] > 0 else "  sees nothing"
        lines.append(" " * (margin - width(name)) + name + " " + " ".join(cells) + note)
    step = 1 / (len(shades) - 1)
    legend = "  ".join(
        f"{shade * 2} ≥ {(i - 0.5) * step:.1f}" for i, shade in enumerate(shades) if i
    )
    return Picture(lines, legend.replace("≥", ">=") if shades == PLAIN_SHADES else legend)


def width(text: str) -> int:
    """How many columns of a terminal a text takes: Korean characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _shade(weight: float, shades: str) -> str:
    steps = len(shades) - 1
    return shades[min(steps, int(weight * steps + 0.5))]


def _centered(text: str, columns: int) -> str:
    missing = columns - width(text)
    return " " * (missing // 2) + text + " " * (missing - missing // 2)


def _cut(text: str, columns: int) -> str:
    """The text, with an ellipsis in place of what is too wide."""
    shown = "".join("␣" if c.isspace() else c for c in text)
    if width(shown) <= columns:
        return shown
    while width(shown) >= columns:
        shown = shown[:-1]
    return shown + "…"
