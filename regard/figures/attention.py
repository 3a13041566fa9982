"""One head or all heads of a site: as a grid, as lines between two columns, side by side."""

import numpy as np

from regard.figures.captions import caption
from regard.figures.colour import ROLES, shades
from regard.figures.drawing import (
    HAIRLINE,
    Box,
    Drawing,
    Image,
    Line,
    Text,
    fitted,
    text_width,
    visible,
)
from regard.figures.grid import MANY, Table, draw_grid
from regard.figures.legend import add_below, circles_legend, framed, scale_legend
from regard.figures.subject import Subject


def draw_pattern(subject: Subject) -> Drawing:
    """A row for each query, a column for each key."""
    language, weights = subject.language, subject.weights()
    table = Table(weights, *subject.names(), *subject.axes())
    grid = draw_grid(table, style=subject.style)
    heat = subject.style == "heat" or max(weights.shape) > MANY
    cell = max(20.0, min(46.0, 640 / max(weights.shape)))
    legend = scale_legend(language) if heat else circles_legend(cell, language)
    add_below(grid, legend, left=34)
    return framed(grid, subject.title(), [caption("weights", language)], language)


def draw_lines(subject: Subject) -> Drawing:
    """Queries on the left, keys on the right, lines between them as strong as the weights."""
    weights, (queries, keys) = subject.weights(), subject.names()
    step, size = 24, 13
    left = max((text_width(visible(name), size) for name in queries), default=0)
    right = max((text_width(visible(name), size) for name in keys), default=0)
    left, right = min(left, 180), min(right, 180)
    start, end = left + 10, left + 10 + 240
    high = 30 + step * max(len(queries), len(keys))
    drawing = Drawing(max(end + 10 + right, 420), high, "")
    for i, j in sorted(np.ndindex(weights.shape), key=lambda cell: weights[cell]):
        value = float(weights[i, j])
        if value < 0.005:
            continue
        ends = ((start, 26 + step * (i + 0.5)), (end, 26 + step * (j + 0.5)))
        note = f"{queries[i]} → {keys[j]}: {value:.4f}"
        line = Line(ends, ROLES["weight"], 0.5 + 5 * value, min(1, 0.12 + value), note=note)
        drawing.add(line)
    asks, answers = subject.axes()
    drawing.add(Text(start, 12, asks, 12, "end" if left > 120 else "middle", True, ROLES["query"]))
    drawing.add(Text(end, 12, answers, 12, "start", True, ROLES["key"]))
    for i, name in enumerate(queries):
        label = fitted(visible(name), 180, size)
        drawing.add(Text(left, 30 + step * (i + 0.5), label, size, "end"))
    for j, name in enumerate(keys):
        label = fitted(visible(name), 180, size)
        drawing.add(Text(end + 10, 30 + step * (j + 0.5), label, size))
    return framed(
        drawing, subject.title(), [caption("thicker lines", subject.language)], subject.language
    )


def draw_heads(subject: Subject) -> Drawing:
    """Every head of a site, one small picture each."""
    language, site = subject.language, subject.site
    across, side, gap = min(site.n_heads, 4), 170, 26
    pictures = site.thumbnails(64).clamp(0, 1).numpy()
    scale = side / max(pictures.shape[1:])
    high, wide = (n * scale for n in pictures.shape[1:])
    down = -(-site.n_heads // across)
    drawing = Drawing(across * (wide + gap), down * (high + gap + 14), "")
    for head, small in enumerate(pictures):
        x, y = head % across * (wide + gap), head // across * (high + gap + 14)
        drawing.add(Text(x, y + 13, f"{caption('head', language)} {head}", 12, bold=True))
        drawing.add(Image(x, y + 20, wide, high, shades(small)))
        drawing.add(Box(x, y + 20, wide, high, stroke=HAIRLINE))
    add_below(drawing, scale_legend(language))
    asks, answers = subject.axes()
    note = f"{asks} ↓   {answers} →   {site.n_query} × {site.n_key}"
    return framed(drawing, site.path, [note], language)


def draw_alignment(subject: Subject) -> Drawing:
    """Which word of the source each word of the target reads, as Bahdanau et al. drew it."""
    language = subject.language
    weights, targets, sources = subject.words()
    asks, answers = caption("written words", language), caption("read words", language)
    grid = draw_grid(Table(weights, targets, sources, asks, answers), style="heat")
    add_below(grid, scale_legend(language), left=34)
    notes = [caption("weights between words", language)]
    return framed(grid, f"{subject.title()} · {caption('alignment', language)}", notes, language)
