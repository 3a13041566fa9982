"""The course of a training run as a picture: loss, perplexity, scores, learning rate, speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import exp, floor, log10
from typing import Any

from regard.figures.captions import word

_FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
_COLORS = ("#5B4B8A", "#D9A441", "#3E8E7E", "#8A5A00")
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 420, 200
"""Of one panel's plot."""
_LEFT, _TOP, _GAP_X, _GAP_Y = 70, 96, 180, 96
_APART = 17
"""Between two lines of words."""
_POINTS = 300
"""A line has at most so many points; those of long runs are means of neighbors."""
_SCORES = {"bleu": "BLEU", "chrf": "chrF"}
_SHARES = {"exact": "exact match", "accuracy": "accuracy"}

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line of a panel: a name and its points, (step, value)."""

    name: str
    points: Points
    marked: bool = False
    """Whether each point is a measurement worth a dot, as validations are."""
    unit: str = ""

    def told(self, value: float) -> str:
        """A value of this line, with name and unit."""
        return f"{self.name} {_number(value)}{self.unit}".strip()


@dataclass(frozen=True)
class Course:
    """What a run went through, by panel: "loss", "perplexity", "score", "lr" and "speed"."""

    panels: Mapping[str, Sequence[Line]]
    best: int | None = None
    """The step of the best validation."""


def course_of(entries: Sequence[Mapping[str, Any]], language: str = "en") -> Course:
    """The course that the entries of a run's metrics.jsonl tell."""
    steps = [one for one in entries if "surprise" in one]
    checks = [one for one in entries if "validation" in one]
    train, held = word("training", language), word("validation", language)
    loss = [(one["step"], one["surprise"]) for one in steps]
    tested = _checked(checks, "loss")
    panels = {
        "loss": [Line(train, _thin(loss)), Line(held, tested, marked=True)],
        "perplexity": [
            Line(train, _thin(_powers(loss))),
            Line(held, _powers(tested), marked=True),
        ],
        "score": _scores(checks, language),
        "lr": [Line("", _thin([(one["step"], one["lr"]) for one in steps]))],
        "speed": [Line("", _thin(_speeds(entries)))],
    }
    best = [one["step"] for one in checks if one.get("best")]
    return Course(panels, best[-1] if best else None)


def _checked(checks: Sequence[Mapping[str, Any]], name: str, scale: float = 1.0) -> Points:
    """A number of all validations; of two at one step the first, which judges no average."""
    found: dict[float, float] = {}
    for one in checks:
        if name in one["validation"]:
            found.setdefault(one["step"], scale * one["validation"][name])
    return list(found.items())


def _scores(checks: Sequence[Mapping[str, Any]], language: str) -> list[Line]:
    lines = [Line(name, _checked(checks, key), marked=True) for key, name in _SCORES.items()]
    lines += [
        Line(word(name, language), _checked(checks, key, 100.0), marked=True, unit=" %")
        for key, name in _SHARES.items()
    ]
    return [line for line in lines if line.points]


def _speeds(entries: Sequence[Mapping[str, Any]]) -> Points:
    """Targets a second; where an entry does not say, from the one before, unless one validated."""
    points, before = [], None
    for one in entries:
        if "surprise" not in one:
            before = None
            continue
        speed = one.get("speed")
        if speed is None and before is not None and one["seconds"] > before["seconds"]:
            elapsed = one["seconds"] - before["seconds"]
            speed = one["targets"] * (one["step"] - before["step"]) / elapsed
        if speed is not None:
            points.append((one["step"], speed))
        before = one
    return points


def _powers(points: Points) -> Points:
    return [(step, exp(min(value, 50.0))) for step, value in points]


def _thin(points: Points) -> Points:
    """As many points as can be seen, each the mean of its neighbors."""
    size = -(-len(points) // _POINTS)
    if size <= 1:
        return points
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def curves_svg(
    entries: Sequence[Mapping[str, Any]], language: str = "en", *, title: str = ""
) -> str:
    """The picture of a run from the entries of its metrics.jsonl; text stays text."""
    course = course_of(entries, language)
    shown = {name: lines for name, lines in course.panels.items() if any(x.points for x in lines)}
    last = max((x for lines in shown.values() for x in _steps(lines)), default=1.0)
    heading = " · ".join(part for part in (word("curves", language), title) if part)
    parts = [_text(20, 34, heading, bold=True, size=17)]
    parts.append(_text(20, 56, _summary(course, language), faint=True))
    for number, (name, lines) in enumerate(shown.items()):
        x = _LEFT + (number % 2) * (_WIDTH + _GAP_X)
        y = _TOP + (number // 2) * (_HEIGHT + _GAP_Y)
        parts.append(_panel(name, lines, (x, y), last=last, best=course.best, language=language))
    width = _LEFT + 2 * _WIDTH + _GAP_X + 130
    height = _TOP + -(-max(len(shown), 1) // 2) * (_HEIGHT + _GAP_Y)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{_FONTS}" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _steps(lines: Sequence[Line]) -> list[float]:
    return [x for line in lines for x, _ in line.points]


def _summary(course: Course, language: str) -> str:
    """What the best validation came to, in words."""
    if course.best is None:
        return word("no validation", language)
    told = [f"{word('best', language)}: {word('step', language)} {course.best:,}"]
    names = {name: word(name, language) for name in ("loss", "perplexity")}
    for name, lines in course.panels.items():
        for line in lines:
            value = dict(line.points).get(course.best) if line.marked else None
            if value is not None:
                told.append(replace(line, name=names.get(name, line.name)).told(value))
    return " · ".join(told)


@dataclass(frozen=True)
class _Scale:
    """From values to places between two ends; logarithmic where that shows more."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._bent(self.low), self._bent(self.high)
        share = (self._bent(value) - low) / ((high - low) or 1.0)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def _bent(self, value: float) -> float:
        return log10(max(value, 1e-12)) if self.logarithmic else value


def _panel(
    name: str,
    lines: Sequence[Line],
    at: tuple[float, float],
    *,
    last: float,
    best: int | None,
    language: str,
) -> str:
    """Axes, lines, and at the right end of each line its name and last value."""
    x, y = at
    values = [value for line in lines for _, value in line.points]
    logarithmic = name == "perplexity"
    ticks = _decades(min(values), max(values)) if logarithmic else _ticks(name, values)
    down = _Scale(ticks[0], ticks[-1], y + _HEIGHT, y + 16, logarithmic)
    along = _Scale(0, last, x, x + _WIDTH)
    title = word("loss of a target" if name == "loss" else name, language)
    note = f" ({word('logarithmic', language)})" if logarithmic else ""
    parts = [_text(x, y - 6, title + note, bold=True)]
    for tick in ticks:
        parts.append(
            f'<line x1="{x}" x2="{x + _WIDTH}" y1="{down(tick):.1f}" y2="{down(tick):.1f}" '
            'stroke="#E4E2EA"/>'
        )
        parts.append(_text(x - 8, down(tick) + 4, _number(tick), anchor="end", faint=True))
    parts += [
        _text(along(tick), y + _HEIGHT + 18, f"{tick:,.0f}", anchor="middle", faint=True)
        for tick in _round_ticks(0, last, 4)
        if tick <= last
    ]
    parts.append(
        _text(x + _WIDTH, y + _HEIGHT + 34, word("step", language), anchor="end", faint=True)
    )
    if best is not None:
        parts.append(
            f'<line x1="{along(best):.1f}" x2="{along(best):.1f}" y1="{y + 16}" '
            f'y2="{y + _HEIGHT}" stroke="#888" stroke-dasharray="1 3"/>'
        )
    # the later line, which is what was measured on other data, lies on top
    parts += [_line(line, i, along, down) for i, line in enumerate(lines) if line.points]
    return "".join([*parts, *_ends(lines, down, x + _WIDTH + 8)])


def _line(line: Line, number: int, along: _Scale, down: _Scale) -> str:
    color, dash = _COLORS[number % 4], _DASHES[number % 4]
    places = [(along(x), down(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    broken = f' stroke-dasharray="{dash}"' if dash else ""
    drawn = f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{broken}/>'
    if line.marked or len(places) == 1:
        drawn += "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places
        )
    return drawn


def _ends(lines: Sequence[Line], down: _Scale, x: float) -> list[str]:
    """The names and last values of the lines beside their ends, apart where they would meet."""
    ends = [(down(line.points[-1][1]), i, line) for i, line in enumerate(lines) if line.points]
    parts, least = [], down.start + _APART
    for y, number, line in sorted(ends, key=lambda end: -end[0]):  # from below
        least = min(y, least - _APART)
        told = line.told(line.points[-1][1])
        parts.append(
            f'<text x="{x:.1f}" y="{least + 4:.1f}" fill="{_darker(number)}">{escape(told)}</text>'
        )
    return parts


def _darker(number: int) -> str:
    """A line's color, deep enough for words on white."""
    return ("#5B4B8A", "#8A5A00", "#2B6A5D", "#6B4500")[number % 4]


def _ticks(name: str, values: Sequence[float]) -> list[float]:
    """Round numbers around the values; learning rates, speeds and scores begin at 0."""
    low = 0.0 if name in ("lr", "speed", "score") else min(values)
    if name == "loss":  # the first steps may be far above all others
        ordered = sorted(values)
        return _round_ticks(low, ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 4)
    return _round_ticks(low, max(values), 4)


def _round_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` steps of 1, 2 or 5 times a power of ten, from below low to above high."""
    width = max(high - low, abs(high) * 1e-3, 1e-12) / count
    power = 10.0 ** floor(log10(width))
    step = next(power * one for one in (1, 2, 5, 10) if power * one >= width * 0.999)
    first = floor(low / step + 1e-9)
    number = max(1, -int(-(high - first * step) // step + 1e-9))
    while first * step + number * step < high * (1 - 1e-9):
        number += 1
    return [(first + i) * step for i in range(number + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten around the values; powers alone where that were too many."""
    powers = range(floor(log10(max(low, 1e-12))), floor(log10(max(high, 1e-12))) + 2)
    every = [one * 10.0**power for power in powers for one in (1, 2, 5)]
    below = [one for one in every if one <= low * 1.001]
    above = [one for one in every if one >= high * 0.999]
    ticks = [one for one in every if below[-1] <= one <= above[0]]
    if len(ticks) > 7:
        ticks = [ticks[0], *(one for one in ticks[1:-1] if _is_power(one)), ticks[-1]]
    return ticks


def _is_power(value: float) -> bool:
    return abs(log10(value) - round(log10(value))) < 1e-9


def _number(value: float) -> str:
    """A value as short as it can be read."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.3g}"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    bold: bool = False,
    faint: bool = False,
    size: int = 0,
) -> str:
    more = ' font-weight="600"' if bold else ""
    more += ' fill="#666"' if faint else ""
    more += f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
