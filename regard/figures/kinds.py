"""Pictures that people draw by hand, from real computations: by kind, to any kind of file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.analysis.architecture import architecture
from regard.errors import InputError, UnknownNameError, nearest
from regard.figures.architecture_figure import draw_architecture
from regard.figures.attention_figures import (
    draw_alignment,
    draw_heads,
    draw_lines,
    draw_masks,
    draw_pattern,
    draw_positions,
)
from regard.figures.captions import caption
from regard.figures.drawing import Drawing
from regard.figures.plots import draw_complexity, draw_schedule
from regard.figures.raster import to_pdf, to_png
from regard.figures.steps_figure import draw_steps
from regard.figures.subject import Subject
from regard.figures.svg import to_svg
from regard.files import write_atomic
from regard.trace.trace import Trace

OF_TRACES: dict[str, Callable[[Subject], Drawing]] = {
    "pattern": draw_pattern,
    "lines": draw_lines,
    "heads": draw_heads,
    "steps": draw_steps,
    "alignment": draw_alignment,
}
OF_NOTHING: dict[str, Callable[..., Drawing]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "schedule": draw_schedule,
    "complexity": draw_complexity,
}
OF_MODELS = ("architecture",)
KINDS = (*OF_TRACES, *OF_NOTHING, *OF_MODELS)
WRITERS: dict[str, Callable[[Drawing], str | bytes]] = {
    ".svg": to_svg,
    ".png": to_png,
    ".pdf": to_pdf,
}


@dataclass(frozen=True)
class Figure:
    """A picture, not yet a file."""

    drawing: Drawing

    @property
    def svg(self) -> str:
        """The picture as SVG."""
        return to_svg(self.drawing)

    def save(self, path: str | Path) -> None:
        """Write the picture; the ending of the name says as what."""
        write_atomic(path, WRITERS[ending(path)](self.drawing))

    def _repr_svg_(self) -> str:
        return self.svg


def ending(path: str | Path) -> str:
    """The ending of a picture's name, checked."""
    found = Path(path).suffix.lower()
    if found not in WRITERS:
        raise InputError(f"{path} must end in {', '.join(WRITERS)}: the ending says what to write.")
    return found


def draw_trace(trace: Trace, kind: str, *, site: str | None = None, **options: Any) -> Figure:
    """A picture of a trace: pattern, lines, heads, steps or alignment.

    Args:
        site: an attention site; the one that reads best unless named.
        options: head, query (a position), style ("circles" or "heat"), language ("en" or "ko").
    """
    if kind == "architecture" and trace.origin is not None:
        return draw_model(trace.origin.model, language=options.get("language", "en"))
    if kind not in OF_TRACES:
        raise UnknownNameError(f"a trace has no picture {kind!r}; {nearest(kind, OF_TRACES)}.")
    subject = Subject(trace, site, **options)
    caption("head", subject.language)  # which refuses languages that are not there
    return Figure(OF_TRACES[kind](subject))


def draw_model(model: Any, *, name: str = "", language: str = "en") -> Figure:
    """The plan of a model."""
    return Figure(draw_architecture(architecture(model), name=name, language=language))


def draw_plain(kind: str, *, length: int | None = None, language: str = "en") -> Figure:
    """A picture that needs no model: masks, positions, schedule or complexity."""
    if kind not in OF_NOTHING:
        raise UnknownNameError(f"there is no picture {kind!r}; {nearest(kind, KINDS)}.")
    least = _LEAST[kind]
    if length is not None and not least[0] <= length <= least[1]:
        raise InputError(f"length is {length}; for {kind} it can be {least[0]} to {least[1]:,}.")
    given = {} if length is None else {"length": length}
    return Figure(OF_NOTHING[kind](language=language, **given))


_LEAST = {
    "masks": (2, 24),
    "positions": (2, 4096),
    "schedule": (100, 10_000_000),
    "complexity": (256, 2**24),
}
