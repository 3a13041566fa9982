"""Figures of an attention layer: stages of its scores, boxes of its matrices, split heads."""

from math import isclose

import numpy as np
import torch

from regard.analysis.steps import key_input_path
from regard.figures import grid
from regard.figures.captions import caption, text_width
from regard.figures.colors import FAINT, INK, ROLES, SERIES
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.head_view import HeadView, to_numpy
from regard.figures.matrix import MAX_CELLS, MatrixBox, add_arrow, add_cells, draw_matrix


def score_formula(view: HeadView) -> str:
    """Return how scores are computed from queries and keys."""
    site = view.site
    name = getattr(getattr(site.pattern, "similarity", None), "name", "")
    scale, d_k = float(getattr(site.pattern, "scale", 1.0)), site.key.size(-1)
    formulas = {"cosine": "cos(Q, K)", "general": "Q W Kᵀ"}
    formulas["additive"] = "v · tanh(W_q Q + W_k K)"
    if name in formulas:
        return formulas[name]
    if name not in ("dot", "scaled_dot", "biased_dot", "alibi"):
        return "a(Q, K)"
    if isclose(scale, d_k**-0.5):
        return f"Q Kᵀ / √{d_k}"
    return "Q Kᵀ" if scale == 1 else f"{scale:.4g} · Q Kᵀ"


def draw_stages(view: HeadView) -> Drawing:
    """Draw raw scores, scores after the mask, and weights as three grids side by side."""
    language = view.language
    parts = [
        ("stage scores", f"E = {score_formula(view)}", "scores", "signed"),
        ("stage masked", "M = mask(E)", "masked", "signed"),
        ("stage weights", "A = softmax(M)", "weights", "heat"),
    ]
    tables = [view.table(name) for *_, name, _ in parts]
    cell = max(11.0, min(34.0, 400 / max(tables[0].shape)))
    whole = Drawing(0, 0)
    for i, ((key, formula, _, style), table) in enumerate(zip(parts, tables, strict=True)):
        data = view.grid(table)
        if i:  # rows have their labels in the first grid
            data = grid.GridData(
                data.values, data.rows, data.columns, "", data.column_title, data.is_turned
            )
        picture = grid.draw_grid(data, style=style, cell=cell, row_labels=not i)
        x = whole.width + (44 if i else 0)
        whole.add(Text(x, 12, f"{i + 1}  {caption(key, language)}", 13, bold=True))
        whole.add(Text(x, 29, formula, 12, color=FAINT))
        lower = max(0.0, (whole.height - 42 - picture.height) / 2) if i else 0.0
        whole.place(picture, x, 42 + lower)  # rows are level: the first grid may have a long title
        needed = max(text_width(caption(key, language)) * 1.1 + 22, text_width(formula, 12))
        whole.width = x + max(picture.width, needed)
        whole.height = max(whole.height, 42 + picture.height)
        if i:
            y = 42 + lower + picture.height * 0.6
            add_arrow(whole, (x - 34, y), (x - 4, y), color=INK)
    legend = grid.draw_color_legend(language)
    most = grid.largest_finite(tables[0])
    scores = grid.draw_color_legend(language, low=-most, high=most, label="score")
    scores.place(legend, scores.width + 60, 0)
    scores.width += 60 + legend.width
    whole.place_below(scores)
    return add_frame(whole, view.title(), view.notes("stages note"), language)


def _inputs(view: HeadView) -> dict[str, np.ndarray]:
    """Return the inputs X of queries and X′ of keys, as far as the trace has them."""
    trace, path = view.trace, view.site.path
    asking, answering = f"{path}.input", key_input_path(trace, path)
    found = {}
    if asking in trace.values:
        found["X"] = _matrix(trace.values[asking])[view.rows]
        if answering != asking and answering in trace.values:
            found["X′"] = _matrix(trace.values[answering])[view.columns]
    return found


def _matrix(tensor: torch.Tensor) -> np.ndarray:
    return to_numpy(tensor[0] if tensor.dim() > 2 else tensor)


def draw_layer(view: HeadView) -> Drawing:
    """Draw one head as boxes X, Q, K, V, E, A and Y that hold its values, joined by arrows."""
    site, head, language = view.site, view.head_index, view.language
    query = to_numpy(site.vectors("query", head))[view.rows]
    key, value = (to_numpy(site.vectors(n, head))[view.columns] for n in ("key", "value"))
    context = to_numpy(site.context(head if site.lead else None))[view.rows]
    inputs = _inputs(view)
    second = "X′" if "X′" in inputs else "X"
    has_input = bool(inputs)
    boxes = {
        "Q": MatrixBox("Q", query, "X W_Q" if has_input else ""),
        "K": MatrixBox("K", key, f"{second} W_K" if has_input else ""),
        "V": MatrixBox("V", value, f"{second} W_V" if has_input else ""),
        "E": MatrixBox("E", view.table("masked"), score_formula(view)),
        "A": MatrixBox("A", view.weights(), "softmax(E)", is_weights=True),
        "Y": MatrixBox("Y", context, "A V"),
        **{name: MatrixBox(name, values) for name, values in inputs.items()},
    }
    colors = {"Q": ROLES["query"], "K": ROLES["key"], "V": ROLES["value"], "A": ROLES["weight"]}
    drawn = {name: draw_matrix(box, color=colors.get(name, INK)) for name, box in boxes.items()}
    drawing = _arrange(drawn, second)
    most = max(grid.largest_finite(x) for x in (query, key, value))
    drawing.place_below(grid.draw_color_legend(language), gap=16)
    shown = [caption("layer note", language), f"max |Q|, |K|, |V| = {most:.3g}"]
    return add_frame(drawing, view.title(), [" ".join(shown), *view.notes()], language)


def _arrange(drawn: dict[str, Drawing], second: str) -> Drawing:
    """Place the boxes in columns: inputs; Q, K, V; E; A; Y."""
    gap, row_gap = 56, 26
    columns = [["X", *(["X′"] if second == "X′" else [])], ["Q", "K", "V"], ["E"], ["A"], ["Y"]]
    columns = [[name for name in column if name in drawn] for column in columns]
    columns = [column for column in columns if column]
    heights = [
        sum(drawn[name].height for name in column) + row_gap * (len(column) - 1)
        for column in columns
    ]
    whole, x, places = Drawing(0, max(heights)), 0.0, {}
    for column, height in zip(columns, heights, strict=True):
        y = (whole.height - height) / 2
        if column == ["E"]:  # between Q and K
            y = max(0.0, places["Q"][1] + (places["K"][1] - places["Q"][1]) / 2 - 10)
            y = min(y, whole.height - drawn["E"].height)
        elif column == ["A"]:
            y = places["E"][1]
        elif column == ["Y"]:
            y = max(0.0, min(whole.height - drawn["Y"].height, places["V"][1] - 20))
        for name in column:
            places[name] = (x, y)
            whole.place(drawn[name], x, y)
            y += drawn[name].height + row_gap
        x += max(drawn[name].width for name in column) + gap
    whole.width = x - gap
    whole.height = max(whole.height, *(places[n][1] + drawn[n].height for n in places))
    _join(whole, drawn, places, second)
    return whole


def _join(
    whole: Drawing,
    drawn: dict[str, Drawing],
    places: dict[str, tuple[float, float]],
    second: str,
) -> None:
    arrows = [("X", "Q"), (second, "K"), (second, "V"), ("Q", "E"), ("K", "E"), ("E", "A")]
    for first, then in [*arrows, ("A", "Y"), ("V", "Y")]:
        if first not in places:
            continue
        (x0, y0), (x1, y1) = places[first], places[then]
        side = x0 + drawn[first].width + 4
        middle = 34 + (drawn[first].height - 34) / 2, 34 + (drawn[then].height - 34) / 2
        start, end = (side, y0 + middle[0]), (x1 - 5, y1 + middle[1])
        color = {"Q": ROLES["query"], "K": ROLES["key"], "V": ROLES["value"]}.get(first, FAINT)
        if abs(start[1] - end[1]) < 1:
            add_arrow(whole, start, end, color=color)
        else:
            lane = x1 - 26 if first != "V" else x1 - 30
            add_arrow(whole, start, (lane, start[1]), (lane, end[1]), end, color=color)


_MOST_HEADS = 16


def draw_split(view: HeadView) -> Drawing:
    """Draw how queries, keys and values are split into heads, and contexts joined again."""
    site, language = view.site, view.language
    shown = min(site.n_heads, _MOST_HEADS)
    context = to_numpy(site.context()).reshape(site.n_heads, site.n_query, -1)[:shown]
    weights = to_numpy(site.weights()).reshape(site.n_heads, site.n_query, -1)[:shown]
    width = max(44.0, min(130.0, 860 / shown)) - 12
    whole = Drawing(shown * (width + 12) - 12, 0)
    for name in ("query", "key", "value"):
        parts = np.stack([to_numpy(site.vectors(name, head)) for head in range(shown)])
        shape = f"{parts.shape[1]} × {site.n_heads} · {parts.shape[2]}"
        symbol = {"query": "Q", "key": "K", "value": "V"}[name]
        _add_joined(whole, symbol, f"{symbol}   {shape}", parts)
        whole.height += 10
    _add_fan(whole, shown, width, caption("split", language))
    for head in range(shown):
        x, color = head * (width + 12) + width / 2, SERIES[head % len(SERIES)]
        label = f"{caption('head', language)} {head}" if width > 46 else str(head)
        whole.add(Text(x, whole.height + 12, label, 11, "middle", True, color))
    whole.height += 18
    for symbol, parts, note in (("A", weights, "softmax"), ("Y", context, "A V")):
        height = width if symbol == "A" else min(width, _band_height(parts.shape[1]))
        _add_bands(whole, symbol, parts, (0, whole.height, whole.width, height), gap=12)
        whole.add(Text(whole.width + 8, whole.height + height / 2 + 4, f"{symbol}  {note}", 11))
        whole.height += height + 12
    _add_fan(whole, shown, width, caption("concat", language), closing=True)
    shape = f"{context.shape[1]} × {site.n_heads * context.shape[2]}"
    _add_joined(whole, "concat", f"concat(Y)   {shape}", context)
    _add_output(whole, view)
    whole.width += 84
    notes = view.notes("split note")
    if shown < site.n_heads:
        notes.append(caption("some heads", language).format(shown=shown, count=site.n_heads))
    return add_frame(whole, view.site_title(), notes, language)


def _add_joined(drawing: Drawing, name: str, heading: str, parts: np.ndarray) -> None:
    """Draw the matrix of all heads below the drawing, with the heads' parts next to each other."""
    y, height = drawing.height + 20, _band_height(parts.shape[1])
    drawing.add(Text(0, y - 6, heading, 12, bold=True))
    _add_bands(drawing, name, parts, (0, y, drawing.width, height), gap=0)
    drawing.height = y + height


def _add_output(drawing: Drawing, view: HeadView) -> None:
    output = view.trace.values.get(f"{view.site.path}.output")
    if output is None:
        return
    matrix, middle = MatrixBox("O", _matrix(output), "concat(Y) W_O"), drawing.width / 2
    add_arrow(drawing, (middle, drawing.height + 4), (middle, drawing.height + 24))
    y, (n_rows, n_columns) = drawing.height + 42, matrix.values.shape
    height = _band_height(n_rows)
    drawing.add(Text(0, y - 6, f"{matrix.heading}   {matrix.shape}", 12, bold=True))
    add_cells(drawing, matrix, (0, y, drawing.width / n_columns, height / n_rows))
    drawing.add(Box(0, y, drawing.width, height, stroke=FAINT))
    drawing.height = y + height + 6


def _band_height(n_rows: int) -> float:
    return max(28.0, min(64.0, 8.0 * n_rows))


def _add_bands(
    drawing: Drawing,
    name: str,
    parts: np.ndarray,
    box: tuple[float, float, float, float],
    *,
    gap: float,
) -> None:
    """Draw one matrix for each head side by side, framed in the head's color."""
    x, y, total, height = box
    n_heads, n_rows, n_columns = parts.shape
    width = (total - gap * (n_heads - 1)) / n_heads
    largest, as_pixels = grid.largest_finite(parts), parts.size > MAX_CELLS
    for head, values in enumerate(parts):
        left = x + head * (width + gap)
        matrix = MatrixBox(f"{name}{head}", values, is_weights=name == "A", largest=largest)
        cell = left, y, width / n_columns, height / n_rows
        add_cells(drawing, matrix, cell, as_pixels=as_pixels)
        color = SERIES[head % len(SERIES)]
        drawing.add(Box(left, y, width, height, stroke=color, stroke_width=1.5))


def _add_fan(
    drawing: Drawing, n_heads: int, width: float, label: str, *, closing: bool = False
) -> None:
    """Draw short arrows that lead from one matrix to the heads, or back."""
    top = drawing.height
    for head in range(n_heads):
        apart = head * (width + 12) + width / 2
        together = (head + 0.5) * drawing.width / n_heads
        start, end = (apart, together) if closing else (together, apart)
        color = SERIES[head % len(SERIES)]
        drawing.add(Line(((start, top), (end, top + 26)), color, 1.2, arrow=True))
    drawing.add(Text(drawing.width + 8, top + 18, label, 12, bold=True))
    drawing.height += 34
