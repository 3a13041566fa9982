"""Worked examples of attention as a drawing, an HTML page, Markdown or LaTeX."""

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from html import escape
from math import inf, isnan, isqrt, nan
from pathlib import Path

from regard.analysis.worked_example import WorkedExample, WorkedTable
from regard.figures.captions import caption, text_width
from regard.figures.colors import FAINT, shade
from regard.figures.drawing import Box, Drawing, Text, add_frame
from regard.figures.formats import FORMATS, Figure, check_extension, html_page
from regard.files import write_atomic

_CELL = 84
_CSS = (
    "body{max-width:60rem}h2{font-size:1.1rem;margin:1.6rem 0 0}section p{margin:0;color:#666}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th{font-weight:500;color:#666;text-align:right;padding:.2rem .6rem}"
    "td{text-align:right;padding:.2rem .6rem;border:1px solid #ddd}"
)
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_LATEX = {
    "ᵀ": r"^{\top}",
    "√": r"\sqrt ",
    "exp(": r"\exp(",
    "′": "'",
    "−∞": r"-\infty",
    "−": "-",
    "softmax": r"\operatorname{softmax}",
    "mask": r"\operatorname{mask}",
    "tanh": r"\tanh",
    "cos": r"\cos",
    " · ": r" \cdot ",
    "concat(": r"\operatorname{concat}(",
    "patches(": r"\operatorname{patches}(",
    "ρ": r"\rho ",
    "σ": r"\sigma ",
}


BLANK = "____"
_MAX_DENOMINATOR = 24


def format_number(number: float) -> str:
    """Return a number exactly if four decimals, a fraction or a root can; otherwise rounded."""
    if number == -inf:
        return "−∞"
    text = f"{number:.4f}".rstrip("0").rstrip(".")
    if abs(float(text) - number) > 1e-9:
        text = _exact(number) or text
    return "0" if text == "-0" else text.replace("-", "−")


def _exact(number: float) -> str:
    """Return a fraction such as 1/3, or a root such as 3√2/2, if the number is one."""
    sign = "-" if number < 0 else ""
    part = Fraction(abs(number)).limit_denominator(_MAX_DENOMINATOR)
    if abs(part - abs(number)) < 1e-9:
        return f"{sign}{part.numerator}/{part.denominator}"
    square = Fraction(number * number).limit_denominator(_MAX_DENOMINATOR)
    if not square or abs(square - number * number) > 1e-9 * max(1.0, number * number):
        return ""
    inside = square.numerator * square.denominator  # √(p/q) = √(p q) / q
    outside = max(k for k in range(1, isqrt(inside) + 1) if inside % (k * k) == 0)
    factor = Fraction(outside, square.denominator)
    times = "" if factor.numerator == 1 else str(factor.numerator)
    under = "" if factor.denominator == 1 else f"/{factor.denominator}"
    return f"{sign}{times}√{inside // outside**2}{under}"


def quiz(worked: WorkedExample) -> WorkedExample:
    """Return the example with every second number of each computed matrix left blank."""
    tables = [
        replace(
            table,
            values=[
                [nan if (i + j) % 2 == 0 else value for j, value in enumerate(row)]
                for i, row in enumerate(table.values)
            ],
        )
        if table.formula
        else table
        for table in worked.tables
    ]
    return replace(worked, tables=tables)


def _cell(number: float) -> str:
    return BLANK if isnan(number) else format_number(number)


def table_title(table: WorkedTable) -> str:
    """Return the symbol and formula of a step."""
    return f"{table.symbol} = {table.formula}" if table.formula else table.symbol


def settings_line(worked: WorkedExample, language: str) -> str:
    """Return similarity, mask and temperature in one line."""
    settings = {"similarity": worked.similarity, "mask": worked.mask}
    settings["temperature"] = format_number(worked.temperature)
    return ", ".join(f"{caption(key, language)}: {value}" for key, value in settings.items())


def table_cells(table: WorkedTable, language: str) -> tuple[list[str], list[list[str]]]:
    """Return column heads and rows of text; rows of weights end with their sum."""
    heads = ["", *(table.columns or [str(i + 1) for i in range(len(table.values[0]))])]
    names = table.rows or [str(i + 1) for i in range(len(table.values))]
    rows = [[n, *map(_cell, row)] for n, row in zip(names, table.values, strict=True)]
    if table.name in ("weights", "exponentials"):
        heads.append(f"Σ {caption('row sum', language)}")
        for row, values in zip(rows, table.values, strict=True):
            row.append(_cell(sum(values)))
    return heads, rows


def draw_worked(worked: WorkedExample, *, language: str = "en") -> Drawing:
    """Draw every matrix of a worked example, one below the other."""
    drawing, y = Drawing(580, 0), 12
    for table in worked.tables:
        title = table_title(table)
        drawing.add(Text(0, y, title, bold=True))
        note = caption(table.name, language)
        drawing.add(Text(text_width(title) * 1.05 + 14, y, note, color=FAINT))
        heads, rows = table_cells(table, language)
        for i, row in enumerate((heads, *rows)):
            y += 24
            for j, cell in enumerate(row):
                if table.name == "weights" and i and 0 < j < len(heads) - 1:
                    value = table.values[i - 1][j - 1]
                    fill = shade(0.0 if isnan(value) else 0.5 * value)
                    drawing.add(Box(_CELL * j, y - 17, _CELL - 2, 22, fill))
                bold = not i or not j
                drawing.add(Text(_CELL * (j + 1) - 8, y, cell, 13, "end", bold))
        drawing.width = max(drawing.width, _CELL * len(heads))
        y += 44
    drawing.height = y - 30
    title = caption("worked example", language)
    return add_frame(drawing, title, [settings_line(worked, language)], language)


def to_markdown(worked: WorkedExample, language: str = "en") -> str:
    """Return a heading and a table for each step, in Markdown."""
    parts = [f"# {caption('worked example', language)}", settings_line(worked, language)]
    for table in worked.tables:
        heads, rows = table_cells(table, language)
        lines = ["| " + " | ".join(line).lstrip() + " |" for line in (heads, *rows)]
        lines.insert(1, "|" + "---|" * len(heads))
        parts += [f"## {table_title(table)}: {caption(table.name, language)}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def to_latex(worked: WorkedExample, language: str = "en") -> str:
    """Return a LaTeX document that compiles as it is, with an equation for each step."""
    packages = [r"\usepackage[fleqn]{amsmath}", r"\usepackage[margin=2cm]{geometry}"]
    if language == "ko":
        packages.append(r"\usepackage{kotex}")
    title = _plain_latex(caption("worked example", language))
    parts = [r"\documentclass{article}", *packages, r"\setcounter{MaxMatrixCols}{64}"]
    parts += [r"\begin{document}", rf"\section*{{{title}}}"]
    parts.append(_plain_latex(settings_line(worked, language)))
    for table in worked.tables:
        body = r" \\ ".join(" & ".join(map(_latex_number, row)) for row in table.values)
        matrix = f"\\begin{{bmatrix}} {body} \\end{{bmatrix}}"
        equation = f"{_latex_formula(table_title(table))} = {matrix}"
        note = _plain_latex(caption(table.name, language))
        parts.append(f"\n\\noindent {note}\n\\[ {equation} \\]")
    return "\n".join([*parts, r"\end{document}"]) + "\n"


def _plain_latex(text: str) -> str:
    for sign in "&%$#_{}":
        text = text.replace(sign, f"\\{sign}")
    for sign, command in {"×": r"$\times$", "−": "-", "√": r"$\surd$", "′": "'"}.items():
        text = text.replace(sign, command)
    return text


def _latex_number(number: float) -> str:
    """Return a number as LaTeX has fractions and roots; blanks are lines."""
    text = _cell(number)
    if text == BLANK:
        return r"\underline{\hspace{2em}}"
    text = re.sub(r"√(\d+)", r"\\sqrt{\1}", text)
    text = re.sub(r"^(−?)(.+)/(\d+)$", r"\1\\frac{\2}{\3}", text)
    return text.replace("−∞", r"-\infty").replace("−", "-")


def _latex_formula(formula: str) -> str:
    for sign, command in _LATEX.items():
        formula = formula.replace(sign, command)
    formula = re.sub(r"([₀-₉]+)", lambda found: f"_{{{found[1].translate(_SUBSCRIPTS)}}}", formula)
    return re.sub(r"W_([A-Za-z])", r"W_{\1}", formula)


def to_html(worked: WorkedExample, language: str = "en") -> str:
    """Return an HTML page without external references."""
    body = f"<p>{escape(settings_line(worked, language))}</p>"
    for table in worked.tables:
        heads, rows = table_cells(table, language)
        lines = "".join(f"<th>{escape(head)}</th>" for head in heads)
        for row, values in zip(rows, table.values, strict=True):
            lines += f"</tr><tr><th>{escape(row[0])}</th>"
            for cell, value in zip(row[1:], [*values, None], strict=False):
                shown = table.name == "weights" and value and not isnan(value)
                color = shade(0.5 * value) if shown and value else "#FFFFFF"
                lines += f'<td style="background:{color}">{cell}</td>'
        body += (
            f"<section><h2>{escape(table_title(table))}</h2><p>"
            f"{escape(caption(table.name, language))}</p><table><tr>{lines}</tr></table></section>"
        )
    return html_page(caption("worked example", language), body, css=_CSS, language=language)


TEXT_FORMATS: dict[str, Callable[[WorkedExample, str], str]] = {
    ".html": to_html,
    ".md": to_markdown,
    ".tex": to_latex,
}
EXTENSIONS = (*TEXT_FORMATS, *FORMATS)


def save_worked(worked: WorkedExample, path: Path, *, language: str = "en") -> None:
    """Write a worked example in the format of the file's extension."""
    extension = check_extension(path, EXTENSIONS)
    if extension in TEXT_FORMATS:
        write_atomic(path, TEXT_FORMATS[extension](worked, language))
    else:
        Figure(draw_worked(worked, language=language)).save(path)


def save_quiz(worked: WorkedExample, path: Path, *, language: str = "en") -> Path:
    """Write an example with blanks, and next to it a file of the answers, whose path it returns."""
    answers = path.with_stem(f"{path.stem}-answers")
    save_worked(quiz(worked), path, language=language)
    save_worked(worked, answers, language=language)
    return answers
