"""Figures of attention: patterns, heads, alignments, the steps of a query, masks, positions."""

from functools import partial
from math import exp, inf, isclose

import numpy as np

from regard.analysis.heads import thumbnails
from regard.analysis.steps import head_temperature
from regard.attention.mask import Mask, causal, padding, window
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, ROLES, shade, shade_array, shade_signed
from regard.figures.drawing import Box, Drawing, Image, Line, Text, add_frame
from regard.figures.head_view import HeadView, to_numpy
from regard.layers.position import sinusoid


def draw_pattern(view: HeadView) -> Drawing:
    """Draw the weights of a head, with a row for each query and a column for each key."""
    language, weights = view.language, view.weights()
    drawing = grid.draw_grid(
        grid.GridData(weights, *view.labels(), *view.axis_titles()), style=view.style
    )
    colored = view.style == "heat" or max(weights.shape) > grid.MAX_LABELED
    circles = grid.draw_circle_legend(grid.cell_size(weights), language)
    drawing.place_below(grid.draw_color_legend(language) if colored else circles, left=34)
    return add_frame(drawing, view.title(), [caption("weights", language)], language)


def draw_lines(view: HeadView) -> Drawing:
    """Draw queries on the left, keys on the right, and lines as strong as the weights."""
    weights, sides = view.weights(), view.labels()
    step, widest = 24, 180
    labels = [[truncate(show_spaces(name), widest) for name in side] for side in sides]
    left, right = (max(map(text_width, side), default=0) for side in labels)
    ends = left + 10, left + 250
    drawing = Drawing(max(ends[1] + 10 + right, 420), 30 + step * max(map(len, sides)))
    for i, j in sorted(np.ndindex(weights.shape), key=lambda cell: weights[cell]):
        value = float(weights[i, j])
        if value >= 0.005:
            points = tuple((x, 26 + step * (n + 0.5)) for x, n in zip(ends, (i, j), strict=True))
            tooltip = f"{sides[0][i]} → {sides[1][j]}: {value:.4f}"
            width, opacity = 0.5 + 5 * value, min(1, 0.12 + value)
            drawing.add(Line(points, ROLES["weight"], width, opacity, tooltip=tooltip))
    for x, title, role in zip((0, ends[1]), view.axis_titles(), ("query", "key"), strict=True):
        drawing.add(Text(x, 12, title, 12, bold=True, color=ROLES[role]))
    for x, anchor, names in ((left, "end", labels[0]), (ends[1] + 10, "start", labels[1])):
        for i, name in enumerate(names):
            drawing.add(Text(x, 30 + step * (i + 0.5), name, anchor=anchor))
    return add_frame(
        drawing, view.title(), [caption("thicker lines", view.language)], view.language
    )


def draw_heads(view: HeadView) -> Drawing:
    """Draw a small picture of every head of a site."""
    language, site = view.language, view.site
    columns, gap = min(site.n_heads, 4), 26
    pictures = thumbnails(site).clamp(0, 1).cpu().numpy()
    scale = 170 / max(pictures.shape[1:])
    height, width = (n * scale for n in pictures.shape[1:])
    row = height + gap + 14
    drawing = Drawing(columns * (width + gap), -(-site.n_heads // columns) * row)
    for head, pixels in enumerate(pictures):
        x, y = head % columns * (width + gap), head // columns * row
        drawing.add(Text(x, y + 13, f"{caption('head', language)} {head}", 12, bold=True))
        drawing.add(Image(x, y + 20, width, height, shade_array(pixels)))
        drawing.add(Box(x, y + 20, width, height, stroke=HAIRLINE))
    drawing.place_below(grid.draw_color_legend(language))
    queries, keys = view.axis_titles()
    note = f"{queries} ↓   {keys} →   {site.n_query} × {site.n_key}"
    return add_frame(drawing, site.path, [note], language)


def draw_alignment(view: HeadView) -> Drawing:
    """Draw the weights between target and source words, as in Bahdanau et al."""
    language = view.language
    titles = caption("target words", language), caption("source words", language)
    drawing = grid.draw_grid(grid.GridData(*view.word_weights(), *titles), style="heat")
    drawing.place_below(grid.draw_color_legend(language), left=34)
    title = f"{view.title()} · {caption('alignment', language)}"
    return add_frame(drawing, title, [caption("alignment weights", language)], language)


_ROW, _STRIP, _COLUMN = 30, 150, 92


def draw_steps(view: HeadView) -> Drawing:
    """Draw one query's steps from comparison to weighted sum, with a row for each key."""
    site, language, names = view.site, view.language, view.labels()
    if site.n_key > grid.MAX_LABELED:
        raise InputError(
            f"{site.path} has {site.n_key} keys, but this figure can show at most "
            f"{grid.MAX_LABELED}: give a shorter text."
        )
    row, head, columns = view.query_index, view.head_index, _step_columns(view)
    query, keys, values = (to_numpy(site.vectors(n, head)) for n in ("query", "key", "value"))
    context = to_numpy(site.context(head if site.lead else None, rows=[row])[0])
    largest = max(float(np.abs(part).max()) for part in (query[row], keys, values))
    first, top = 110, 66
    numbers_x = first + _STRIP + 18
    values_x = numbers_x + _COLUMN * len(columns) + 14
    drawing = Drawing(values_x + _STRIP + 10, 84 + _ROW * (site.n_key + 1))
    add_strip = partial(_add_strip, drawing, largest)
    label = f"q  {truncate(show_spaces(names[0][row]), 100)}"
    drawing.add(Text(first - 10, 28, label, 13, "end", True, ROLES["query"]))
    add_strip(query[row], first, 14)
    for x, name, role in ((first, "keys", "key"), (values_x, "values", "value")):
        heading = f"{role[0]}  {caption(name, language)}"
        drawing.add(Text(x, top - 8, heading, 12, "start", True, ROLES[role]))
    for i, name in enumerate(names[1]):
        y = top + _ROW * i
        drawing.add(Line(((0, y), (drawing.width, y)), HAIRLINE, 0.5))
        drawing.add(Text(first - 10, y + 19, truncate(show_spaces(name), 98), 13, "end"))
        add_strip(keys[i], first, y + 6)
        add_strip(values[i], values_x, y + 6)
    _add_step_columns(drawing, columns, numbers_x, top)
    y = top + _ROW * site.n_key
    drawing.add(Text(numbers_x, y + 20, caption("weighted sum", language), 12, color=FAINT))
    add_strip(context, values_x, y + 6)
    legend = grid.draw_color_legend(language, low=-largest, high=largest, label="vector entries")
    drawing.place_below(legend)
    return add_frame(drawing, view.title(), [caption("query steps", language)], language)


def _add_strip(drawing: Drawing, largest: float, vector: np.ndarray, x: float, y: float) -> None:
    drawing.add(Image(x, y, _STRIP, 18, shade_signed(vector[None], largest)))
    drawing.add(Box(x, y, _STRIP, 18, stroke=HAIRLINE))


def _add_step_columns(
    drawing: Drawing, columns: dict[str, list[float]], left: float, top: float
) -> None:
    for j, (heading, numbers) in enumerate(columns.items()):
        end, last = left + _COLUMN * (j + 1) - 12, j == len(columns) - 1
        drawing.add(Text(end, top - 8, heading, 12, "end", color=FAINT))
        for i, number in enumerate(numbers):
            y = top + _ROW * i
            if last:
                drawing.add(Box(end - _COLUMN + 22, y + 5, _COLUMN - 16, 20, shade(0.5 * number)))
            text = f"{number:.4f}".replace("inf", "∞").replace("-", "−")
            drawing.add(Text(end, y + 20, text, 13, "end", bold=last))
    weights, y = columns["÷ Σ"], top + _ROW * len(columns["÷ Σ"])
    end = left + _COLUMN * len(columns) - 12
    drawing.add(Line(((left, y), (drawing.width, y)), FAINT, 1))
    drawing.add(Text(end, y + 20, f"Σ = {sum(weights):.4f}", 13, "end", True, ROLES["weight"]))


def _step_columns(view: HeadView) -> dict[str, list[float]]:
    """Return the numbers of each step that changes something, by formula."""
    site, head = view.site, view.head_index
    compared, scores, masked, weights = (
        getattr(site, name)(head if site.lead else None, rows=[view.query_index])[0].tolist()
        for name in ("compared", "scores", "masked", "weights")
    )
    scale = float(getattr(site.pattern, "scale", 1.0))
    similarity = getattr(getattr(site.pattern, "similarity", None), "name", "")
    columns = {
        "q · k" if similarity in ("dot", "scaled_dot", "biased_dot") else "a(q, k)": compared
    }
    if scale != 1.0:
        d_k = site.key.shape[-1]
        columns[f"÷ √{d_k}" if isclose(scale, d_k**-0.5) else f"× {scale:.4g}"] = scores
    if masked != scores:
        columns["+ mask"] = masked
    peak, temperature = max(masked), head_temperature(site, head)
    if peak == -inf or temperature == 0:
        columns["exp(s − max)"] = [float(x == peak != -inf) for x in masked]
    else:
        columns["exp(s − max)"] = [exp((x - peak) / temperature) for x in masked]
    return {**columns, "÷ Σ": weights}


_CELL = 22


def draw_masks(*, length: int = 8, language: str = "en") -> Drawing:
    """Draw a causal mask, a padding mask, a window, and causal with padding."""
    short, radius = max(1, length * 5 // 8), max(1, length // 4)
    masks: list[tuple[str, str, Mask]] = [
        ("causal mask", "causal()", causal()),
        ("padding mask", f"padding([{short}])", padding([short])),
        ("window mask", f"window({radius})", window(radius)),
        ("causal and padding", f"causal() & padding([{short}])", causal() & padding([short])),
    ]
    width, height = _CELL * length + 70, _CELL * length + 84
    drawing = Drawing(2 * width, 2 * height)
    for i, (name, code, mask) in enumerate(masks):
        x, y = i % 2 * width, i // 2 * height
        drawing.add(Text(x, y + 12, caption(name, language), 13, bold=True))
        drawing.add(Text(x, y + 28, code, 12, color=FAINT))
        drawing.place(_draw_mask(mask.tensor(length, lead=(1,))[0].numpy(), language), x, y + 34)
    return add_frame(
        drawing, caption("masks", language), [caption("masks legend", language)], language
    )


def _draw_mask(allowed: np.ndarray, language: str) -> Drawing:
    left, top, side = 24, 20, _CELL * len(allowed)
    drawing = Drawing(left + side, top + side)
    drawing.add(Text(left, 14, caption("keys", language), 11, color=ROLES["key"], bold=True))
    queries = caption("queries", language)
    drawing.add(Text(14, top + side / 2, queries, 11, "middle", True, ROLES["query"], 90))
    for (i, j), sees in np.ndenumerate(allowed):
        x, y = left + _CELL * j, top + _CELL * i
        fill = ROLES["weight"] if sees else "#F2F2F2"
        tooltip = f"{i} → {j}: {caption('allowed' if sees else 'not allowed', language)}"
        drawing.add(Box(x, y, _CELL, _CELL, fill, "#FFFFFF", tooltip=tooltip))
        if not sees:
            drawing.add(Line(((x + 5, y + _CELL - 5), (x + _CELL - 5, y + 5)), ROLES["masked"]))
    drawing.add(Box(left, top, side, side, stroke=HAIRLINE))
    return drawing


def draw_positions(*, length: int = 64, d_model: int = 128, language: str = "en") -> Drawing:
    """Draw sinusoidal positions, with a row for each position."""
    table = sinusoid(length, d_model).numpy()
    drawing = grid.draw_pixels(shade_signed(table, 1.0), width=640, height=400)
    middle = grid.PIXELS_TOP + 200
    drawing.add(Text(grid.PIXELS_LEFT, 20, caption("dimension", language), 12, bold=True))
    drawing.add(Text(14, middle, caption("position", language), 12, "middle", True, rotation=90))
    legend = grid.draw_color_legend(language, low=-1, label="vector entries")
    drawing.place_below(legend, left=grid.PIXELS_LEFT, gap=0)
    formula = f"PE(pos, 2i) = sin(pos / 10000^(2i / {d_model})),  PE(pos, 2i+1) = cos(…)"
    return add_frame(drawing, caption("positions", language), [formula], language)
