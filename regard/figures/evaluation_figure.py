"""An evaluation as a picture: BLEU by length, words by frequency, every head's alignment error."""

from collections.abc import Sequence
from html import escape

from regard.evaluation.alignment_heads import Measured
from regard.evaluation.report import Evaluation
from regard.evaluation.scores import Group
from regard.figures.captions import word

_FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
_COLORS = ("#5B4B8A", "#D9A441")
_WIDTH, _HEIGHT, _LEFT = 760, 180, 60


def evaluation_svg(evaluation: Evaluation, language: str = "en") -> str:
    """The picture; text stays text."""
    names = [system.name for system in evaluation.systems]
    parts, y = [_legend(evaluation, names, language)], 76 + 20 * len(names)
    charts = [
        ("bleu by length", [system.lengths for system in evaluation.systems]),
        (f"words by {evaluation.counted}", [system.words for system in evaluation.systems]),
    ]
    for title, groups in charts:
        parts.append(_chart(word(title, language), groups, y))
        y += _HEIGHT + 110
    for system in evaluation.systems:
        if system.alignment is not None and system.alignment.heads:
            parts.append(_heads(system.name, system.alignment, y, language))
            y += 24 * len({head.site for head in system.alignment.heads}) + 90
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" '
        f'viewBox="0 0 {_WIDTH} {y}" font-family="{_FONTS}" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _legend(evaluation: Evaluation, names: Sequence[str], language: str) -> str:
    count = f"{len(evaluation.sources):,} {word('sentences', language)}"
    told = f"{word('evaluation', language)} · {count} · {word('interval', language)}"
    parts = [_text(20, 28, told, bold=True)]
    for i, (name, system) in enumerate(zip(names, evaluation.systems, strict=True)):
        scores = ", ".join(f"{score.name} {score.value:.1f}" for score in system.scores)
        parts.append(f'<rect x="20" y="{40 + 20 * i}" width="12" height="12" fill="{_COLORS[i]}"/>')
        parts.append(_text(40, 51 + 20 * i, f"{name}: {scores}"))
    return "".join(parts)


def _chart(title: str, systems: Sequence[Sequence[Group]], y: int) -> str:
    """Bars of several systems, group by group, with the number on top of each."""
    labels = list(dict.fromkeys(group.label for groups in systems for group in groups))
    top = max([group.value + group.margin for groups in systems for group in groups], default=1.0)
    scale = _HEIGHT / max(top, 1.0)
    bottom, step = y + 30 + _HEIGHT, (_WIDTH - _LEFT - 20) / max(len(labels), 1)
    bar = min(44.0, step / (len(systems) + 0.6))
    parts = [_text(20, y, title, bold=True)]
    for place, label in enumerate(labels):
        middle = _LEFT + step * (place + 0.5)
        found = [next((g for g in groups if g.label == label), None) for groups in systems]
        for i, group in enumerate(found):
            if group is not None:
                x = middle + bar * (i - len(systems) / 2)
                parts.append(_bar(x, bottom, bar, group, scale, _COLORS[i]))
        n = next(group.n for group in found if group is not None)
        parts.append(_text(middle, bottom + 18, label, anchor="middle"))
        parts.append(_text(middle, bottom + 35, f"n = {n:,}", anchor="middle", faint=True))
    axis = f'<line x1="{_LEFT - 10}" x2="{_WIDTH - 20}" y1="{bottom}" y2="{bottom}" stroke="#888"/>'
    return "".join([*parts, axis])


def _bar(x: float, bottom: int, width: float, group: Group, scale: float, color: str) -> str:
    height, middle = group.value * scale, x + width / 2
    parts = [
        f'<rect x="{x:.1f}" y="{bottom - height:.1f}" width="{width - 3:.1f}" '
        f'height="{height:.1f}" fill="{color}"/>'
    ]
    spread = group.margin * scale
    if spread:
        parts.append(
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{bottom - height - spread:.1f}" '
            f'y2="{bottom - height + spread:.1f}" stroke="#222"/>'
        )
    parts.append(_text(middle, bottom - height - spread - 5, f"{group.value:.1f}", anchor="middle"))
    return "".join(parts)


def _heads(name: str, measured: Measured, y: int, language: str) -> str:
    """One row for each layer, one cell for each head; the number is in the cell."""
    best = measured.best
    how = word("read after" if best.after else "read before", language)
    title = f"{word('alignment errors', language)}: {name}"
    note = f"{how} · {word('chosen', language)}"
    parts = [_text(20, y, title, bold=True), _text(20, y + 18, note, faint=True)]
    sites = list(dict.fromkeys(head.site for head in measured.heads))
    for head in measured.heads:
        x, top = 200 + 62 * head.head, y + 48 + 24 * sites.index(head.site)
        error = head.error_after if best.after else head.error
        chosen = (head.site, head.head) in best.places
        outline = ' stroke="#222" stroke-width="2"' if chosen else ""
        parts.append(
            f'<rect x="{x}" y="{top}" width="58" height="20" fill="{_COLORS[0]}" '
            f'fill-opacity="{0.45 * (1 - error):.3f}"{outline}/>'
        )
        parts.append(_text(x + 29, top + 15, f"{error:.3f}", anchor="middle"))
        if head.site == sites[0]:
            number = f"{word('head', language)} {head.head}"
            parts.append(_text(x + 29, top - 6, number, anchor="middle", faint=True))
    parts += [_text(190, y + 63 + 24 * i, site, anchor="end") for i, site in enumerate(sites)]
    return "".join(parts)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    fill = ' fill="#666"' if faint else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}{fill}>{escape(text)}</text>'
    )
