"""A worked example as a page, a picture, Markdown or LaTeX."""

from collections.abc import Callable
from html import escape
from math import inf

from regard.analysis.worked_example import Table, Worked
from regard.figures.captions import word


def digits(number: float) -> str:
    """A number as small matrices write it: up to four decimals, −∞ for what is forbidden."""
    if number == -inf:
        return "−∞"
    text = f"{number:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


def as_markdown(worked: Worked, language: str = "en") -> str:
    """Markdown: a heading and a table for each step."""
    parts = [f"# {word('worked example', language)}", settings(worked, language)]
    for table in worked.tables:
        parts.append(f"## {title(table)}: {word(table.name, language)}")
        heads, rows = cells(table, language)
        lines = ["| " + " | ".join(line) + " |" for line in (heads, *rows)]
        lines.insert(1, "|" + "---|" * len(heads))
        parts.append("\n".join(line.replace("|  |", "| |") for line in lines))
    return "\n\n".join(parts) + "\n"


def as_latex(worked: Worked, language: str = "en") -> str:
    """LaTeX: an equation with a matrix for each step."""
    parts = [f"% {word('worked example', language)}"]
    for table in worked.tables:
        body = r" \\ ".join(
            " & ".join(digits(x).replace("−∞", r"-\infty").replace("−", "-") for x in row)
            for row in table.values
        )
        left = _tex(table.symbol) + (f" = {_tex(table.formula)}" if table.formula else "")
        note = f"% {word(table.name, language)}"
        parts.append(f"{note}\n\\[ {left} = \\begin{{bmatrix}} {body} \\end{{bmatrix}} \\]")
    return "\n".join(parts) + "\n"


def as_html(worked: Worked, language: str = "en") -> str:
    """One page that asks for nothing from outside."""
    sections = []
    for table in worked.tables:
        heads, rows = cells(table, language)
        top = "".join(f"<th>{escape(head)}</th>" for head in heads)
        body = "".join(
            f"<tr><th>{escape(row[0])}</th>"
            + "".join(f'<td style="{_shade(table, cell)}">{escape(cell)}</td>' for cell in row[1:])
            + "</tr>"
            for row in rows
        )
        sections.append(
            f"<section><h2>{escape(title(table))}</h2><p>{escape(word(table.name, language))}</p>"
            f"<table><tr>{top}</tr>{body}</table></section>"
        )
    name = escape(word("worked example", language))
    chosen = escape(settings(worked, language))
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_CSS}</style><h1>{name}</h1><p>{chosen}</p><main>{''.join(sections)}</main></html>\n"
    )


def as_svg(worked: Worked, language: str = "en") -> str:
    """A picture: one matrix below the other, text stays text."""
    parts, y, width = [], 30, 0
    for table in worked.tables:
        heads, rows = cells(table, language)
        parts.append(_heading(y, title(table), word(table.name, language)))
        for i, row in enumerate((heads, *rows)):
            y += 24
            for j, cell in enumerate(row):
                shaded = table.name == "weights" and i and 0 < j < len(row) - 1
                parts.append(_box(cell, 20 + 84 * j, y) if shaded else "")
                parts.append(_text(96 + 84 * j, y, cell, anchor="end", bold=not i or not j))
        width = max(width, 40 + 84 * len(heads))
        y += 44
    width = max(width, 620)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'viewBox="0 0 {width} {y}" font-family="{_FONTS}" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


WRITERS: dict[str, Callable[[Worked, str], str]] = {
    ".html": as_html,
    ".svg": as_svg,
    ".md": as_markdown,
    ".tex": as_latex,
}

_FONTS = "Inter, 'Noto Sans', 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif"
_CSS = (
    f"body{{font:15px/1.5 {_FONTS};margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}}"
    "h2{font-size:1.1rem;margin:1.6rem 0 0}section p{margin:0;color:#666}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th{font-weight:500;color:#666;text-align:right;padding:.2rem .6rem}"
    "td{text-align:right;padding:.2rem .6rem;border:1px solid #ddd}"
)


def title(table: Table) -> str:
    """A step's symbol and formula."""
    return f"{table.symbol} = {table.formula}" if table.formula else table.symbol


def settings(worked: Worked, language: str) -> str:
    """Similarity, mask and temperature in one line."""
    named = {"similarity": worked.similarity, "mask": worked.mask}
    named["temperature"] = digits(worked.temperature)
    return ", ".join(f"{word(key, language)}: {value}" for key, value in named.items())


def cells(table: Table, language: str) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows of text; rows of weights get their sum."""
    heads = ["", *(table.columns or [str(i + 1) for i in range(len(table.values[0]))])]
    names = table.rows or [str(i + 1) for i in range(len(table.values))]
    rows = [
        [name, *(digits(x) for x in row)] for name, row in zip(names, table.values, strict=True)
    ]
    if table.name == "weights":
        heads.append(f"Σ {word('row sum', language)}")
        sums = (digits(sum(row)) for row in table.values)
        rows = [[*row, total] for row, total in zip(rows, sums, strict=True)]
    return heads, rows


def _shade(table: Table, cell: str) -> str:
    """Darker for more weight; the digits carry the meaning, the shade only helps."""
    if cell == "−∞":
        return "color:#999"
    if table.name != "weights":
        return ""
    return f"background:rgba(91,75,138,{0.35 * float(cell.replace('−', '-')):.3f})"


def _heading(y: int, symbols: str, words: str) -> str:
    return (
        f'<text x="20" y="{y}" font-weight="600">{escape(symbols)}'
        f'<tspan dx="14" font-weight="400" fill="#666">{escape(words)}</tspan></text>'
    )


def _box(cell: str, x: int, y: int) -> str:
    opacity = min(0.35 * float(cell.replace("−", "-")), 0.35)
    return (
        f'<rect x="{x}" y="{y - 17}" width="82" height="22" fill="#5B4B8A" '
        f'fill-opacity="{opacity:.3f}"/>'
    )


def _text(x: int, y: int, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _tex(text: str) -> str:
    for sign, command in (
        ("ᵀ", r"^{\top}"),
        ("√", r"\sqrt "),
        ("′", "'"),
        ("−∞", r"-\infty"),
        ("softmax", r"\operatorname{softmax}"),
        ("mask", r"\operatorname{mask}"),
        ("tanh", r"\tanh"),
        ("cos", r"\cos"),
        (" · ", r" \cdot "),
    ):
        text = text.replace(sign, command)
    return text
