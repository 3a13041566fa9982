"""The whole way of one query, in digits: comparisons, scaling, mask, softmax, weighted sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isinf, sqrt

import numpy as np

from regard.analysis.steps import head_temperature, vectors
from regard.errors import InputError
from regard.figures.captions import caption
from regard.figures.color import ROLES, shade, signed
from regard.figures.drawing import FAINT, HAIRLINE, Box, Drawing, Image, Line, Text, fitted, visible
from regard.figures.grid import MANY, add_below, framed, scale_legend
from regard.figures.subject import Subject

_ROW, _STRIP, _COLUMN = 30, 150, 92


@dataclass(frozen=True, eq=False)
class _Way:
    """All keys as one query meets them."""

    names: Sequence[str]
    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    columns: tuple[tuple[str, list[float]], ...]
    """Heading and numbers of each step, in order; the last are the weights."""
    context: np.ndarray


def draw_steps(subject: Subject) -> Drawing:
    """One row for each key, one column for each step; the weighted sum below."""
    way, language = _follow(subject), subject.language
    n, first = len(way.names), 110
    at_columns = first + _STRIP + 18
    at_values = at_columns + _COLUMN * len(way.columns) + 14
    drawing = Drawing(at_values + _STRIP + 10, 84 + _ROW * (n + 1), "")
    largest = max(float(np.abs(part).max()) for part in (way.query, way.keys, way.values))
    asked = fitted(visible(subject.names()[0][subject.row]), 100)
    drawing.add(Text(first - 10, 28, f"q  {asked}", 13, "end", True, ROLES["query"]))
    _add_strip(drawing, way.query, (first, 14), largest)
    top = 66
    drawing.add(
        Text(first, top - 8, f"k  {caption('keys', language)}", 12, "start", True, ROLES["key"])
    )
    heading = f"v  {caption('values', language)}"
    drawing.add(Text(at_values, top - 8, heading, 12, "start", True, ROLES["value"]))
    for j, (name, _) in enumerate(way.columns):
        place = at_columns + _COLUMN * (j + 1) - 12
        drawing.add(Text(place, top - 8, name, 12, "end", color=FAINT))
    for i, name in enumerate(way.names):
        y = top + _ROW * i
        drawing.add(Line(((0, y), (drawing.width, y)), HAIRLINE, 0.5))
        label = fitted(visible(name), 98)
        drawing.add(Text(first - 10, y + 19, label, 13, "end"))
        _add_strip(drawing, way.keys[i], (first, y + 6), largest)
        _add_numbers(drawing, way, i, (at_columns, y))
        _add_strip(drawing, way.values[i], (at_values, y + 6), largest)
    _add_sum(drawing, way, (at_columns, at_values, top + _ROW * n), largest, language)
    add_below(drawing, scale_legend(language, low=-largest, high=largest, says="numbers"))
    return framed(drawing, subject.title(), [caption("steps of a query", language)], language)


def _add_strip(
    drawing: Drawing, vector: np.ndarray, place: tuple[float, float], largest: float
) -> None:
    """A vector as colored cells."""
    drawing.add(Image(*place, _STRIP, 18, signed(vector[None], largest)))
    drawing.add(Box(*place, _STRIP, 18, stroke=HAIRLINE))


def _add_numbers(drawing: Drawing, way: _Way, i: int, place: tuple[float, float]) -> None:
    x, y = place
    for j, (_, numbers) in enumerate(way.columns):
        last = j == len(way.columns) - 1
        end = x + _COLUMN * (j + 1) - 12
        if last:
            drawing.add(Box(end - _COLUMN + 22, y + 5, _COLUMN - 16, 20, shade(0.5 * numbers[i])))
        said = f"{numbers[i]:.4f}" if not isinf(numbers[i]) else "∞"
        text = said.replace("-", "−") if numbers[i] != -inf else "−∞"
        drawing.add(Text(end, y + 20, text, 13, "end", bold=last))


def _add_sum(
    drawing: Drawing, way: _Way, place: tuple[float, float, float], largest: float, language: str
) -> None:
    """The sums below: of the weights, and of the weighted values."""
    columns, values, y = place
    drawing.add(Line(((columns, y), (drawing.width, y)), FAINT, 1))
    total = sum(way.columns[-1][1])
    end = columns + _COLUMN * len(way.columns) - 12
    drawing.add(Text(end, y + 20, f"Σ = {total:.4f}", 13, "end", True, ROLES["weight"]))
    drawing.add(Text(columns, y + 20, caption("weighted sum", language), 12, color=FAINT))
    _add_strip(drawing, way.context, (values, y + 6), largest)


def _follow(subject: Subject) -> _Way:
    site, head, row = subject.site, subject.number, subject.row
    if site.n_key > MANY:
        raise InputError(
            f"{site.path} has {site.n_key} keys, more than the {MANY} that a picture of every step "
            "can hold: give a shorter text."
        )
    place = {"head": head if site.lead else None, "rows": [row]}
    tables = {name: getattr(site, name)(**place)[0].tolist() for name in _TABLES}
    heat = head_temperature(site, head)
    query, keys, values = (
        vectors(site, name, head).detach().float().numpy() for name in ("query", "key", "value")
    )
    return _Way(
        names=subject.names()[1],
        query=query[row],
        keys=keys,
        values=values,
        columns=_columns(site.pattern, tables, _parts(tables["masked"], heat), query.shape[-1]),
        context=site.context(place["head"], rows=[row])[0].detach().float().numpy(),
    )


_TABLES = ("compared", "scores", "masked", "weights")


def _parts(masked: Sequence[float], heat: float) -> list[float]:
    """exp((score − largest) / temperature): what the weights are shares of."""
    peak = max(masked)
    if peak == -inf or heat == 0:
        return [float(x == peak != -inf) for x in masked]
    return [exp((x - peak) / heat) for x in masked]


def _columns(
    pattern: object, tables: dict[str, list[float]], parts: list[float], d_k: int
) -> tuple[tuple[str, list[float]], ...]:
    """The steps that change something, each with the formula above it."""
    scale = float(getattr(pattern, "scale", 1.0))
    name = getattr(getattr(pattern, "similarity", None), "name", "")
    first = "q · k" if name in ("dot", "scaled_dot") else "a(q, k)"
    root = abs(scale * sqrt(d_k) - 1) < 1e-9
    columns = [(first, tables["compared"])]
    if scale != 1.0:
        columns.append((f"÷ √{d_k}" if root else f"× {scale:.4g}", tables["scores"]))
    if tables["masked"] != tables["scores"]:
        columns.append(("+ mask", tables["masked"]))
    columns += [("exp(s − max)", parts), ("÷ Σ", tables["weights"])]
    return tuple(columns)
