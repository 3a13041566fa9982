"""Figures of tokens in relation: a graph, moving points, patches of an image, written tokens."""

from math import cos, pi, sin

import numpy as np
import torch

from regard.analysis.heads import is_cross, rollout
from regard.analysis.site_json import describe_image
from regard.analysis.steps import has_space, space
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, SERIES, shade
from regard.figures.drawing import Box, Circle, Drawing, Image, Line, Text, add_frame
from regard.figures.head_view import HeadView, check_keys, to_numpy

_LEAST = 0.1  # smaller weights are not drawn as edges


def draw_graph(view: HeadView) -> Drawing:
    """Draw tokens as nodes on a circle, and weights as arrows from queries to keys."""
    check_keys(view)
    weights, (queries, keys) = view.weights(), view.labels()
    crossing = is_cross(view.site) or view.rows != view.columns
    radius = max(120.0, 13.0 * (len(keys) + (len(queries) if crossing else 0)) / 2)
    if crossing:
        ends = _arc(len(queries), radius, 0.5), _arc(len(keys), radius, -0.5)
    else:
        ends = (_arc(len(keys), radius, 0.0),) * 2
    margin = 8 + max(grid.widest_label(names, 12) for names in (queries, keys))
    side = 2 * (radius + margin + 10)
    drawing, middle = Drawing(side, 2 * radius + 70), np.array([side / 2, radius + 35])
    places = [[tuple(middle + point) for point in end] for end in ends]
    order = sorted(np.ndindex(weights.shape), key=lambda cell: weights[cell])
    for i, j in order:
        if weights[i, j] >= _LEAST:
            tooltip = f"{queries[i]} → {keys[j]}: {weights[i, j]:.4f}"
            points = _edge(places[0][i], places[1][j], middle)
            width, opacity = 0.6 + 5 * float(weights[i, j]), 0.25 + 0.75 * float(weights[i, j])
            drawing.add(Line(points, ROLES["weight"], width, opacity, arrow=True, tooltip=tooltip))
    groups = [(queries, places[0], "query"), (keys, places[1], "key")]
    for names, points, role in groups if crossing else groups[1:]:
        color = ROLES[role] if crossing else INK
        for name, point in zip(names, points, strict=True):
            _add_node(drawing, name, point, middle, color)
    note = caption("graph note", view.language).format(least=_LEAST)
    title = f"{caption('attention graph', view.language)} · {view.title()}"
    return add_frame(drawing, title, [note, *view.notes()], view.language)


def _arc(count: int, radius: float, side: float) -> list[np.ndarray]:
    """Return points on a circle, or on its left (side > 0) or right half, top first."""
    if side:
        angles = [pi / 2 + (i + 0.5) / count * pi * (1 if side > 0 else -1) for i in range(count)]
    else:
        angles = [pi / 2 - 2 * pi * i / count for i in range(count)]
    return [np.array([radius * cos(angle), -radius * sin(angle)]) for angle in angles]


def _edge(
    start: tuple[float, ...], end: tuple[float, ...], middle: np.ndarray
) -> tuple[tuple[float, float], ...]:
    """Return a curve that bends towards the middle, or a loop outside of a node."""
    first, last = np.array(start), np.array(end)
    if start == end:
        outward = (first - middle) / max(float(np.hypot(*(first - middle))), 1e-9)
        across = np.array([-outward[1], outward[0]])
        angles = np.linspace(0.15, 0.85, 12) * 2 * pi
        loop = [first + 9 * outward + 9 * (-cos(a) * outward + sin(a) * across) for a in angles]
        return tuple((float(x), float(y)) for x, y in loop)
    control = middle * 0.7 + (first + last) / 2 * 0.3
    shares = np.linspace(0.03, 0.96, 20)[:, None]
    curve = (1 - shares) ** 2 * first + 2 * shares * (1 - shares) * control + shares**2 * last
    return tuple((float(x), float(y)) for x, y in curve)


def _add_node(
    drawing: Drawing, name: str, point: tuple[float, ...], middle: np.ndarray, color: str
) -> None:
    x, y = point
    outward = (np.array(point) - middle) / max(float(np.hypot(*(np.array(point) - middle))), 1e-9)
    drawing.add(Circle(x, y, 4, color))
    anchor = "start" if outward[0] > 0.05 else "end" if outward[0] < -0.05 else "middle"
    at = np.array(point) + outward * (22 if anchor == "middle" else 24)
    label = truncate(show_spaces(name), 130, 12)
    drawing.add(Text(float(at[0]), float(at[1]) + 4, label, 12, anchor, color=color))


_SPACE = 520


def draw_space(view: HeadView) -> Drawing:
    """Draw how the vector of each token moves as a layer adds its attention to it."""
    path, language = view.site.path, view.language
    if not has_space(view.trace, path):
        raise InputError(
            f"the trace has no residual stream around {path}: space needs a Transformer of "
            "regard's own families."
        )
    found = space(view.trace, path)
    before, after = to_numpy(found.before)[view.rows], to_numpy(found.after)[view.rows]
    names = view.all_labels()[0]
    names = [names[i] for i in view.rows]
    if view.writes:
        names = [view.trace.tokens["target"][i] for i in view.rows]
    both = np.concatenate([before, after])
    low, high = both.min(axis=0), both.max(axis=0)
    side = _SPACE * max(1.0, (len(names) / 24) ** 0.5)  # more words need more space for labels
    scale = side / max(float((high - low).max()), 1e-9)
    size = (high - low) * scale
    drawing = Drawing(float(size[0]) + 150, float(size[1]) + 60)

    def place(point: np.ndarray) -> tuple[float, float]:
        x, y = (point - low) * scale
        return 40 + float(x), 20 + float(size[1]) - float(y)

    _add_axes(drawing, size, found.share, language)
    taken: list[tuple[float, float, float, float]] = []
    for i, (start, end) in enumerate(zip(before, after, strict=True)):
        a, b = place(start), place(end)
        color = SERIES[i % len(SERIES)]
        values = ", ".join(f"{x:.4f}" for x in (*start, *end))
        drawing.add(Line((a, b), color, 1.4, 0.8, arrow=True, tooltip=f"{names[i]}: {values}"))
        drawing.add(Circle(*a, 4, color), Circle(*a, 2.8, "#FFFFFF"), Circle(*b, 4, color))
        taken += [(x - 5, y - 5, x + 5, y + 5) for x, y in (a, b)]
    for i, end in enumerate(after):
        label = truncate(show_spaces(names[i]), 120, 12)
        _add_free_label(drawing, label, place(end), SERIES[i % len(SERIES)], taken)
    note = caption("space note", language).format(share=f"{sum(found.share):.0%}")
    return add_frame(
        drawing,
        f"{caption('space figure', language)} · {view.site_title()}",
        [note, *view.notes()],
        language,
    )


def _add_axes(drawing: Drawing, size: np.ndarray, shares: list[float], language: str) -> None:
    frame = 16, 0, float(size[0]) + 130, float(size[1]) + 40
    drawing.add(Box(*frame, stroke=HAIRLINE))
    texts = [f"{caption('axis', language)} {i + 1}: {x:.0%}" for i, x in enumerate(shares)]
    drawing.add(Text(frame[0] + frame[2], frame[3] + 16, texts[0], 11, "end", color=FAINT))
    drawing.add(Text(10, 0, texts[-1], 11, "end", color=FAINT, rotation=90))


def _add_free_label(
    drawing: Drawing,
    label: str,
    point: tuple[float, float],
    color: str,
    taken: list[tuple[float, float, float, float]],
) -> None:
    """Write a label next to a point at the first place where it covers no label and no point."""
    width = text_width(label, 12)
    spots = [(8.0, 4.0), (-8.0 - width, 4.0), (8.0, -8.0), (8.0, 16.0), (-8.0 - width, -8.0)]
    spots += [(-width / 2, -10.0 - 14 * k) for k in range(30)]
    spots += [(8.0, 16.0 + 13 * k) for k in range(30)]
    box = 0.0, 0.0, 0.0, 0.0
    for dx, dy in spots:
        box = point[0] + dx, point[1] + dy - 11, point[0] + dx + width, point[1] + dy + 2
        inside = box[0] > 18 and box[2] < drawing.width and box[1] > 0 and box[3] < drawing.height
        if inside and not any(_overlap(box, other) for other in taken):
            break
    taken.append(box)
    if abs(box[1] + 5 - point[1]) > 20:
        drawing.add(Line((point, (box[0], box[3] - 4)), color, 0.5, 0.6))
    drawing.add(Box(box[0] - 1, box[1] + 1, width + 2, 13, "#FFFFFF", opacity=0.75))
    drawing.add(Text(box[0], box[3] - 2, label, 12, color=color))


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


_PICTURE = 150


def draw_image(view: HeadView) -> Drawing:
    """Draw an image, and over it the attention of one token in every head, and the rollout."""
    kept: dict[str, np.ndarray] = {}

    def keep(name: str, pixels: np.ndarray, kind: str) -> str:
        kept[name] = pixels.astype(np.uint8)
        return name

    about, language = describe_image(view.trace, keep), view.language
    if about is None:
        raise InputError("image is a figure of a vision model: give an image to such a model.")
    maps = _patch_weights(view, about["first"], (about["n_rows"], about["n_columns"]))
    scale = _PICTURE / max(about["height"], about["width"])
    width, height = about["width"] * scale, about["height"] * scale
    columns, step = 4, (_PICTURE + 24, height + 44)
    count = len(maps) + 1
    drawing = Drawing(min(count, columns) * step[0] - 24, -(-count // columns) * step[1])
    for n, (label, weights) in enumerate([(caption("input image", language), None), *maps.items()]):
        x, y = n % columns * step[0], n // columns * step[1] + 20
        drawing.add(Text(x, y - 8, label, 12, bold=True))
        drawing.add(Image(x, y, width, height, kept["image"], photo=True))
        if weights is not None:
            _add_patches(drawing, weights, (x, y, width, height), label)
            most = f"{caption('largest weight', language)} {weights.max():.4f}"
            drawing.add(Text(x, y + height + 14, most, 11, color=FAINT))
    name = view.all_labels()[0][view.query_index]
    notes = [caption("image note", language).format(query=name)]
    answers = getattr(view.trace.output, "candidates", ())
    notes += [f"→ {one.name}  {one.probability:.4f}" for one in answers[:1]]
    title = f"{caption('image figure', language)} · {view.site_title()}"
    return add_frame(drawing, title, notes, language)


def _patch_weights(view: HeadView, first: int, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return the query's weights on the patches, by head, and the rollout."""
    site, query, head_name = view.site, view.query_index, caption("head", view.language)
    maps = {}
    for head in range(site.n_heads):
        row = to_numpy(site.weights(head if site.lead else None, rows=[query])[0])
        maps[f"{head_name} {head}"] = row[first:].reshape(shape)
    rolled = to_numpy(rollout(view.trace, site.path)[query, first:])
    return {**maps, caption("rollout", view.language): rolled.reshape(shape)}


def _add_patches(
    drawing: Drawing, weights: np.ndarray, box: tuple[float, float, float, float], label: str
) -> None:
    """Cover a picture with veils that are more transparent where the weight is larger."""
    x, y, width, height = box
    n_rows, n_columns = weights.shape
    high = max(float(weights.max()), 1e-12)
    for (i, j), weight in np.ndenumerate(weights):
        place = x + j * width / n_columns, y + i * height / n_rows
        veil = 0.86 * (1 - float(weight) / high)
        side = width / n_columns, height / n_rows
        tooltip = f"{label}, {i},{j}: {weight:.4f}"
        color = ROLES["weight"]
        drawing.add(Box(*place, *side, color, opacity=veil, tooltip=tooltip, photo=True))


def draw_decode(view: HeadView, count: int | None = None) -> Drawing:
    """Draw a text written token by token: candidates, and where a head looks for each.

    Args:
        count: number of tokens that are written already; all by default.
    """
    trace, language = view.trace, view.language
    tokens, logits = _written(view)
    shown = tokens[: len(tokens) if count is None else count]
    keys = view.labels()[1]
    probabilities = torch.softmax(logits.double(), dim=-1)
    cell = max(14.0, min(34.0, 460 / len(keys)))
    left = max(grid.widest_label(tokens, 13), 40) + 110
    above, lean = grid.label_space(keys, cell)
    row = 28
    drawing = Drawing(left + cell * len(keys) + max(20, lean), above + row * len(tokens) + 8)
    grid.add_column_labels(drawing, keys, left, above, cell)
    head = view.head_index if view.site.lead else None
    weights = to_numpy(view.site.weights(head, columns=view.columns))
    for i, token in enumerate(shown):
        y, probability = above + row * i, float(probabilities[i].max())
        last = i == len(shown) - 1 and count is not None
        label = truncate(show_spaces(token), 130)
        color = ROLES["negative"] if last else INK
        drawing.add(Text(left - 104, y + 19, label, 13, "end", bold=last, color=color))
        bar = left - 98, y + 8, max(50 * probability, 0.5), 14
        drawing.add(Box(*bar, ROLES["query"], tooltip=f"{i} {token}: {probability:.4f}"))
        drawing.add(Text(left - 8, y + 19, f"{probability:.2f}", 11, "end", color=FAINT))
        for j, weight in enumerate(weights[i].tolist()):
            tooltip = f"{token} → {keys[j]}: {weight:.4f}"
            place = left + cell * j, y + 2, cell, row - 4
            drawing.add(Box(*place, shade(weight), HAIRLINE, tooltip=tooltip))
    text = truncate("".join(shown) if trace.tokens else "", 620, 13)
    notes = [caption("decode note", language), view.title(), *([f"→ {text}"] if text else [])]
    return add_frame(drawing, caption("decode figure", language), notes, language)


def _written(view: HeadView) -> tuple[list[str], torch.Tensor]:
    """Return the predicted tokens and the logits that predict them."""
    trace = view.trace
    if "output.logits" not in trace.values or "decoder" not in view.site.path:
        raise InputError("decode shows a decoder that writes: choose a model that has one.")
    logits = trace.values["output.logits"]
    logits = logits[0] if logits.dim() > 2 else logits
    tokens = trace.tokens.get("output")
    if tokens is None:  # a language model: each position predicts the next token
        tokens = [*trace.tokens["target"][1:], "…"]
    if len(logits) < len(tokens):
        raise InputError("the trace has only the last logits of this text: give a shorter one.")
    return tokens, logits


def decode_frames(view: HeadView) -> list[Drawing]:
    """Return the drawing after each written token."""
    n = len(_written(view)[0])
    return [draw_decode(view, count) for count in range(n + 1)]
