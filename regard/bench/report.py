"""Measurements of translation as Markdown."""

from collections.abc import Sequence

from regard.bench.timing import table
from regard.bench.translate import (
    BEST,
    DEFAULT,
    HUGGING_FACE,
    OURS,
    SHORT,
    TORCH,
    TORCH_INT8,
    Measured,
)

_SHORT = {
    OURS: "regard",
    SHORT: "regard, shortlist",
    BEST: "CTranslate2, best",
    DEFAULT: "CTranslate2, default",
    TORCH: "regard, torch",
    TORCH_INT8: "regard, torch int8",
    HUGGING_FACE: "transformers",
}


def speeds(measured: Sequence[Measured]) -> str:
    """Tokens per second and megabytes of every contender, and our ratio to each."""
    names = [name for name in _SHORT if any(name in _figures(one) for one in measured)]
    rows = [[_case(one), *(_cell(one, name) for name in names)] for one in measured]
    return table(["setting", *(_SHORT[name] for name in names)], rows)


def _case(one: Measured) -> str:
    how = "batches" if one.setting.together else "one by one"
    what = "" if one.setting.text else ", ids to ids"
    return f"{one.model} {one.precision}, beam {one.setting.beam}, {how}{what}"


def _cell(one: Measured, name: str) -> str:
    figures = _figures(one)
    if name not in figures:
        return "–"
    pace, peak = figures[name]
    ratio = f" (×{figures[OURS][0] / pace:.2f})" if name != OURS else ""
    return f"{pace:,.0f}{ratio}, {peak:,.0f} MB"


def _figures(one: Measured) -> dict[str, tuple[float, float]]:
    return {figure.name: (figure.tokens_per_second, figure.peak) for figure in one.figures}
