"""Kinds of figures by name: of traces, of models, and of concepts."""

from collections.abc import Callable

from torch import nn

from regard.analysis.architecture import architecture
from regard.errors import InputError, UnknownNameError, nearest
from regard.figures import attention_figures as attention
from regard.figures.architecture_figure import draw_architecture
from regard.figures.captions import check_language
from regard.figures.drawing import Drawing
from regard.figures.formats import Figure
from regard.figures.head_view import HeadView
from regard.figures.lens_figure import draw_attribution, draw_lens
from regard.figures.plots import draw_complexity
from regard.trace.trace import Trace

TRACE_KINDS: dict[str, Callable[[HeadView], Drawing]] = {
    "pattern": attention.draw_pattern,
    "lines": attention.draw_lines,
    "heads": attention.draw_heads,
    "steps": attention.draw_steps,
    "alignment": attention.draw_alignment,
    "lens": draw_lens,
    "attribution": draw_attribution,
}
CONCEPT_KINDS: dict[str, Callable[..., Drawing]] = {
    "masks": attention.draw_masks,
    "positions": attention.draw_positions,
    "complexity": draw_complexity,
}
KINDS = (*TRACE_KINDS, "architecture", *CONCEPT_KINDS, "schedule")
LENGTHS = {  # smallest and largest
    "masks": (2, 24),
    "positions": (2, 4096),
    "complexity": (256, 2**24),
    "schedule": (100, 10_000_000),
}


def trace_figure(
    trace: Trace,
    kind: str,
    *,
    site: str | None = None,
    head: int | None = None,
    query: int | None = None,
    style: str | None = None,
    language: str = "en",
) -> Figure:
    """Draw a figure of a trace; `Trace.figure` explains the options."""
    check_language(language)
    if kind == "architecture" and trace.origin is not None:
        return model_figure(trace.origin.module, language=language)
    if kind not in TRACE_KINDS:
        raise UnknownNameError(f"a trace has no figure {kind!r}; {nearest(kind, TRACE_KINDS)}.")
    return Figure(TRACE_KINDS[kind](HeadView(trace, site, head, query, style, language)))


def model_figure(module: nn.Module, *, name: str = "", language: str = "en") -> Figure:
    """Draw the architecture of a model."""
    return Figure(draw_architecture(architecture(module), name=name, language=language))


def concept_figure(kind: str, *, length: int | None = None, language: str = "en") -> Figure:
    """Draw a figure that needs no model: "masks", "positions" or "complexity"."""
    if kind not in CONCEPT_KINDS:
        raise UnknownNameError(f"unknown figure {kind!r}; {nearest(kind, CONCEPT_KINDS)}.")
    options = {} if length is None else {"length": check_length(kind, length)}
    return Figure(CONCEPT_KINDS[kind](language=language, **options))


def check_length(kind: str, length: int) -> int:
    """Return a length that a figure can have, or raise."""
    low, high = LENGTHS[kind]
    if not low <= length <= high:
        raise InputError(f"length is {length}; for {kind} it can be {low} to {high:,}.")
    return length
