"""Figures of one query: its steps, its weights as bars, temperatures, and all heads' opinions."""

import numpy as np
import torch

from regard.analysis.heads import is_cross, sides
from regard.attention.softmax import softmax_over_keys
from regard.figures import grid
from regard.figures.captions import (
    caption,
    show_spaces,
    sublayer_label,
    text_width,
    truncate,
)
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, shade
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.head_view import HeadView, check_keys, to_numpy
from regard.figures.matrix import add_vector

_BAR, _VALUES = 220, 130


def draw_bars(view: HeadView) -> Drawing:
    """Draw the weights of one query as bars, and the values that it sums with them."""
    check_keys(view)
    site, language, keys, weights = view.site, view.language, view.labels()[1], view.row("weights")
    value = to_numpy(site.vectors("value", view.head_index))[view.columns]
    context = to_numpy(
        site.context(view.head_index if site.lead else None, rows=[view.query_index])[0]
    )
    left = grid.widest_label(keys, 13) + 12
    first = left + _BAR + 78
    second, row = first + _VALUES + 40, 26 if len(keys) <= 30 else 18
    drawing = Drawing(second + _VALUES + 10, 26 + row * len(keys))
    headings = ((left, "weights", "weight"), (first, "values", "value"))
    for x, name, role in (*headings, (second, "weighted values", "value")):
        drawing.add(Text(x, 16, caption(name, language), 12, bold=True, color=ROLES[role]))
    largest, most = grid.largest_finite(value), grid.largest_finite(weights[:, None] * value)
    most = max(most, grid.largest_finite(context))
    for i, (name, weight) in enumerate(zip(keys, weights.tolist(), strict=True)):
        y = 26 + row * i
        drawing.add(Text(left - 8, y + row * 0.66, truncate(show_spaces(name), 130), 13, "end"))
        bar = left, y + 3, max(_BAR * weight, 0.5), row - 6
        drawing.add(Box(*bar, ROLES["weight"], tooltip=f"{name}: {weight:.4f}"))
        drawing.add(Text(first - 22, y + row * 0.66, f"{weight:.4f}", 12, "end"))
        add_vector(drawing, largest, value[i], first, y + 3, _VALUES, row - 6)
        add_vector(drawing, most, weight * value[i], second, y + 3, _VALUES, row - 6)
        ends = (first + _VALUES + 4, y + row / 2), (second - 4, y + row / 2)
        drawing.add(Line(ends, ROLES["weight"], 0.5 + 4 * weight, arrow=True))
    _add_sum(drawing, float(weights.sum()), first - 22, language)
    add_vector(drawing, most, context, second, drawing.height - 40, _VALUES)
    legend = grid.draw_color_legend(language, low=-largest, high=largest, label="vector entries")
    scale = grid.draw_color_legend(language, low=-most, high=most, label="weighted values")
    legend.place(scale, max(legend.width + 30, first - 40), 0)
    drawing.place_below(legend)
    query = show_spaces(view.all_labels()[0][view.query_index])
    title = f"{view.title()} · {caption('query word', language)} “{query}”"
    return add_frame(drawing, title, view.notes("bars note"), language)


def _add_sum(drawing: Drawing, total: float, x: float, language: str) -> None:
    """Draw the line below the keys, the sum of the weights, and the name of the context."""
    y = drawing.height + 4
    drawing.add(Line(((0, y), (drawing.width, y)), FAINT, 1))
    drawing.add(Text(x, y + 18, f"Σ = {total:.4f}", 12, "end", True, ROLES["weight"]))
    label = caption("weighted sum", language)
    drawing.add(Text(drawing.width - 10, y + 40, label, 12, "end", color=FAINT))
    drawing.height += 49


TEMPERATURES = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)


def temperature_weights(view: HeadView, temperatures: tuple[float, ...]) -> np.ndarray:
    """Return the weights of the chosen query over the shown keys at each temperature."""
    site, head = view.site, view.head_index
    masked = site.masked(head if site.lead else None, rows=[view.query_index])
    found = [softmax_over_keys(masked.double(), t)[0] for t in temperatures]
    return to_numpy(torch.stack(found))[:, view.columns]


def draw_temperature(view: HeadView, temperatures: tuple[float, ...] = TEMPERATURES) -> Drawing:
    """Draw the weights of one query at several temperatures of its softmax, one row for each."""
    check_keys(view)
    language, keys = view.language, view.labels()[1]
    weights = temperature_weights(view, temperatures)
    column, height = max(14.0, min(46.0, 640 / len(keys))), 64
    left = 84
    above, lean = grid.label_space(keys, column)
    row = height + 18
    drawing = Drawing(left + column * len(keys) + max(16, lean), above + row * len(weights))
    grid.add_column_labels(drawing, keys, left, above, column)
    for i, (value, bars) in enumerate(zip(temperatures, weights.tolist(), strict=True)):
        base = above + row * i + height + 6
        drawing.add(Text(left - 12, base - height / 2 + 4, f"t = {value:g}", 13, "end", bold=True))
        drawing.add(Line(((left, base), (left + column * len(keys), base)), FAINT, 1))
        for j, weight in enumerate(bars):
            tall, x = height * weight, left + column * j
            tooltip = f"t = {value:g}, {keys[j]}: {weight:.4f}"
            drawing.add(Box(x + 2, base - tall, column - 4, tall, ROLES["weight"], tooltip=tooltip))
            if column >= 30 and weight >= 0.005:
                y = base - tall - 3
                drawing.add(Text(x + column / 2, y, f"{weight:.2f}", 10, "middle", color=FAINT))
    query = show_spaces(view.all_labels()[0][view.query_index])
    title = f"{caption('temperature figure', language)} · “{query}”"
    return add_frame(drawing, title, [view.title(), *view.notes("temperature note")], language)


def temperature_frames(view: HeadView) -> list[Drawing]:
    """Return the weights of one query while the temperature rises from 0 and falls again."""
    rising = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.85, 1.0, 1.3, 1.7, 2.2, 3.0, 4.0, 5.0]
    return [draw_temperature(view, (t,)) for t in [*rising, *reversed(rising[1:-1])]]


_MAX_REFERENCE = 16


def draw_reference(view: HeadView) -> Drawing:
    """Draw one word's weights in every head, the heads with most weight on another word first."""
    check_keys(view)
    language, site, query = view.language, view.site, view.query_index
    found = _head_rows(view)
    key = view.key_index
    if key is None:
        key = _referred(view, np.stack([row for _, _, row in found]))
    ranked = sorted(found, key=lambda one: -one[2][key])[:_MAX_REFERENCE]
    labels = [
        f"{sublayer_label(path, language)} · {caption('head', language)} {head}"
        for path, head, _ in ranked
    ]
    drawing = _reference_table(view, labels, ranked, key)
    words = [
        show_spaces(names[i]).strip("␣")
        for names, i in zip(view.all_labels(), (query, key), strict=True)
    ]
    title = caption("reference figure", language).format(query=words[0], key=words[1])
    note = caption("reference note", language).format(shown=len(ranked), count=len(found))
    stack = sublayer_label(site.path, language, stack=True).split(" · ")[0]
    return add_frame(drawing, title, [f"{stack}: {note}", *view.notes()], language)


def _reference_table(
    view: HeadView, labels: list[str], ranked: list[tuple[str, int, np.ndarray]], key: int
) -> Drawing:
    keys = view.labels()[1]
    cell = max(18.0, min(40.0, 640 / len(keys)))
    left, (above, lean) = max(text_width(x, 12) for x in labels) + 14, grid.label_space(keys, cell)
    bars = left + cell * len(keys) + 16
    drawing = Drawing(bars + 120 + max(lean - 60, 0), above + 26 * len(ranked) + 8)
    grid.add_column_labels(drawing, keys, left, above, cell)
    for i, (label, (path, head, row)) in enumerate(zip(labels, ranked, strict=True)):
        y = above + 26 * i
        drawing.add(Text(left - 8, y + 17, label, 12, "end"))
        for j, index in enumerate(view.columns):
            tooltip = f"{path}, {head}, {keys[j]}: {row[index]:.4f}"
            fill = shade(float(row[index]))
            drawing.add(Box(left + cell * j, y, cell, 26, fill, HAIRLINE, tooltip=tooltip))
            if cell >= 30:
                color = "#FFFFFF" if row[index] > 0.45 else INK
                x = left + cell * (j + 0.5)
                drawing.add(Text(x, y + 17, f"{row[index]:.2f}", 11, "middle", color=color))
        drawing.add(Text(bars, y + 17, f"{row[key]:.4f}", 12, bold=True, color=ROLES["weight"]))
    if key in view.columns:
        x = left + cell * view.columns.index(key)
        drawing.add(Box(x, above, cell, 26 * len(ranked), stroke=ROLES["negative"], stroke_width=2))
    return drawing


def _head_rows(view: HeadView) -> list[tuple[str, int, np.ndarray]]:
    """Return the chosen query's weights in every head of every site of the same kind."""
    trace, query = view.trace, view.query_index
    wanted = sides(trace, view.site.path), is_cross(view.site)
    rows = []
    for path, site in trace.sites.items():
        same = site.n_query == view.site.n_query and site.n_key == view.site.n_key
        if same and (sides(trace, path), is_cross(site)) == wanted:
            for head in range(site.n_heads):
                row = site.weights(head if site.lead else None, rows=[query])[0]
                rows.append((path, head, to_numpy(row)))
    return rows


def _referred(view: HeadView, rows: np.ndarray) -> int:
    """Return the word on which some head has most weight, except the query itself."""
    best = rows.max(axis=0)
    side = sides(view.trace, view.site.path)[1]
    words = view.trace.words.get(side, [])
    for j in range(len(best)):
        special = len(words) == len(best) and words[j] is None
        if special or (j == view.query_index and not is_cross(view.site)):
            best[j] = -1
    return int(best.argmax())
