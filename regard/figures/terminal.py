"""Attention patterns as text: a row for each query, a column for each key."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from regard.figures.labels import show_spaces, truncate

SHADES = " ·░▒▓█"
ASCII_SHADES = " .:+#@"


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
    max_label: int = 12,
) -> TextPattern:
    """Return weights from 0 to 1 as shades, with each row's largest weight as a number.

    Labels of keys are above columns that are as wide as the labels.
    """
    heads = [truncate(show_spaces(key), max_label, measure=cell_len) for key in keys]
    names = [truncate(show_spaces(query), max_label, measure=cell_len) for query in queries]
    margin = max(map(cell_len, names), default=0)
    columns = [max(2, cell_len(head)) for head in heads]
    top = " ".join(_center(head, width) for head, width in zip(heads, columns, strict=True))
    lines = [f"{'':{margin}} {top}".rstrip()]
    for name, row in zip(names, weights, strict=True):
        cells = " ".join(
            _center(_shade(weight, shades) * 2, width)
            for weight, width in zip(row, columns, strict=True)
        )
        best = max(range(len(row)), key=row.__getitem__)
        note = f"{row[best]:.2f} {heads[best]}" if row[best] > 0 else "sees nothing"
        lines.append(f"{' ' * (margin - cell_len(name))}{name} {cells}  {note}")
    step = 1 / (len(shades) - 1)
    sign = ">=" if shades.isascii() else "≥"
    legend = "  ".join(
        f"{shade * 2} {sign} {(i - 0.5) * step:.1f}" for i, shade in enumerate(shades) if i
    )
    return TextPattern(lines, legend)


def _shade(weight: float, shades: str) -> str:
    steps = len(shades) - 1
    return shades[min(steps, int(weight * steps + 0.5))]


def _center(text: str, columns: int) -> str:
    missing = columns - cell_len(text)
    return " " * (missing // 2) + text + " " * (missing - missing // 2)
