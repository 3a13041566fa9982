"""Evaluations as a drawing of scores and alignment errors, and as an HTML page of differences."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import pairwise

from regard.evaluation.alignment_heads import HeadErrors
from regard.evaluation.report import Evaluation
from regard.evaluation.scores import Group
from regard.figures.captions import caption
from regard.figures.colors import FAINT, INK, SERIES, shade
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.formats import html_page, to_svg
from regard.text.pieces import word_spans

_WIDTH, _HEIGHT = 720, 180


def draw_evaluation(evaluation: Evaluation, *, language: str = "en") -> Drawing:
    """Draw BLEU by length, F1 by word frequency, and each head's alignment error."""
    systems = evaluation.systems
    drawing = Drawing(_WIDTH, 20 * len(systems))
    for i, system in enumerate(systems):
        scores = ", ".join(f"{score.name} {score.value:.1f}" for score in system.scores)
        drawing.add(Box(0, 20 * i, 12, 12, SERIES[i]))
        drawing.add(Text(20, 20 * i + 11, f"{system.name}: {scores}"))
    charts = {
        "bleu by length": [system.lengths for system in systems],
        f"words by {evaluation.counted}": [system.words for system in systems],
    }
    for title, groups in charts.items():
        drawing.place_below(_draw_bars(caption(title, language), groups), gap=24)
    for system in systems:
        if system.alignment is not None and system.alignment.heads:
            title = f"{caption('alignment errors', language)}: {system.name}"
            drawing.place_below(_draw_heads(title, system.alignment, language), gap=32)
    count = f"{len(evaluation.sources):,} {caption('sentences', language)}"
    notes = [f"{count} · {caption('interval', language)}"]
    return add_frame(drawing, caption("evaluation", language), notes, language)


def _draw_bars(title: str, systems: Sequence[Sequence[Group]]) -> Drawing:
    drawing = Drawing(_WIDTH, _HEIGHT + 80)
    labels = list(dict.fromkeys(group.label for groups in systems for group in groups))
    top = max([group.value + group.margin for groups in systems for group in groups], default=1.0)
    scale, bottom = _HEIGHT / max(top, 1.0), 40 + _HEIGHT
    step = _WIDTH / max(len(labels), 1)
    width = min(44.0, step / (len(systems) + 0.6))
    drawing.add(Text(0, 12, title, bold=True))
    for position, label in enumerate(labels):
        middle = step * (position + 0.5)
        drawing.add(Text(middle, bottom + 18, label, anchor="middle"))
        for i, groups in enumerate(systems):
            group = next((group for group in groups if group.label == label), None)
            if group is None:
                continue
            x, y = middle + width * (i - len(systems) / 2), bottom - group.value * scale
            center, margin = x + (width - 3) / 2, group.margin * scale
            drawing.add(Box(x, y, width - 3, bottom - y, SERIES[i], tooltip=f"{group.value:.4f}"))
            if margin:
                drawing.add(Line(((center, y - margin), (center, y + margin)), INK))
            drawing.add(Text(center, y - margin - 5, f"{group.value:.1f}", 12, "middle"))
            if i == 0 or label not in {other.label for other in systems[0]}:
                count = Text(middle, bottom + 35, f"n = {group.n:,}", 12, "middle", color=FAINT)
                drawing.add(count)
    drawing.add(Line(((0, bottom), (_WIDTH, bottom)), "#888888"))
    return drawing


def _draw_heads(title: str, errors: HeadErrors, language: str) -> Drawing:
    best = errors.best
    sites = list(dict.fromkeys(head.site for head in errors.heads))
    drawing = Drawing(_WIDTH, 62 + 24 * len(sites))
    read = caption("read after" if best.after else "read before", language)
    drawing.add(Text(0, 12, title, bold=True))
    drawing.add(Text(0, 30, f"{read} · {caption('chosen', language)}", 12, color=FAINT))
    for i, site in enumerate(sites):
        drawing.add(Text(170, 77 + 24 * i, site, anchor="end"))
    for head in errors.heads:
        x, y = 180 + 62 * head.head, 62 + 24 * sites.index(head.site)
        error = head.error_after if best.after else head.error
        stroke, width = (INK, 2) if (head.site, head.head) in best.places else (None, 1)
        drawing.add(Box(x, y, 58, 20, shade(0.4 * (1 - error)), stroke, stroke_width=width))
        drawing.add(Text(x + 29, y + 15, f"{error:.3f}", anchor="middle"))
        if head.site == sites[0]:
            label = f"{caption('head', language)} {head.head}"
            drawing.add(Text(x + 29, y - 6, label, 12, "middle", color=FAINT))
    drawing.width = max(_WIDTH, *(238 + 62 * head.head for head in errors.heads))
    return drawing


_CSS = (
    "body{max-width:80rem}h1{font-size:1.4rem}table{border-collapse:collapse;width:100%}"
    "table.scores{width:auto}.scores td,.scores th{padding:.25rem 1.6rem .25rem .6rem}"
    ".scores td{font-variant-numeric:tabular-nums}"
    "ul{list-style:none;padding:0 .6rem;color:#555;font-size:.85em}.n,.s{width:3.2rem}"
    "th{text-align:left;font-weight:600;padding:.4rem .6rem;border-bottom:2px solid #888}"
    ".scores tbody th{font-weight:400;border-bottom:1px solid #ddd}"
    "td{vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid #ddd;overflow-wrap:anywhere}"
    ".n,.s{color:#666;font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}"
    "ins{text-decoration:underline;text-decoration-thickness:2px;background:#EAE5F5}"
    "del{text-decoration:line-through;color:#8a5a00;background:#FBF1DD}"
    "small,label,p{color:#555}code{font-size:.85em}"
    "#same:checked~table tr.same{display:none}svg{max-width:100%;height:auto}"
    "figure{margin:1.5rem 0 1.5rem -.6rem}"
)


def evaluation_html(evaluation: Evaluation, *, language: str = "en") -> str:
    """Return an HTML page with scores, figure, and every translation with its differences."""
    systems, toggle, order = evaluation.systems, "", "worst first"
    if len(systems) > 1:
        label, order = escape(caption("hide equal", language)), "largest difference first"
        toggle = f'<input type="checkbox" id="same"> <label for="same">{label}</label>'
    heads = ["", caption("source", language), caption("reference", language)]
    heads += [head for system in systems for head in (system.name, "chrF")]
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    rows = "".join(_sentence_row(evaluation, i) for i in _sentence_order(evaluation))
    note = f"{caption('differences', language)} {caption(order, language)}"
    body = (
        f"{_score_table(evaluation, language)}"
        f"<figure>{to_svg(draw_evaluation(evaluation, language=language))}</figure>"
        f"<p>{escape(note)}</p>{toggle}"
        f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"
    )
    return html_page(caption("evaluation", language), body, css=_CSS, language=language)


def mark_differences(reference: str, text: str) -> str:
    """Return a text as HTML: <ins> for words not in the reference, <del> for missing ones."""
    expected, given = _split_words(reference), _split_words(text)
    parts: list[str] = []
    stripped = ([word.strip() for word in words] for words in (expected, given))
    for kind, i, j, k, end in SequenceMatcher(None, *stripped, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(escape("".join(given[k:end])))
        if kind in ("delete", "replace"):
            parts.append(f"<del>{escape(''.join(expected[i:j]).strip())}</del> ")
        if kind in ("insert", "replace"):
            added = "".join(given[k:end])
            space = " " if added.endswith(" ") else ""
            parts.append(f"<ins>{escape(added.strip())}</ins>{space}")
    return "".join(parts).strip()


def _split_words(text: str) -> list[str]:
    """Split a text into words and punctuation, each with the space after it."""
    starts = [start for start, _ in word_spans(text)]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def _sentence_order(evaluation: Evaluation) -> list[int]:
    first, *others = (system.sentences for system in evaluation.systems)
    keys = [-abs(a - b) for a, b in zip(first, others[0], strict=True)] if others else first
    return sorted(range(len(keys)), key=keys.__getitem__)


def _sentence_row(evaluation: Evaluation, i: int) -> str:
    reference, systems = evaluation.references[i], evaluation.systems
    equal = len(systems) > 1 and len({system.texts[i] for system in systems}) == 1
    cells = "".join(
        f"<td>{mark_differences(reference, system.texts[i])}</td>"
        f'<td class="s">{system.sentences[i]:.1f}</td>'
        for system in systems
    )
    row = '<tr class="same">' if equal else "<tr>"
    return (
        f'{row}<td class="n">{i + 1}</td><td>{escape(evaluation.sources[i])}</td>'
        f"<td>{escape(reference)}</td>{cells}</tr>"
    )


def _score_table(evaluation: Evaluation, language: str) -> str:
    systems, signatures = evaluation.systems, ""
    compared = any(score.p_value is not None for system in systems for score in system.scores)
    heads = [system.name for system in systems] + [caption("p-value", language)] * compared
    rows: list[list[str]] = []
    for scores in zip(*(system.scores for system in systems), strict=False):
        values = [f"{score.value:.2f} <small>± {score.margin:.2f}</small>" for score in scores]
        p_values = [f"{score.p_value:.3f}" for score in scores if score.p_value is not None]
        rows.append([scores[0].name, *values, *p_values])
        name, signature = escape(scores[0].name), escape(scores[0].signature)
        signatures += f"<li>{name} <code>{signature}</code></li>"
    exact = [f"{100 * system.exact:.1f} %" for system in systems]
    rows.append([caption("exact match", language), *exact, *[""] * compared])
    perplexities = ["" if s.perplexity is None else f"{s.perplexity:.2f}" for s in systems]
    if any(perplexities):
        rows.append([caption("perplexity", language), *perplexities, *[""] * compared])
    lines = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    return (
        '<table class="scores"><thead><tr><th></th>'
        f"{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr></thead>"
        f"<tbody>{lines}</tbody></table><ul>{signatures}</ul>"
    )
