"""Figures that follow one query step by step: scaled dot products, and additive attention."""

from functools import partial
from math import exp, inf, isclose

import numpy as np
import torch

from regard.analysis.steps import head_temperature
from regard.attention.similarity import Additive
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, signed, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, ROLES, shade
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.head_view import HeadView, check_keys, to_numpy
from regard.figures.matrix import MatrixBox, add_cells, add_vector

_ROW, _STRIP, _COLUMN = 30, 150, 92


def draw_steps(view: HeadView) -> Drawing:
    """Draw one query's steps from comparison to weighted sum, with a row for each key."""
    site, language, names = view.site, view.language, view.labels()[1]
    check_keys(view)
    row, head, columns = view.query_index, view.head_index, _step_columns(view)
    query = to_numpy(site.vectors("query", head))
    keys, values = (to_numpy(site.vectors(n, head))[view.columns] for n in ("key", "value"))
    context = to_numpy(site.context(head if site.lead else None, rows=[row])[0])
    largest = max(float(np.abs(part).max()) for part in (query[row], keys, values))
    first, top = 110, 66
    numbers_x = first + _STRIP + 18
    values_x = numbers_x + _COLUMN * len(columns) + 14
    drawing = Drawing(values_x + _STRIP + 10, 84 + _ROW * (len(keys) + 1))
    add_strip = partial(add_vector, drawing, largest)
    asking = show_spaces(view.all_labels()[0][row])
    label = f"q  {truncate(asking, 100)}"
    drawing.add(Text(first - 10, 28, label, 13, "end", True, ROLES["query"]))
    add_strip(query[row], first, 14)
    for x, name, role in ((first, "keys", "key"), (values_x, "values", "value")):
        heading = f"{role[0]}  {caption(name, language)}"
        drawing.add(Text(x, top - 8, heading, 12, "start", True, ROLES[role]))
    for i, name in enumerate(names):
        y = top + _ROW * i
        drawing.add(Line(((0, y), (drawing.width, y)), HAIRLINE, 0.5))
        drawing.add(Text(first - 10, y + 19, truncate(show_spaces(name), 98), 13, "end"))
        add_strip(keys[i], first, y + 6)
        add_strip(values[i], values_x, y + 6)
    _add_step_columns(drawing, columns, numbers_x, top)
    y = top + _ROW * len(keys)
    drawing.add(Text(numbers_x, y + 20, caption("weighted sum", language), 12, color=FAINT))
    add_strip(context, values_x, y + 6)
    legend = grid.draw_color_legend(language, low=-largest, high=largest, label="vector entries")
    drawing.place_below(legend)
    return add_frame(drawing, view.title(), view.notes("query steps"), language)


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
            drawing.add(Text(end, y + 20, signed(number), 13, "end", bold=last))
    weights, y = columns["÷ Σ"], top + _ROW * len(columns["÷ Σ"])
    end = left + _COLUMN * len(columns) - 12
    drawing.add(Line(((left, y), (drawing.width, y)), FAINT, 1))
    drawing.add(Text(end, y + 20, f"Σ = {sum(weights):.4f}", 13, "end", True, ROLES["weight"]))


def _step_columns(view: HeadView) -> dict[str, list[float]]:
    """Return the numbers of each step that changes something, by formula."""
    site, head = view.site, view.head_index
    compared, scores, masked, weights = (
        view.row(name).tolist() for name in ("compared", "scores", "masked", "weights")
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
    every = site.masked(head if site.lead else None, rows=[view.query_index])
    peak, temperature = float(every.max()), head_temperature(site, head)
    if peak == -inf or temperature == 0:
        columns["exp(s − max)"] = [float(x == peak != -inf) for x in masked]
    else:
        columns["exp(s − max)"] = [exp((x - peak) / temperature) for x in masked]
    return {**columns, "÷ Σ": weights}


def draw_additive(view: HeadView) -> Drawing:
    """Draw the six steps of Bahdanau's additive attention for one decoder step, with numbers."""
    site, language, row = view.site, view.language, view.query_index
    similarity = getattr(site.pattern, "similarity", None)
    if not isinstance(similarity, Additive):
        raise InputError(
            f"{site.path} does not use additive attention: choose a model that does, such as dates."
        )
    keys = view.labels()[1]
    scores, weights = view.row("masked"), view.row("weights")
    value = to_numpy(site.vectors("value", 0))[view.columns]
    state = to_numpy(site.vectors("query", 0))[row]
    context = (weights[:, None] * value).sum(0) if not view.hide_special else None
    if context is None:
        context = to_numpy(site.context(0 if site.lead else None, rows=[row])[0])
    with torch.no_grad():
        hidden = similarity.to_key(site.vectors("key", 0)) + similarity.to_query(
            site.vectors("query", 0)[row]
        )
        inner = to_numpy(torch.tanh(hidden))[view.columns]
    columns = [
        ("1  h", value, None),
        ("tanh(W_q s + W_k h)", inner, None),
        ("2  e = v · tanh(…)", None, scores),
        ("3  exp(e − max)", None, np.exp(scores - scores.max())),
        ("4  α = softmax(e)", None, weights),
        ("5  α · h", weights[:, None] * value, None),
    ]
    drawing = _additive_table(view, keys, state, columns)
    _add_context(drawing, view, context, state)
    written = show_spaces(view.all_labels()[0][row])
    title = caption("additive figure", language).format(token=written)
    return add_frame(drawing, title, view.notes("additive note"), language)


_WIDTH, _NUMBER, _LINE = 110, 118, 26


def _additive_table(
    view: HeadView,
    keys: list[str],
    state: np.ndarray,
    columns: list[tuple[str, np.ndarray | None, np.ndarray | None]],
) -> Drawing:
    left = max(grid.widest_label(keys, 13) + 14, 40)
    drawing = Drawing(left, 60 + _LINE * len(keys))
    largest = grid.largest_finite(columns[0][1]) if columns[0][1] is not None else 1.0
    drawing.add(Text(left - 10, 14, "s", 13, "end", True, ROLES["query"]))
    matrix = MatrixBox("s", state[None], largest=max(largest, grid.largest_finite(state)))
    add_cells(drawing, matrix, (left, 2, _WIDTH / len(state), 16))
    drawing.add(Box(left, 2, _WIDTH, 16, stroke=HAIRLINE))
    note = caption("decoder state", view.language)
    drawing.add(Text(left + _WIDTH + 10, 14, note, 11, color=FAINT))
    for i, name in enumerate(keys):
        y = 52 + _LINE * i
        drawing.add(Text(left - 10, y + 17, truncate(show_spaces(name), 130), 13, "end"))
    for heading, vectors, numbers in columns:
        x = drawing.width
        drawing.add(Text(x, 44, heading, 12, bold=True))
        if vectors is not None:
            box = MatrixBox(heading.split()[-1], vectors, largest=largest)
            if heading.startswith("tanh"):
                box = MatrixBox("tanh", vectors, largest=1.0)
            for i in range(len(vectors)):
                one = MatrixBox(f"{box.name}{i}", vectors[i][None], largest=box.largest)
                y = 52 + _LINE * i + 4
                add_cells(drawing, one, (x, y, _WIDTH / vectors.shape[1], 18))
                drawing.add(Box(x, y, _WIDTH, 18, stroke=HAIRLINE))
            drawing.width += max(_WIDTH, text_width(heading, 12) * 1.05) + 22
        elif numbers is not None:
            _add_numbers(drawing, heading, numbers, x)
            drawing.width += _NUMBER + 14
    return drawing


def _add_numbers(drawing: Drawing, heading: str, numbers: np.ndarray, x: float) -> None:
    weights = heading.startswith("4")
    for i, number in enumerate(numbers.tolist()):
        y = 52 + _LINE * i
        if weights:
            wide = max((_NUMBER - 56) * number, 0.5)
            tooltip = f"α{i}: {number:.4f}"
            drawing.add(Box(x + 52, y + 5, wide, 16, ROLES["weight"], tooltip=tooltip))
        drawing.add(Text(x + 46, y + 17, signed(number), 12, "end", bold=weights))


def _add_context(drawing: Drawing, view: HeadView, context: np.ndarray, state: np.ndarray) -> None:
    """Draw the sum of the weighted states, and what the decoder does with it."""
    language, bottom = view.language, drawing.height
    x = drawing.width - _WIDTH - 22
    drawing.add(Line(((0, bottom - 4), (drawing.width, bottom - 4)), FAINT, 1))
    label = f"6  c = Σ α h   {caption('context vector', language)}"
    drawing.add(Text(x - 12, bottom + 14, label, 12, "end", True))
    box = MatrixBox("c", context[None], largest=grid.largest_finite(context))
    add_cells(drawing, box, (x, bottom + 2, _WIDTH / len(context), 18))
    drawing.add(Box(x, bottom + 2, _WIDTH, 18, stroke=HAIRLINE))
    drawing.add(Text(0, bottom + 44, caption("additive end", language), 12, color=FAINT))
    drawing.height = bottom + 52
    drawing.width = max(drawing.width, text_width(caption("additive end", language), 12))
