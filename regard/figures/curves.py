"""Learning curves of a training run: loss, perplexity, scores, learning rate and speed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, exp
from typing import Any

from regard.figures.captions import caption
from regard.figures.drawing import Drawing, add_frame
from regard.figures.plots import Axis, Points, Series, draw_plot, linear_axis, logarithmic_axis

Entry = Mapping[str, Any]
_MAX_POINTS = 300  # longer series are averaged in groups of neighboring points


def run_history(
    entries: Sequence[Entry], language: str = "en"
) -> tuple[dict[str, list[Series]], int | None]:
    """Return the series of a run by panel, and the step of the best validation."""
    steps = [entry for entry in entries if "surprise" in entry]
    validations = [entry for entry in entries if "validation" in entry]
    train, held_out = caption("training", language), caption("validation", language)
    loss = _average([(entry["step"], entry["surprise"]) for entry in steps])
    validated = _validation_points(validations, "loss")
    panels = {
        "loss": [Series(train, loss), Series(held_out, validated, marked=True)],
        "perplexity": [
            Series(train, _average(_exponentiate((e["step"], e["surprise"]) for e in steps))),
            Series(held_out, _exponentiate(validated), marked=True),
        ],
        "score": _scores(validations, language),
        "learning rate": [Series("", _average([(entry["step"], entry["lr"]) for entry in steps]))],
        "speed": [Series("", _average(_speeds(entries)))],
    }
    best = [entry["step"] for entry in validations if entry.get("best")]
    return panels, best[-1] if best else None


def _validation_points(validations: Sequence[Entry], name: str, scale: float = 1.0) -> Points:
    """Return a measure by step, without the averaged weights validated at the end of a run."""
    found: dict[float, float] = {}
    for entry in validations:
        if name in entry["validation"]:
            found.setdefault(entry["step"], scale * entry["validation"][name])
    return list(found.items())


def _scores(validations: Sequence[Entry], language: str) -> list[Series]:
    series = [
        Series(name, _validation_points(validations, name.lower()), marked=True)
        for name in ("BLEU", "chrF")
    ]
    for key, name in (("exact", "exact match"), ("accuracy", "accuracy")):
        points = _validation_points(validations, key, 100)
        series.append(Series(caption(name, language), points, marked=True, unit=" %"))
    return [one for one in series if one.points]


def _speeds(entries: Sequence[Entry]) -> Points:
    """Return target tokens per second; from the clock, but not across a validation, if needed."""
    points, before = [], None
    for entry in entries:
        if "surprise" not in entry:
            before = None
            continue
        speed = entry.get("speed")
        if speed is None and before is not None and entry["seconds"] > before["seconds"]:
            elapsed = entry["seconds"] - before["seconds"]
            speed = entry["targets"] * (entry["step"] - before["step"]) / elapsed
        if speed is not None:
            points.append((entry["step"], speed))
        before = entry
    return points


def _exponentiate(points: Any) -> Points:
    return [(step, exp(min(value, 50.0))) for step, value in points]


def _average(points: Points) -> Points:
    size = ceil(len(points) / _MAX_POINTS)
    if size <= 1:
        return points
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    columns = [zip(*group, strict=True) for group in groups]
    return [(sum(x) / len(x), sum(y) / len(y)) for x, y in columns]


def draw_curves(entries: Sequence[Entry], *, language: str = "en", title: str = "") -> Drawing:
    """Draw the learning curves of a run from the entries of its metrics.jsonl."""
    panels, best = run_history(entries, language)
    note = _summary(panels, best, language)
    panels = {name: many for name, many in panels.items() if any(one.points for one in many)}
    last = max((s.points[-1][0] for many in panels.values() for s in many if s.points), default=1)
    x = linear_axis(caption("step", language), 0, last, tight=True)
    style = {"size": (420, 190), "values": True, "marker": best}
    plots = [draw_plot(s, x, _y_axis(name, s, language), **style) for name, s in panels.items()]
    column = max((plot.width for plot in plots), default=0) + 16
    inner = Drawing(0, 0)
    for first in range(0, len(plots), 2):
        row = Drawing(0, max(plot.height for plot in plots[first : first + 2]))
        for i, plot in enumerate(plots[first : first + 2]):
            row.place(plot, i * column, 0)
            row.width = i * column + plot.width
        inner.place_below(row, gap=16 if first else 0)
    heading = " · ".join(filter(None, (caption("curves", language), title)))
    return add_frame(inner, heading, [note], language)


def _summary(panels: Mapping[str, Sequence[Series]], best: int | None, language: str) -> str:
    if best is None:
        return caption("no validation", language)
    parts = [f"{caption('best', language)}: {caption('step', language)} {best:,}"]
    for name, many in panels.items():
        for series in many:
            value = dict(series.points).get(best) if series.marked else None
            if value is not None:
                named = series if name == "score" else replace(series, name=caption(name, language))
                parts.append(named.describe(value))
    return " · ".join(parts)


def _y_axis(name: str, series: Sequence[Series], language: str) -> Axis:
    values = sorted(value for one in series for _, value in one.points)
    title = caption("loss per target" if name == "loss" else name, language)
    if name == "perplexity":
        return logarithmic_axis(f"{title} ({caption('logarithmic', language)})", values)
    low = 0.0 if name in ("learning rate", "speed", "score") else values[0]
    # The loss of the first steps may be far above all others.
    high = values[min(len(values) - 1, int(0.99 * len(values)))] if name == "loss" else values[-1]
    return linear_axis(title, low, high)
