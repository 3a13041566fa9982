"""Figures of whole heads: patterns, lines, all heads of a site, alignments, comparisons."""

import numpy as np

from regard.analysis.heads import thumbnails
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, text_width, truncate
from regard.figures.colors import HAIRLINE, ROLES, shade_array
from regard.figures.drawing import Box, Drawing, Image, Line, Text, add_frame
from regard.figures.head_view import HeadView


def draw_pattern(view: HeadView) -> Drawing:
    """Draw the weights of a head, with a row for each query and a column for each key."""
    language, weights = view.language, view.weights()
    drawing = grid.draw_grid(view.grid(weights), style=view.style)
    many = max(weights.shape) > grid.MAX_LABELED
    notes = view.notes("weights", *(["too many for circles"] if many else []))
    circles = grid.draw_circle_legend(grid.cell_size(weights), language)
    colored = view.style == "heat" or many
    drawing.place_below(grid.draw_color_legend(language) if colored else circles, left=34)
    return add_frame(drawing, view.title(), notes, language)


def draw_lines(view: HeadView) -> Drawing:
    """Draw queries on the left, keys on the right, and lines as strong as the weights."""
    weights, sides, titles = view.weights(), view.labels(), view.axis_titles()
    step, widest = 24, 180
    labels = [[truncate(show_spaces(name), widest) for name in side] for side in sides]
    left, right = (
        max(max(map(text_width, side), default=0), text_width(title, 12) * 1.08)
        for side, title in zip(labels, titles, strict=True)
    )
    ends = left + 10, left + 250
    drawing = Drawing(ends[1] + 10 + right, 30 + step * max(map(len, sides)))
    for i, j in sorted(np.ndindex(weights.shape), key=lambda cell: weights[cell]):
        value = float(weights[i, j])
        if value >= 0.005:
            points = tuple((x, 26 + step * (n + 0.5)) for x, n in zip(ends, (i, j), strict=True))
            tooltip = f"{sides[0][i]} → {sides[1][j]}: {value:.4f}"
            width, opacity = 0.5 + 5 * value, min(1, 0.12 + value)
            drawing.add(Line(points, ROLES["weight"], width, opacity, tooltip=tooltip))
    ranges = ((left, "end", "query"), (ends[1] + 10, "start", "key"))
    for (x, anchor, role), title, names in zip(ranges, titles, labels, strict=True):
        drawing.add(Text(x, 12, title, 12, anchor, True, ROLES[role]))
        for i, name in enumerate(names):
            drawing.add(Text(x, 30 + step * (i + 0.5), name, anchor=anchor))
    return add_frame(drawing, view.title(), view.notes("thicker lines"), view.language)


_PICTURE, _MIN_ROW = 170, 8  # side of a head's picture; rows that are lower have no labels


def draw_heads(view: HeadView) -> Drawing:
    """Draw a small picture of every head of a site, with tokens where they are legible."""
    language, site = view.language, view.site
    columns, gap = min(site.n_heads, 4), 18
    pictures = _head_pictures(view)
    n_rows, n_columns = pictures.shape[1:]
    cell = _PICTURE / max(n_rows, n_columns)
    height, width = n_rows * cell, n_columns * cell
    queries, keys = view.labels()
    labeled = cell >= _MIN_ROW and (n_rows, n_columns) == (len(queries), len(keys))
    left = grid.widest_label(queries, grid.label_size(cell)) + 14 if labeled else 0
    above, lean = grid.label_space(keys, cell) if labeled else (8, 0)
    row, column = height + above + gap + 20, left + width + max(gap, lean)
    drawing = Drawing(columns * column, -(-site.n_heads // columns) * row)
    for head, pixels in enumerate(pictures):
        x, y = head % columns * column + left, head // columns * row + above + 14
        drawing.add(Text(x, y - above - 2, f"{caption('head', language)} {head}", 12, bold=True))
        drawing.add(Image(x, y, width, height, shade_array(pixels)))
        drawing.add(Box(x, y, width, height, stroke=HAIRLINE))
        if labeled:
            grid.add_row_labels(drawing, queries, x, y, cell)
            grid.add_column_labels(drawing, keys, x, y, cell)
    drawing.place_below(grid.draw_color_legend(language))
    asking, answering = view.axis_titles()
    note = f"{asking} ↓   {answering} →   {len(queries)} × {len(keys)}"
    return add_frame(drawing, view.site_title(), [note, *view.notes()], language)


def _head_pictures(view: HeadView) -> np.ndarray:
    site = view.site
    if max(site.n_query, site.n_key) <= 64:
        weights = site.weights(rows=view.rows, columns=view.columns).float()
        return weights.reshape(site.n_heads, len(view.rows), -1).clamp(0, 1).cpu().numpy()
    return thumbnails(site).clamp(0, 1).cpu().numpy()


def draw_alignment(view: HeadView) -> Drawing:
    """Draw the weights between target and source words, as in Bahdanau et al."""
    language = view.language
    titles = caption("target words", language), caption("source words", language)
    data = view.turn(grid.GridData(*view.word_weights(), *titles))
    drawing = grid.draw_grid(data, style="heat")
    drawing.place_below(grid.draw_color_legend(language), left=34)
    title = f"{view.title()} · {caption('alignment', language)}"
    return add_frame(drawing, title, [caption("alignment weights", language)], language)


def draw_compare(view: HeadView) -> Drawing:
    """Draw two heads of two runs, models or sites, and their difference if they fit."""
    other, language = view.other, view.language
    if other is None:
        raise InputError(
            "compare needs something to compare with: give another head, site, text or model."
        )
    first, second = (one.grid(one.weights()) for one in (view, other))
    parts = [(view.title(), first, "heat"), (other.title(), second, "heat")]
    if first.values.shape == second.values.shape:
        apart = grid.GridData(
            second.values - first.values,
            first.rows,
            first.columns,
            column_title=first.column_title,
            is_turned=first.is_turned,
        )
        parts.append((caption("second minus first", language), apart, "signed"))
    cell = min(34.0, *(max(11.0, 420 / max(data.values.shape)) for _, data, _ in parts))
    row = Drawing(0, 0)
    for i, (title, data, style) in enumerate(parts):
        labels = i == 0 or list(data.rows) != list(first.rows)
        picture = grid.draw_grid(data, style=style, cell=cell, row_labels=labels)
        x = row.width + (30 if row.width else 0)
        row.add(Text(x, 12, f"{'ABΔ'[i]}   {title}", 12, bold=True))
        row.place(picture, x, 22)
        row.width = x + max(picture.width, text_width(title, 12) * 1.05 + 30)
        row.height = max(row.height, 22 + picture.height)
    legend = grid.draw_color_legend(language)
    if len(parts) > 2:
        most = max(grid.largest_finite(parts[2][1].values), 1e-4)
        scale = grid.draw_color_legend(language, low=-most, high=most, label="second minus first")
        legend.place(scale, 360, 0)
        legend.width = 360 + scale.width
    row.place_below(legend, gap=10)
    return add_frame(row, caption("compare", language), view.notes(), language)
