"""Kinds of figures by name: of traces, of models, and of concepts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import nn

from regard.analysis.architecture import architecture
from regard.errors import InputError, UnknownNameError, nearest
from regard.figures import attention_figures as attention
from regard.figures import concept_figures as concepts
from regard.figures import layer_figures as layers
from regard.figures import query_figures as one_query
from regard.figures import relation_figures as relations
from regard.figures import step_figures as steps
from regard.figures.architecture_figure import draw_architecture
from regard.figures.attention_figures import draw_attribution, draw_lens
from regard.figures.captions import check_language
from regard.figures.curves import Snapshot, draw_training, training_frames
from regard.figures.drawing import Drawing
from regard.figures.formats import Figure
from regard.figures.head_view import HeadView
from regard.figures.plots import draw_complexity
from regard.trace.trace import Trace

TRACE_KINDS: dict[str, Callable[[HeadView], Drawing]] = {
    "pattern": attention.draw_pattern,
    "lines": attention.draw_lines,
    "heads": attention.draw_heads,
    "compare": attention.draw_compare,
    "alignment": attention.draw_alignment,
    "stages": layers.draw_stages,
    "layer": layers.draw_layer,
    "split": layers.draw_split,
    "additive": steps.draw_additive,
    "steps": steps.draw_steps,
    "bars": one_query.draw_bars,
    "temperature": one_query.draw_temperature,
    "reference": one_query.draw_reference,
    "graph": relations.draw_graph,
    "space": relations.draw_space,
    "image": relations.draw_image,
    "decode": relations.draw_decode,
    "lens": draw_lens,
    "attribution": draw_attribution,
}
FRAMES: dict[str, Callable[[HeadView], list[Drawing]]] = {
    "temperature": one_query.temperature_frames,
    "decode": relations.decode_frames,
}
CONCEPT_KINDS: dict[str, Callable[..., Drawing]] = {
    "masks": concepts.draw_masks,
    "padding": concepts.draw_padding,
    "positions": concepts.draw_positions,
    "waves": concepts.draw_waves,
    "scaling": concepts.draw_scaling,
    "cost": concepts.draw_cost,
    "efficient": concepts.draw_efficient,
    "complexity": draw_complexity,
}
KINDS = (*TRACE_KINDS, "architecture", "merges", "training", *CONCEPT_KINDS, "schedule")
MOVING_KINDS = (*FRAMES, "training")
LENGTHS = {  # smallest and largest
    "masks": (2, 24),
    "positions": (2, 4096),
    "waves": (2, 4096),
    "efficient": (16, 2**20),
    "complexity": (256, 2**24),
    "schedule": (100, 10_000_000),
}


def head_figure(
    kind: str,
    view: HeadView,
    *,
    other: Trace | None = None,
    other_site: str | None = None,
    other_head: int | None = None,
) -> Figure:
    """Draw a figure of a head; "compare" sets another one next to it."""
    check_language(view.language)
    origin = view.trace.origin
    if kind == "architecture" and origin is not None:
        return model_figure(origin.module, language=view.language)
    if kind not in TRACE_KINDS:
        raise UnknownNameError(f"a trace has no figure {kind!r}; {nearest(kind, TRACE_KINDS)}.")
    if other is not None or other_site is not None or other_head is not None:
        if kind != "compare":
            raise InputError(f"{kind} shows one head: only compare takes another one.")
        second = HeadView(
            other or view.trace,
            other_site or view.site.path,
            view.head_index if other_head is None else other_head,
            language=view.language,
            queries=view.queries,
            hide_special=view.hide_special,
        )
        view = replace(view, other=second)
    frames = partial(FRAMES[kind], view) if kind in FRAMES else None
    return Figure(TRACE_KINDS[kind](view), frames)


def model_figure(module: nn.Module, *, name: str = "", language: str = "en") -> Figure:
    """Draw the architecture of a model."""
    return Figure(draw_architecture(architecture(module), name=name, language=language))


def training_figure(
    snapshots: Sequence[Snapshot], *, site: str | None = None, language: str = "en"
) -> Figure:
    """Draw the heads of a site as they form during a training run."""
    frames = partial(training_frames, snapshots, site=site, language=language)
    return Figure(draw_training(snapshots, site=site, language=language), frames)


def concept_figure(kind: str, *, length: int | None = None, language: str = "en") -> Figure:
    """Draw a figure that needs no model, such as "masks"; `length` is for those of LENGTHS."""
    if kind not in CONCEPT_KINDS:
        raise UnknownNameError(f"unknown figure {kind!r}; {nearest(kind, CONCEPT_KINDS)}.")
    options = {} if length is None else {"length": check_length(kind, length)}
    return Figure(CONCEPT_KINDS[kind](language=language, **options))


def check_length(kind: str, length: int) -> int:
    """Return a length that a figure can have, or raise."""
    if kind not in LENGTHS:
        raise InputError(f"{kind} does not use length: leave it out.")
    low, high = LENGTHS[kind]
    if not low <= length <= high:
        raise InputError(f"length is {length}; for {kind} it can be {low} to {high:,}.")
    return length
