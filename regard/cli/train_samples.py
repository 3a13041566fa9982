"""What a model in training says, and which words of it come from which: for people to look at."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from regard.bundle.bundle import Bundle
from regard.engine.translator import Part, Translation
from regard.explain.alignment import Alignment, alignment_of
from regard.figures.terminal import draw_pattern, width
from regard.trace.run import trace_bundle
from regard.training.callbacks import Evaluation
from regard.training.report import sample_lines

_INDENT = "    "
_SLIGHT = 0.01
"""Weights below this are left out."""


def with_alignment(bundle: Bundle, evaluation: Evaluation) -> Evaluation:
    """The evaluation, in which the first translation also says which words belong together."""
    for number, sample in enumerate(evaluation.samples):
        found = _alignment(bundle, sample) if sample.get("written") else None
        if found is not None:
            samples = list(evaluation.samples)
            samples[number] = {**sample, "alignment": found}
            return replace(evaluation, samples=samples)
    return evaluation


def _alignment(bundle: Bundle, sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """By the mean of all heads of the layer that aligns best in most models: the last but one.

    (Garg et al. 2019.) Which heads align best in this one cannot be known while it learns.
    """
    source, target = bundle.tokenizer, bundle.target_tokenizer
    if "source" not in sample or source is None or target is None:
        return None
    text, ids = sample["written"], target.encode(sample["written"], specials=False)
    trace = trace_bundle(bundle, source.encode(sample["source"]), ids)
    sites = [path for path in trace if path.endswith("cross")]
    if not sites:
        return None  # recurrent models without attention
    site = trace[sites[max(len(sites) - 2, 0)]]
    weights = np.mean([site.weights(head).numpy() for head in range(site.n_heads)], axis=0)
    weights = weights[: len(ids)]
    if len(text.split()) < 2:  # a date, a word: then tokens say more than words
        places = zip(*np.nonzero(weights >= _SLIGHT), strict=True)
        soft = [(int(j), int(i), float(weights[i, j])) for i, j in places]
        written = trace.tokens["target"][1 : len(ids) + 1]
        return Alignment(list(trace.tokens["source"]), list(written), soft).to_json()
    part = Part(sample["source"], text, source.encode(sample["source"]), ids)
    whole = Translation(text, 0.0, [], [], parts=(part,))
    return alignment_of(whole, [weights], (source, target)).to_json()


def drawn_samples(columns: int) -> Callable[[Evaluation], list[str]]:
    """What shows samples on a terminal of this width: the alignment as a picture."""

    def draw(evaluation: Evaluation) -> list[str]:
        return _all_lines(evaluation, lambda alignment: _picture(alignment, columns))

    return draw


def plain_samples(evaluation: Evaluation) -> list[str]:
    """Samples as plain lines, for pipes and files."""
    return _all_lines(evaluation, _plain)


def _all_lines(evaluation: Evaluation, show: Callable[[Mapping[str, Any]], list[str]]) -> list[str]:
    lines: list[str] = []
    for sample in evaluation.samples:
        lines += sample_lines(Evaluation(samples=[sample]))
        if "alignment" in sample:
            lines += [_INDENT + line for line in show(sample["alignment"])]
    return lines


def _plain(alignment: Mapping[str, Any]) -> list[str]:
    """Every word of the target with the word of the source that it attends to most."""
    sources, links = alignment["source_words"], {}
    for link in alignment["hard"].split():
        source, _, target = link.partition("-")
        links[int(target)] = sources[int(source)]
    told = [f"{word}←{links.get(i, '')}" for i, word in enumerate(alignment["target_words"])]
    return [f"alignment: {' '.join(told)}"]


def _picture(alignment: Mapping[str, Any], columns: int) -> list[str]:
    """Rows are words of the target, columns those of the source; a plain line where it is wide."""
    sources, targets = alignment["source_words"], alignment["target_words"]
    weights = np.zeros((len(targets), len(sources)))
    for source, target, weight in alignment["soft"]:
        weights[target, source] = weight
    lines = draw_pattern(weights.tolist(), targets, sources).lines
    if max(map(width, lines), default=0) + len(_INDENT) > columns:
        return _plain(alignment)
    return ["alignment (rows: what was written; columns: the source):", *lines]
