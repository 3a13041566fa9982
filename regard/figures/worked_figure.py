"""Worked examples of attention as a drawing, an HTML page, Markdown or LaTeX."""

from collections.abc import Callable
from html import escape
from math import inf
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
_LATEX = {
    "ᵀ": r"^{\top}",
    "√": r"\sqrt ",
    "′": "'",
    "−∞": r"-\infty",
    "−": "-",
    "softmax": r"\operatorname{softmax}",
    "mask": r"\operatorname{mask}",
    "tanh": r"\tanh",
    "cos": r"\cos",
    " · ": r" \cdot ",
}


def format_number(number: float) -> str:
    """Return a number with up to four decimals, or −∞."""
    if number == -inf:
        return "−∞"
    text = f"{number:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


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
    rows = [[n, *map(format_number, row)] for n, row in zip(names, table.values, strict=True)]
    if table.name == "weights":
        heads.append(f"Σ {caption('row sum', language)}")
        for row, values in zip(rows, table.values, strict=True):
            row.append(format_number(sum(values)))
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
                    fill = shade(0.5 * table.values[i - 1][j - 1])
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
    """Return an equation with a matrix for each step, in LaTeX."""
    parts = [f"% {caption('worked example', language)}"]
    for table in worked.tables:
        body = r" \\ ".join(" & ".join(map(format_number, row)) for row in table.values)
        equation = f"{table_title(table)} = \\begin{{bmatrix}} {body} \\end{{bmatrix}}"
        for sign, command in _LATEX.items():
            equation = equation.replace(sign, command)
        parts.append(f"% {caption(table.name, language)}\n\\[ {equation} \\]")
    return "\n".join(parts) + "\n"


def to_html(worked: WorkedExample, language: str = "en") -> str:
    """Return an HTML page without external references."""
    body = f"<p>{escape(settings_line(worked, language))}</p>"
    for table in worked.tables:
        heads, rows = table_cells(table, language)
        lines = "".join(f"<th>{escape(head)}</th>" for head in heads)
        for row, values in zip(rows, table.values, strict=True):
            lines += f"</tr><tr><th>{escape(row[0])}</th>"
            for cell, value in zip(row[1:], [*values, None], strict=False):
                color = shade(0.5 * value) if table.name == "weights" and value else "#FFFFFF"
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
