"""A training run: its learning curves, and its heads as they form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp
from typing import Any

from regard.figures.attention_figures import draw_heads, head_pictures
from regard.figures.captions import caption, show_spaces, truncate
from regard.figures.colors import FAINT, HAIRLINE, shade_array
from regard.figures.drawing import Box, Drawing, Image, Text, add_frame
from regard.figures.grid import draw_color_legend
from regard.figures.head_view import HeadView
from regard.figures.plots import Axis, Points, Series, draw_plot, linear_axis, logarithmic_axis
from regard.trace.trace import Trace

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


@dataclass(frozen=True)
class Snapshot:
    """A trace of one text in the middle of a training run."""

    step: int
    loss: float | None
    trace: Trace

    def heading(self, language: str) -> str:
        """Return the step and the loss."""
        step = f"{caption('step', language)} {self.step:,}"
        return (
            step if self.loss is None else f"{step} · {caption('loss', language)} {self.loss:.2f}"
        )

    def answer(self) -> str:
        """Return what the model wrote at this step."""
        tokens = self.trace.tokens.get("output", [])
        return truncate(show_spaces("".join(tokens)), _STRIP, 11)


_STRIP, _MAX_STRIPS = 150, 6  # side of a picture, and how many steps stand side by side


def draw_training(
    snapshots: Sequence[Snapshot], *, site: str | None = None, language: str = "en"
) -> Drawing:
    """Draw all heads of a site at several steps of a run, from the first to the last."""
    last = len(snapshots) - 1
    count = min(len(snapshots), _MAX_STRIPS)
    chosen = [snapshots[round(i * last / max(count - 1, 1))] for i in range(count)]
    path = _site_of(snapshots, site)
    drawing, left, title = Drawing(0, 0), 64.0, ""
    for i, snapshot in enumerate(chosen):
        view, x = HeadView(snapshot.trace, path, language=language), left + i * (_STRIP + 16)
        pictures, title = head_pictures(view), view.site_title()
        drawing.add(Text(x, 12, snapshot.heading(language), 12, bold=True))
        drawing.add(Text(x, 28, f"→ {snapshot.answer()}", 11, color=FAINT))
        for head, pixels in enumerate(pictures):
            y = 38 + head * (_STRIP + 12)
            if i == 0:
                label = f"{caption('head', language)} {head}"
                drawing.add(Text(left - 10, y + _STRIP / 2, label, 12, "end", bold=True))
            drawing.add(Image(x, y, _STRIP, _STRIP, shade_array(pixels)))
            drawing.add(Box(x, y, _STRIP, _STRIP, stroke=HAIRLINE))
        drawing.height = max(drawing.height, 38 + len(pictures) * (_STRIP + 12))
        drawing.width = x + _STRIP + 16
    drawing.place_below(draw_color_legend(language), left=left)
    heading = f"{caption('training figure', language)} · {title}"
    return add_frame(drawing, heading, [caption("training note", language)], language)


def training_frames(
    snapshots: Sequence[Snapshot], *, site: str | None = None, language: str = "en"
) -> list[Drawing]:
    """Return all heads of a site at each step of a run, with what the model wrote then."""
    path, frames = _site_of(snapshots, site), []
    for snapshot in snapshots:
        heads = draw_heads(HeadView(snapshot.trace, path, language=language))
        line = f"{snapshot.heading(language)}   → {snapshot.answer()}"
        frames.append(add_frame(heads, line, [], language))
    return frames


def _site_of(snapshots: Sequence[Snapshot], site: str | None) -> str:
    """Return the site to show: by default, the most readable one of the trained model."""
    view = HeadView(snapshots[-1].trace, site)
    return view.site.path
