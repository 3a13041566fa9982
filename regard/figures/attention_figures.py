"""Figures of whole heads and of what they add: patterns, alignments, lenses, attributions."""

import numpy as np

from regard.analysis.attribution import Attribution, attribution
from regard.analysis.heads import thumbnails
from regard.analysis.lens import Lens, lens
from regard.analysis.parts import AttributionPart
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, sublayer_label, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, shade, shade_array
from regard.figures.drawing import Box, Drawing, Image, Line, Text, add_frame
from regard.figures.grid import draw_color_legend
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
    pictures = head_pictures(view)
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


def head_pictures(view: HeadView) -> np.ndarray:
    """Return the weights of all heads of a site, each as a picture."""
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
        # rows are level: a long title of the rows makes the first two grids taller
        lower = max(0.0, (row.height - 22 - picture.height) / 2) if style == "signed" else 0.0
        row.place(picture, x, 22 + lower)
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


_MAX_POSITIONS, _MAX_BARS = 16, 24
_ROW, _CELL, _FONT = 34, 84, 12
_BAR, _BARS_WIDTH = 20, 360


def draw_lens(view: HeadView) -> Drawing:
    """Draw the most probable token at each station and position, shaded by its probability."""
    if view.query is not None and view.query < 0:
        raise InputError(f"query is {view.query}; it must be 0 or larger.")
    first = view.query or 0
    found = lens(view.trace, count=1, rows=slice(first, first + _MAX_POSITIONS))
    table = _lens_table(found, view.language)
    table.place_below(draw_color_legend(view.language, label="probability"), gap=14)
    title = caption(f"lens {found.entries}", view.language)
    notes, last = [caption(f"lens norm {found.norm}", view.language)], first + len(found.positions)
    count = len(view.trace.tokens.get("target", view.trace.tokens.get("source", ())))
    if 1 < len(found.positions) < count:
        part = caption("lens part", view.language)
        notes.append(part.format(first=first, last=last - 1, count=count))
    return add_frame(table, title, notes, view.language)


def _lens_table(found: Lens, language: str) -> Drawing:
    rows = [station_label(path, language) for path in found.stations]
    left = max(text_width(row, _FONT) for row in rows) + 14
    n = len(found.positions)
    drawing = Drawing(left + _CELL * n + 10, 30 + _ROW * (len(rows) + 1))
    for j, token in enumerate(found.positions):
        label = truncate(show_spaces(token), _CELL - 8, _FONT)
        drawing.add(Text(left + _CELL * (j + 0.5), 18, label, _FONT, "middle", color=FAINT))
    for i, row in enumerate(rows):
        y = 28 + _ROW * i
        drawing.add(Text(left - 8, y + _ROW / 2 + 4, row, _FONT, "end"))
        for j in range(n):
            _add_cell(drawing, found, (i, j), left + _CELL * j, y)
    y = 28 + _ROW * len(rows) + 18
    drawing.add(Text(left - 8, y, caption("answer", language), _FONT, "end", bold=True))
    for j, id in enumerate(found.answers.tolist()):
        name = truncate(_shown(found.names[id]), _CELL - 8, _FONT)
        drawing.add(Text(left + _CELL * (j + 0.5), y, name, _FONT, "middle", bold=True))
    return drawing


def _add_cell(drawing: Drawing, found: Lens, at: tuple[int, int], x: float, y: float) -> None:
    i, j = at
    id, value = int(found.ids[i, j, 0]), float(found.probabilities[i, j, 0])
    name = _shown(found.names[id])
    tooltip = f"{found.stations[i]}, {found.positions[j]} → {name}: {value:.4f}"
    drawing.add(Box(x, y, _CELL, _ROW, shade(value), HAIRLINE, tooltip=tooltip))
    color = "#FFFFFF" if value > 0.45 else INK
    middle = x + _CELL / 2
    drawing.add(
        Text(middle, y + 15, truncate(name, _CELL - 8, _FONT), _FONT, "middle", color=color)
    )
    drawing.add(Text(middle, y + 28, f"{value:.2f}", 10, "middle", color=color))


def _shown(name: str) -> str:
    """Return a token with visible spaces; SentencePiece writes them as ▁."""
    return show_spaces(name.replace("▁", " "))


def station_label(path: str, language: str) -> str:
    """Return the name of a sub-layer, or of the embedding."""
    label = sublayer_label(path, language)
    if label != path:
        return label
    return caption("embedding" if ".embedding." in path else "final norm", language)


def draw_attribution(view: HeadView) -> Drawing:
    """Draw what each part of the model adds to the logit of the answer, as signed bars.

    The parts that are too small for a bar of their own are summed in one.
    """
    found, language = attribution(view.trace, position=view.query), view.language
    rows = _bars(found, language)
    left = max(text_width(label, _FONT) for label, _ in rows) + 14
    lowest, highest = (f(0.0, *(value for _, value in rows)) for f in (min, max))
    scale = _BARS_WIDTH / ((highest - lowest) or 1.0)
    zero = left + 60 - lowest * scale
    drawing = Drawing(left + _BARS_WIDTH + 120, _BAR * len(rows) + 34)
    for i, (label, value) in enumerate(rows):
        width, y = abs(value) * scale, 4 + _BAR * i
        color = ROLES["negative" if value < 0 else "positive"]
        start, sign = (zero - width, "−") if value < 0 else (zero, "+")
        drawing.add(Text(left - 8, y + 14, label, _FONT, "end"))
        tooltip = f"{label}: {value:.4f}"
        drawing.add(Box(start, y + 3, width, _BAR - 6, color, tooltip=tooltip))
        x, anchor = (start - 5, "end") if value < 0 else (zero + width + 5, "start")
        drawing.add(Text(x, y + 14, f"{sign}{abs(value):.3f}", 11, anchor, color=FAINT))
    bottom = 4 + _BAR * len(rows)
    drawing.add(Line(((zero, 0), (zero, bottom + 2)), FAINT, 1))
    total = f"{caption('logit', language)} = {found.logit:.3f}".replace("-", "−")
    drawing.add(Text(zero, bottom + 20, total, _FONT, "middle", bold=True))
    title = caption("attribution", language).format(token=_shown(found.name))
    return add_frame(drawing, title, [caption("attribution note", language)], language)


def _bars(found: Attribution, language: str) -> list[tuple[str, float]]:
    """Return labels and values: the largest parts, the sum of the others, and the bias."""
    ranked = found.ranked()
    rows = [(part_label(part, language), part.value) for part in ranked[:_MAX_BARS]]
    if rest := ranked[_MAX_BARS:]:
        label = caption("smaller parts", language).format(count=len(rest))
        rows.append((label, sum(part.value for part in rest)))
    if found.bias:
        rows.append((caption("output bias", language), found.bias))
    return rows


def part_label(part: AttributionPart, language: str) -> str:
    """Return the name of a part."""
    if part.kind == "embedding":
        name = part.path.rpartition(".")[2]
        return caption(f"embedding {name}", language)
    if part.kind == "readout":
        return caption("readout bias", language)
    label = station_label(part.path, language)
    if part.kind == "head":
        return f"{label} · {caption('head', language)} {part.head}"
    if part.kind in ("bias", "norm", "edit"):
        return f"{label} · {caption(f'part {part.kind}', language)}"
    return label
