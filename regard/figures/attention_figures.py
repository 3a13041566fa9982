"""Sinusoidal positions as a picture: one row for each position, one column for each number."""

import numpy as np

from regard.attention.mask import Mask, causal, padding, window
from regard.figures.captions import caption
from regard.figures.color import ROLES, shades, signed
from regard.figures.drawing import (
    FAINT,
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
from regard.figures.grid import (
    MANY,
    Table,
    add_below,
    circles_legend,
    draw_grid,
    framed,
    scale_legend,
)
from regard.figures.subject import Subject
from regard.layers.position import sinusoid


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


_CELL = 22


def draw_masks(*, length: int = 8, language: str = "en") -> Drawing:
    """The causal mask, padding, a window, and causal with padding."""
    short = max(1, length * 5 // 8)
    radius = max(1, length // 4)
    named: list[tuple[str, str, Mask]] = [
        ("causal mask", "causal()", causal()),
        ("padding mask", f"padding([{short}])", padding([short])),
        ("window mask", f"window({radius})", window(radius)),
        ("causal and padding", f"causal() & padding([{short}])", causal() & padding([short])),
    ]
    side = _CELL * length
    drawing = Drawing(2 * (side + 70), 2 * (side + 84), "")
    for i, (name, code, mask) in enumerate(named):
        panel = _panel(mask.tensor(length, lead=(1,))[0].numpy(), language)
        x, y = i % 2 * (side + 70), i // 2 * (side + 84)
        drawing.add(Text(x, y + 12, caption(name, language), 13, bold=True))
        drawing.add(Text(x, y + 28, code, 12, color="#666666"))
        drawing.place(panel, x, y + 34)
    return framed(
        drawing, caption("masks", language), [caption("masks legend", language)], language
    )


def _panel(allowed: np.ndarray, language: str) -> Drawing:
    n_rows, n_columns = allowed.shape
    left, top = 24, 20
    drawing = Drawing(left + _CELL * n_columns, top + _CELL * n_rows, "")
    drawing.add(Text(left, 14, caption("keys", language), 11, color=ROLES["key"], bold=True))
    middle = top + _CELL * n_rows / 2
    queries = Text(14, middle, caption("queries", language), 11, "middle", True, ROLES["query"], 90)
    drawing.add(queries)
    for (i, j), sees in np.ndenumerate(allowed):
        x, y = left + _CELL * j, top + _CELL * i
        fill = ROLES["weight"] if sees else "#F2F2F2"
        note = f"{i} → {j}: {caption('may see' if sees else 'forbidden', language)}"
        drawing.add(Box(x, y, _CELL, _CELL, fill, "#FFFFFF", note=note))
        if not sees:
            drawing.add(Line(((x + 5, y + _CELL - 5), (x + _CELL - 5, y + 5)), ROLES["masked"], 1))
    drawing.add(Box(left, top, _CELL * n_columns, _CELL * n_rows, stroke=HAIRLINE))
    return drawing


_WIDE, _HIGH = 640, 400


def draw_positions(*, length: int = 64, d_model: int = 128, language: str = "en") -> Drawing:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same."""
    table = sinusoid(length, d_model).numpy()
    left, top = 56, 26
    drawing = Drawing(left + _WIDE + 10, top + _HIGH + 10, "")
    drawing.add(Image(left, top, _WIDE, _HIGH, signed(table, 1.0)))
    drawing.add(Box(left, top, _WIDE, _HIGH, stroke=HAIRLINE))
    for share in (0, 0.25, 0.5, 0.75, 1):
        row, column = round(share * (length - 1)), round(share * (d_model - 1))
        y = top + (row + 0.5) * _HIGH / length + 4
        x = left + (column + 0.5) * _WIDE / d_model
        drawing.add(Text(left - 6, y, str(row), 11, "end", color=FAINT))
        drawing.add(Text(x, top - 6, str(column), 11, "middle", color=FAINT))
    middle = top + _HIGH / 2
    drawing.add(Text(16, middle, caption("position", language), 12, "middle", True, turned=90))
    add_below(drawing, scale_legend(language, low=-1, high=1, says="numbers"), left=left)
    formula = f"PE(pos, 2i) = sin(pos / 10000^(2i / {d_model})),  PE(pos, 2i+1) = cos(…)"
    return framed(drawing, caption("positions", language), [formula], language)
