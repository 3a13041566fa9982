"""Masks as pictures: which query may see which key."""

import numpy as np

from regard.attention.mask import Mask
from regard.attention.masks import causal, padding, window
from regard.figures.captions import caption
from regard.figures.colour import ROLES
from regard.figures.drawing import HAIRLINE, Box, Drawing, Line, Text
from regard.figures.legend import framed

_CELL = 22


def draw_masks(*, length: int = 8, language: str = "en") -> Drawing:
    """The causal mask, padding, a window, and causal with padding."""
    short = max(1, length * 5 // 8)
    radius = max(1, length // 4)
    named: list[tuple[str, str, Mask]] = [
        ("causal mask", "causal()", causal()),
        ("padding mask", f"padding([{short}])", padding([short])),
        ("window mask", f"window({radius})", window(radius)),
        ("causal and padding", f"causal() & padding([{short}])", causal() & padding([short])),
    ]
    side = _CELL * length
    drawing = Drawing(2 * (side + 70), 2 * (side + 84), "")
    for i, (name, code, mask) in enumerate(named):
        panel = _panel(mask.tensor(length, lead=(1,))[0].numpy(), language)
        x, y = i % 2 * (side + 70), i // 2 * (side + 84)
        drawing.add(Text(x, y + 12, caption(name, language), 13, bold=True))
        drawing.add(Text(x, y + 28, code, 12, colour="#666666"))
        drawing.place(panel, x, y + 34)
    return framed(
        drawing, caption("masks", language), [caption("masks legend", language)], language
    )


def _panel(allowed: np.ndarray, language: str) -> Drawing:
    n_rows, n_columns = allowed.shape
    left, top = 24, 20
    drawing = Drawing(left + _CELL * n_columns, top + _CELL * n_rows, "")
    drawing.add(Text(left, 14, caption("keys", language), 11, colour=ROLES["key"], bold=True))
    middle = top + _CELL * n_rows / 2
    queries = Text(14, middle, caption("queries", language), 11, "middle", True, ROLES["query"], 90)
    drawing.add(queries)
    for (i, j), sees in np.ndenumerate(allowed):
        x, y = left + _CELL * j, top + _CELL * i
        fill = ROLES["weight"] if sees else "#F2F2F2"
        note = f"{i} → {j}: {caption('may see' if sees else 'forbidden', language)}"
        drawing.add(Box(x, y, _CELL, _CELL, fill, "#FFFFFF", note=note))
        if not sees:
            drawing.add(Line(((x + 5, y + _CELL - 5), (x + _CELL - 5, y + 5)), ROLES["masked"], 1))
    drawing.add(Box(left, top, _CELL * n_columns, _CELL * n_rows, stroke=HAIRLINE))
    return drawing
