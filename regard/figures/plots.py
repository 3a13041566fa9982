"""Curves with labeled ends: learning rates over steps, costs over the length of a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from regard.analysis.cost import FORMS, Form
from regard.figures.captions import caption
from regard.figures.color import SERIES
from regard.figures.drawing import FAINT, HAIRLINE, Drawing, Line, Text, text_width
from regard.figures.grid import framed
from regard.training.optimizer import Schedule, paper_rate

_WIDE, _HIGH, _LEFT, _TOP = 520, 300, 74, 26
_BOTTOM = _TOP + _HIGH


@dataclass(frozen=True)
class Curve:
    """A name and its points."""

    name: str
    points: Sequence[tuple[float, float]]


def draw_schedule(*, length: int = 20_000, language: str = "en") -> Drawing:
    """The paper's learning rate (section 5.3) for three sizes: it rises, then falls."""
    steps = sorted({max(1, round(length * i / 400)) for i in range(1, 401)})
    curves = []
    for d_model, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        rate = Schedule("paper", paper_rate(d_model, warmup), warmup)
        name = f"d_model {d_model}, warm-up {warmup:,}"
        curves.append(Curve(name, [(step, rate.at(step)) for step in steps]))
    names = caption("training step", language), caption("learning rate", language)
    formula = "lr = d_model^−0.5 · min(step^−0.5, step · warm-up^−1.5)"
    plot = _plot(curves, names, logarithmic=False)
    return framed(plot, caption("schedule", language), [formula], language)


def draw_complexity(*, length: int = 16_384, d_model: int = 512, language: str = "en") -> Drawing:
    """Multiplications and numbers held by each form of attention, by formula."""
    lengths = [2**k for k in range(7, max(8, length.bit_length()))]

    def plot(cost: Callable[[Form, int], float], says: str) -> Drawing:
        curves = [Curve(form.name, [(n, cost(form, n)) for n in lengths]) for form in FORMS]
        return _plot(curves, (caption("length", language), caption(says, language)))

    time = plot(lambda form, n: form.products(n, d_model), "products")
    memory = plot(lambda form, n: form.numbers(n, d_model), "numbers held")
    both = Drawing(max(time.width, memory.width), time.height + memory.height + 24, "")
    both.place(time, 0, 0)
    both.place(memory, 0, time.height + 24)
    note = f"{caption('by formula', language)} d = {d_model}"
    return framed(both, caption("complexity", language), [note], language)


def _plot(curves: Sequence[Curve], axes: tuple[str, str], *, logarithmic: bool = True) -> Drawing:
    """Curves in one frame, each named at its end."""
    names = max(text_width(curve.name, 12) for curve in curves)
    drawing = Drawing(_LEFT + _WIDE + 14 + names, _BOTTOM + 40, "")
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    across, up = (_logarithmic if logarithmic else _linear)(xs, ys)
    _add_ticks(drawing, across, up)
    drawing.add(Text(_LEFT, 14, axes[1], 12, bold=True))
    drawing.add(Text(_LEFT + _WIDE, _BOTTOM + 36, axes[0], 12, "end", bold=True))
    ends = _apart([up.place(curve.points[-1][1]) for curve in curves], 16)
    for i, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        points = tuple((across.place(x), up.place(y)) for x, y in curve.points)
        color = SERIES[i % len(SERIES)]
        drawing.add(Line(points, color, 2, note=curve.name))
        drawing.add(Text(_LEFT + _WIDE + 10, end + 4, curve.name, 12, color=color))
    return drawing


@dataclass(frozen=True)
class _Axis:
    """From numbers to places, with the numbers that are written beside it."""

    place: Callable[[float], float]
    ticks: list[tuple[float, str]]


def _linear(xs: Sequence[float], ys: Sequence[float]) -> tuple[_Axis, _Axis]:
    right, high = max(xs), max(ys)
    quarters = [i / 4 for i in range(5)]
    return (
        _Axis(
            lambda x: _LEFT + _WIDE * x / right,
            [(right * share, f"{right * share:,.0f}") for share in quarters],
        ),
        _Axis(
            lambda y: _BOTTOM - _HIGH * y / high,
            [(high * share, f"{high * share:.1e}" if share else "0") for share in quarters],
        ),
    )


def _logarithmic(xs: Sequence[float], ys: Sequence[float]) -> tuple[_Axis, _Axis]:
    left, right = min(xs), max(xs)
    low, high = floor(log10(min(ys))), ceil(log10(max(ys)))
    return (
        _Axis(
            lambda x: _LEFT + _WIDE * log10(x / left) / log10(right / left),
            [(x, f"{x:,.0f}") for x in sorted(set(xs))],
        ),
        _Axis(
            lambda y: _BOTTOM - _HIGH * (log10(y) - low) / (high - low),
            [(10.0**power, f"10{_superscript(power)}") for power in range(low, high + 1)],
        ),
    )


def _add_ticks(drawing: Drawing, across: _Axis, up: _Axis) -> None:
    for value, said in up.ticks:
        y = up.place(value)
        drawing.add(Line(((_LEFT, y), (_LEFT + _WIDE, y)), HAIRLINE, 0.5))
        drawing.add(Text(_LEFT - 8, y + 4, said, 11, "end", color=FAINT))
    every = -(-len(across.ticks) // 9)
    for value, said in across.ticks[::every]:
        drawing.add(Text(across.place(value), _BOTTOM + 16, said, 11, "middle", color=FAINT))
    drawing.add(Line(((_LEFT, _BOTTOM), (_LEFT + _WIDE, _BOTTOM)), FAINT, 1))


def _superscript(number: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


def _apart(places: Sequence[float], least: float) -> list[float]:
    """The same places, moved down where two would stand on each other."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda i: places[i])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved
