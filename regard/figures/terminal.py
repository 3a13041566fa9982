"""Attention patterns as text: a row for each query, a column for each key."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from regard.figures.captions import show_spaces, truncate

SHADES = " ·░▒▓█"
ASCII_SHADES = " .:+#@"
_MAX_LABEL = 12


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
) -> TextPattern:
    """Return weights from 0 to 1 as shades, with each row's largest weight as a number.

    Labels of keys are above columns that are as wide as the labels.
    """
    heads = [truncate(show_spaces(key), _MAX_LABEL, measure=cell_len) for key in keys]
    names = [truncate(show_spaces(query), _MAX_LABEL, measure=cell_len) for query in queries]
    margin = max(map(cell_len, names), default=0)
    columns = [max(2, cell_len(head)) for head in heads]
    top = " ".join(_center(*cell) for cell in zip(heads, columns, strict=True))
    lines = [f"{'':{margin}} {top}".rstrip()]
    darkest = len(shades) - 1
    for name, row in zip(names, weights, strict=True):
        signs = [shades[min(darkest, int(weight * darkest + 0.5))] * 2 for weight in row]
        cells = " ".join(_center(*cell) for cell in zip(signs, columns, strict=True))
        best = max(range(len(row)), key=row.__getitem__)
        note = f"{row[best]:.2f} {heads[best]}" if row[best] > 0 else "sees nothing"
        lines.append(f"{' ' * (margin - cell_len(name))}{name} {cells}  {note}")
    sign, limits = ">=" if shades.isascii() else "≥", enumerate(shades[1:])
    legend = "  ".join(f"{x * 2} {sign} {(i + 0.5) / darkest:.1f}" for i, x in limits)
    return TextPattern(lines, legend)


def _center(text: str, columns: int) -> str:
    missing = columns - cell_len(text)
    return " " * (missing // 2) + text + " " * (missing - missing // 2)
