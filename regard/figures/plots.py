"""Line plots: axes, ticks, series with labels at their ends; learning rates and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from statistics import fmean

from regard.analysis.measurements import FORM_COSTS
from regard.figures.captions import caption, text_width
from regard.figures.colors import FAINT, HAIRLINE, SERIES, darken
from regard.figures.drawing import Circle, Drawing, Line, Text, add_frame

Point = tuple[float, float]
Points = Sequence[Point]
_LEFT, _TOP, _LABEL_GAP = 74, 26, 17
_DASHES = ((), (7, 3), (2, 3), (9, 3, 2, 3))


@dataclass(frozen=True)
class Series:
    """A named line of a plot; `marked` points get dots, and `unit` follows values in labels."""

    name: str
    points: Points
    marked: bool = False
    unit: str = ""

    def describe(self, value: float) -> str:
        """Return a value with name and unit."""
        return f"{self.name} {short_number(value)}{self.unit}".strip()


@dataclass(frozen=True)
class Axis:
    """Range, ticks and title of an axis."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False

    def fraction(self, value: float) -> float:
        """Return the position of a value between both ends, clipped to 0 and 1."""
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = (log10(max(x, 1e-12)) for x in (low, high, at))
        return min(max((at - low) / ((high - low) or 1.0), 0.0), 1.0)


def linear_axis(title: str, low: float, high: float, *, tight: bool = False) -> Axis:
    """Return an axis with about four round ticks; a `tight` one ends at `high`."""
    ticks = [tick for tick in round_ticks(low, high) if tick <= high or not tight]
    labels = [(tick, short_number(tick)) for tick in ticks]
    return Axis(title, ticks[0], high if tight else ticks[-1], labels)


def logarithmic_axis(title: str, values: Sequence[float]) -> Axis:
    """Return an axis with ticks at 1, 2 and 5 times powers of ten that encloses the values."""
    ticks = decade_ticks(min(values), max(values))
    label = short_number if ticks[-1] < 1e6 else _power_of_ten
    return Axis(title, ticks[0], ticks[-1], [(x, label(x)) for x in ticks], logarithmic=True)


def draw_plot(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    size: tuple[float, float] = (520, 300),
    values: bool = False,
    marker: float | None = None,
) -> Drawing:
    """Draw lines with names (and last values) at their ends, and a dotted line at `marker`."""
    width, height = size
    bottom, right = _TOP + height, _LEFT + width
    lines = [line for line in series if line.points]
    labels = [line.describe(line.points[-1][1]) if values else line.name for line in lines]
    widest = max((text_width(label, 12) for label in labels), default=0)
    drawing = Drawing(right + 14 + widest, bottom + 40)

    def place(point: Point) -> Point:
        return _LEFT + width * x.fraction(point[0]), bottom - height * y.fraction(point[1])

    _add_axes(drawing, x, y, place, right, bottom)
    if marker is not None:
        at = place((marker, y.low))[0]
        drawing.add(Line(((at, _TOP), (at, bottom)), "#888888", dash=(1, 3)))
    ends = spread_labels([place(line.points[-1])[1] for line in lines])
    for i, (line, label, end) in enumerate(zip(lines, labels, ends, strict=True)):
        color, points = SERIES[i % len(SERIES)], tuple(place(point) for point in line.points)
        dash = _DASHES[i % len(_DASHES)] if line.marked else ()
        drawing.add(Line(points, color, 2, dash=dash, tooltip=line.name))
        if line.marked or len(points) == 1:
            drawing.add(*(Circle(*point, 3, color) for point in points))
        drawing.add(Text(right + 10, end + 4, label, 12, color=darken(color)))
    return drawing


def _add_axes(
    drawing: Drawing, x: Axis, y: Axis, place: Callable[[Point], Point], right: float, bottom: float
) -> None:
    drawing.add(Text(_LEFT, 12, y.title, 12, bold=True))
    drawing.add(Text(right, bottom + 34, x.title, 12, "end", color=FAINT))
    for value, label in y.ticks:
        at = place((x.low, value))[1]
        drawing.add(Line(((_LEFT, at), (right, at)), HAIRLINE, 0.5))
        drawing.add(Text(_LEFT - 8, at + 4, label, 11, "end", color=FAINT))
    for value, label in x.ticks[:: ceil(len(x.ticks) / 9)]:
        drawing.add(Text(place((value, y.low))[0], bottom + 16, label, 11, "middle", color=FAINT))
    drawing.add(Line(((_LEFT, bottom), (right, bottom)), FAINT, 1))


def spread_labels(positions: Sequence[float]) -> list[float]:
    """Move labels apart where they would overlap, each as little as possible."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    groups: list[list[float]] = []  # neighbors that touch, by where their first label would be
    for i, index in enumerate(order):
        groups.append([positions[index] - i * _LABEL_GAP])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    starts = [fmean(group) for group in groups for _ in group]
    return [starts[order.index(i)] + order.index(i) * _LABEL_GAP for i in range(len(order))]


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about `count` multiples of a round number that enclose a range."""
    width = max(high - low, abs(high) * 1e-3, 1e-12) / count
    power = 10.0 ** floor(log10(width))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= width * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def decade_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten that enclose a range; only powers if too many."""
    powers = range(floor(log10(max(low, 1e-12))), ceil(log10(max(high, 1e-12))) + 1)
    every = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max(tick for tick in every if tick <= low * 1.001)
    last = min(tick for tick in every if tick >= high * 0.999)
    ticks = [tick for tick in every if first <= tick <= last]
    return ticks if len(ticks) <= 7 else [10.0**power for power in powers]


def short_number(value: float) -> str:
    """Return a number with about three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3g}"


def _power_of_ten(value: float) -> str:
    exponent = floor(log10(value) + 1e-9)
    power = "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = round(value / 10.0**exponent)
    return power if factor == 1 else f"{factor}·{power}"


def draw_schedule(rates: Mapping[str, Points], *, language: str = "en") -> Drawing:
    """Draw learning rates over training steps, one line for each named schedule."""
    series = [Series(name, points) for name, points in rates.items()]
    steps = max(step for points in rates.values() for step, _ in points)
    highest = max(rate for points in rates.values() for _, rate in points)
    x = linear_axis(caption("step", language), 0, steps, tight=True)
    plot = draw_plot(series, x, linear_axis(caption("learning rate", language), 0, highest))
    names = caption("step", language), caption("warm-up", language)
    formula = "lr = d_model^−0.5 · min({0}^−0.5, {0} · {1}^−1.5)".format(*names)
    return add_frame(plot, caption("schedule", language), [formula], language)


def draw_complexity(*, length: int = 16_384, d_model: int = 512, language: str = "en") -> Drawing:
    """Draw multiplications and stored numbers of each form of attention over the length."""
    lengths = [2**k for k in range(7, max(8, length.bit_length()))]
    ticks = [(n, f"{n:,}") for n in lengths]
    x = Axis(caption("tokens", language), lengths[0], lengths[-1], ticks, logarithmic=True)
    both = Drawing(0, 0)
    for name, cost in (("multiplications", "products"), ("stored numbers", "numbers")):
        series = [
            Series(
                caption(f"form {form.name}", language),
                [(n, getattr(form, cost)(n, d_model)) for n in lengths],
            )
            for form in FORM_COSTS
        ]
        costs = [cost for line in series for _, cost in line.points]
        y = logarithmic_axis(caption(name, language), costs)
        both.place_below(draw_plot(series, x, y), gap=24 if both.height else 0)
    note = f"{caption('by formula', language)} d = {d_model}"
    return add_frame(both, caption("complexity", language), [note], language)
