"""From the residual stream to the word: tables of lenses, and signed bars of attributions."""

from regard.analysis.attribution import Attribution, attribution
from regard.analysis.lens import Lens, lens
from regard.analysis.linear_parts import AttributionPart
from regard.errors import InputError
from regard.figures.captions import caption, show_spaces, sublayer_label, text_width, truncate
from regard.figures.colors import FAINT, HAIRLINE, INK, ROLES, shade
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.grid import draw_color_legend
from regard.figures.head_view import HeadView

_MAX_POSITIONS, _MAX_BARS = 16, 24
_ROW, _CELL, _FONT = 34, 84, 12
_BAR, _BARS_WIDTH = 20, 360


def draw_lens(view: HeadView) -> Drawing:
    """Draw the most probable token at each station and position, shaded by its probability."""
    if view.query is not None and view.query < 0:
        raise InputError(f"query is {view.query}; it must be 0 or larger.")
    first = view.query or 0
    found = lens(view.trace, count=1, rows=slice(first, first + _MAX_POSITIONS))
    table = _lens_table(found, view.language)
    table.place_below(draw_color_legend(view.language, label="probability"), gap=14)
    title = caption(f"lens {found.entries}", view.language)
    return add_frame(
        table, title, [caption(f"lens norm {found.norm}", view.language)], view.language
    )


def _lens_table(found: Lens, language: str) -> Drawing:
    rows = [station_label(path, language) for path in found.stations]
    left = max(text_width(row, _FONT) for row in rows) + 14
    n = len(found.positions)
    drawing = Drawing(left + _CELL * n + 10, 30 + _ROW * (len(rows) + 1))
    for j, token in enumerate(found.positions):
        label = truncate(show_spaces(token), _CELL - 8, _FONT)
        drawing.add(Text(left + _CELL * (j + 0.5), 18, label, _FONT, "middle", color=FAINT))
    for i, row in enumerate(rows):
        y = 28 + _ROW * i
        drawing.add(Text(left - 8, y + _ROW / 2 + 4, row, _FONT, "end"))
        for j in range(n):
            _add_cell(drawing, found, (i, j), left + _CELL * j, y)
    y = 28 + _ROW * len(rows) + 18
    drawing.add(Text(left - 8, y, caption("answer", language), _FONT, "end", bold=True))
    for j, id in enumerate(found.answers.tolist()):
        name = truncate(_shown(found.names[id]), _CELL - 8, _FONT)
        drawing.add(Text(left + _CELL * (j + 0.5), y, name, _FONT, "middle", bold=True))
    return drawing


def _add_cell(drawing: Drawing, found: Lens, at: tuple[int, int], x: float, y: float) -> None:
    i, j = at
    id, value = int(found.ids[i, j, 0]), float(found.probabilities[i, j, 0])
    name = _shown(found.names[id])
    tooltip = f"{found.stations[i]}, {found.positions[j]} → {name}: {value:.4f}"
    drawing.add(Box(x, y, _CELL, _ROW, shade(value), HAIRLINE, tooltip=tooltip))
    color = "#FFFFFF" if value > 0.45 else INK
    middle = x + _CELL / 2
    drawing.add(
        Text(middle, y + 15, truncate(name, _CELL - 8, _FONT), _FONT, "middle", color=color)
    )
    drawing.add(Text(middle, y + 28, f"{value:.2f}", 10, "middle", color=color))


def _shown(name: str) -> str:
    """Return a token with visible spaces; SentencePiece writes them as ▁."""
    return show_spaces(name.replace("▁", " "))


def station_label(path: str, language: str) -> str:
    """Return the name of a sub-layer, or of the embedding."""
    label = sublayer_label(path, language)
    if label != path:
        return label
    return caption("embedding" if ".embedding." in path else "final norm", language)


def draw_attribution(view: HeadView) -> Drawing:
    """Draw what each part of the model adds to the logit of the answer, as signed bars.

    The parts that are too small for a bar of their own are summed in one.
    """
    found, language = attribution(view.trace, position=view.query), view.language
    rows = _bars(found, language)
    left = max(text_width(label, _FONT) for label, _ in rows) + 14
    lowest, highest = (f(0.0, *(value for _, value in rows)) for f in (min, max))
    scale = _BARS_WIDTH / ((highest - lowest) or 1.0)
    zero = left + 60 - lowest * scale
    drawing = Drawing(left + _BARS_WIDTH + 120, _BAR * len(rows) + 34)
    for i, (label, value) in enumerate(rows):
        width, y = abs(value) * scale, 4 + _BAR * i
        color = ROLES["negative" if value < 0 else "positive"]
        start, sign = (zero - width, "−") if value < 0 else (zero, "+")
        drawing.add(Text(left - 8, y + 14, label, _FONT, "end"))
        tooltip = f"{label}: {value:.4f}"
        drawing.add(Box(start, y + 3, width, _BAR - 6, color, tooltip=tooltip))
        x, anchor = (start - 5, "end") if value < 0 else (zero + width + 5, "start")
        drawing.add(Text(x, y + 14, f"{sign}{abs(value):.3f}", 11, anchor, color=FAINT))
    bottom = 4 + _BAR * len(rows)
    drawing.add(Line(((zero, 0), (zero, bottom + 2)), FAINT, 1))
    total = f"{caption('logit', language)} = {found.logit:.3f}".replace("-", "−")
    drawing.add(Text(zero, bottom + 20, total, _FONT, "middle", bold=True))
    title = caption("attribution", language).format(token=_shown(found.name))
    return add_frame(drawing, title, [caption("attribution note", language)], language)


def _bars(found: Attribution, language: str) -> list[tuple[str, float]]:
    """Return labels and values: the largest parts, the sum of the others, and the bias."""
    ranked = found.ranked()
    rows = [(part_label(part, language), part.value) for part in ranked[:_MAX_BARS]]
    if rest := ranked[_MAX_BARS:]:
        label = caption("smaller parts", language).format(count=len(rest))
        rows.append((label, sum(part.value for part in rest)))
    if found.bias:
        rows.append((caption("output bias", language), found.bias))
    return rows


def part_label(part: AttributionPart, language: str) -> str:
    """Return the name of a part."""
    if part.kind == "embedding":
        name = part.path.rpartition(".")[2]
        return caption(f"embedding {name}", language)
    if part.kind == "readout":
        return caption("readout bias", language)
    label = station_label(part.path, language)
    if part.kind == "head":
        return f"{label} · {caption('head', language)} {part.head}"
    if part.kind in ("bias", "norm", "edit"):
        return f"{label} · {caption(f'part {part.kind}', language)}"
    return label
