"""Translations beside their references on one page, with every difference marked."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from html import escape

from regard.evaluation.report import Evaluation, System
from regard.evaluation.scores import Score
from regard.figures.captions import word
from regard.figures.evaluation_figure import evaluation_svg
from regard.text.pieces import word_spans

_FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
_CSS = (
    f"body{{font:15px/1.55 {_FONTS};margin:2rem auto;max-width:80rem;padding:0 1rem;color:#222}}"
    "h1{font-size:1.4rem}table{border-collapse:collapse;width:100%}"
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


def comparison_html(evaluation: Evaluation, language: str = "en") -> str:
    """One page that asks for nothing from outside."""
    title = escape(word("evaluation", language))
    several = len(evaluation.systems) > 1
    order = word("widest first" if several else "worst first", language)
    hide = ""
    if several:
        label = escape(word("hide equal", language))
        hide = f'<input type="checkbox" id="same"> <label for="same">{label}</label>'
    heads = ["", word("source", language), word("reference", language)]
    cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
    cells += "".join(f"<th>{escape(one.name)}</th><th>chrF</th>" for one in evaluation.systems)
    rows = "".join(_row(evaluation, i) for i in _order(evaluation))
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_CSS}</style><h1>{title}</h1>{_numbers(evaluation, language)}"
        f"<figure>{evaluation_svg(evaluation, language)}</figure>"
        f"<p>{escape(word('differences', language))} {escape(order)}</p>{hide}"
        f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></html>\n"
    )


def marked(reference: str, text: str) -> str:
    """The text as HTML: what is not in the reference underlined, what is missing struck through."""
    theirs, ours = _words(reference), _words(text)
    parts: list[str] = []
    matcher = SequenceMatcher(None, [w.strip() for w in theirs], [w.strip() for w in ours], False)
    for kind, i, j, k, end in matcher.get_opcodes():
        if kind == "equal":
            parts.append(escape("".join(ours[k:end])))
        if kind in ("delete", "replace"):
            parts.append(f"<del>{escape(''.join(theirs[i:j]).strip())}</del> ")
        if kind in ("insert", "replace"):
            added = "".join(ours[k:end])
            space = " " if added.endswith(" ") else ""
            parts.append(f"<ins>{escape(added.strip())}</ins>{space}")
    return "".join(parts).strip()


def _words(text: str) -> list[str]:
    """Words and marks, each with the space that follows it; together they are the text."""
    starts = [start for start, _ in word_spans(text)]
    ends = [*starts[1:], len(text)][: len(starts)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _order(evaluation: Evaluation) -> list[int]:
    """The widest differences between two systems first; the worst sentences of one."""
    tables = [system.sentences for system in evaluation.systems]
    places = range(len(evaluation.sources))
    if len(tables) == 1:
        return sorted(places, key=lambda i: tables[0][i])
    return sorted(places, key=lambda i: -abs(tables[0][i] - tables[1][i]))


def _row(evaluation: Evaluation, i: int) -> str:
    reference = evaluation.references[i]
    texts = {system.texts[i] for system in evaluation.systems}
    same = ' class="same"' if len(evaluation.systems) > 1 and len(texts) == 1 else ""
    cells = "".join(
        f'<td>{marked(reference, system.texts[i])}</td><td class="s">{system.sentences[i]:.1f}</td>'
        for system in evaluation.systems
    )
    return (
        f'<tr{same}><td class="n">{i + 1}</td><td>{escape(evaluation.sources[i])}</td>'
        f"<td>{escape(reference)}</td>{cells}</tr>"
    )


def _numbers(evaluation: Evaluation, language: str) -> str:
    """The scores of all systems in one table, and what each of them is called among researchers."""
    systems = evaluation.systems
    heads = "".join(f"<th>{escape(system.name)}</th>" for system in systems)
    compared = any(score.p_value is not None for system in systems for score in system.scores)
    heads += f"<th>{escape(word('p-value', language))}</th>" if compared else ""
    rows = [_score_row([system.scores[i] for system in systems]) for i in range(_n_scores(systems))]
    exact = [f"{100 * system.exact:.1f} %" for system in systems]
    more = [""] if compared else []
    rows.append(_plain_row(word("exact match", language), [*exact, *more]))
    perplexities = [_perplexity(system) for system in systems]
    if any(perplexities):
        rows.append(_plain_row(word("perplexity", language), [*perplexities, *more]))
    signatures = "".join(
        f"<li>{escape(score.name)} <code>{escape(score.signature)}</code></li>"
        for score in systems[0].scores
    )
    return (
        f'<table class="scores"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table><ul>{signatures}</ul>"
    )


def _n_scores(systems: Sequence[System]) -> int:
    return min(len(system.scores) for system in systems)


def _score_row(scores: Sequence[Score]) -> str:
    values = [f"{score.value:.2f} <small>± {score.margin:.2f}</small>" for score in scores]
    chances = [f"{score.p_value:.3f}" for score in scores if score.p_value is not None]
    cells = "".join(f"<td>{cell}</td>" for cell in (*values, *chances))
    return f"<tr><th>{escape(scores[0].name)}</th>{cells}</tr>"


def _plain_row(name: str, values: Sequence[str]) -> str:
    cells = "".join(f"<td>{value}</td>" for value in values)
    return f"<tr><th>{escape(name)}</th>{cells}</tr>"


def _perplexity(system: System) -> str:
    return "" if system.perplexity is None else f"{system.perplexity:.2f}"
