"""Figures of concepts that need no model: masks, padding, positions as a table and as waves."""

from collections.abc import Sequence

import numpy as np
import torch

from regard.attention.mask import Mask, causal, padding, window
from regard.attention.similarity import alibi_slopes
from regard.figures import grid
from regard.figures.captions import caption, text_width
from regard.figures.colors import FAINT, HAIRLINE, MASKED, ROLES, shade_signed
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.plots import Axis, Series, draw_plot, linear_axis
from regard.layers.position import RotaryPositions, sinusoid

_CELL = 22


def draw_masks(*, length: int = 8, language: str = "en") -> Drawing:
    """Draw a causal mask, a padding mask, a window, and causal with padding."""
    short, radius = max(1, length * 5 // 8), max(1, length // 4)
    masks: list[tuple[str, str, Mask]] = [
        ("causal mask", "causal()", causal()),
        ("padding mask", f"padding([{short}])", padding([short])),
        ("window mask", f"window({radius})", window(radius)),
        ("causal and padding", f"causal() & padding([{short}])", causal() & padding([short])),
    ]
    width, height = _CELL * length + 70, _CELL * length + 84
    drawing = Drawing(2 * width, 2 * height)
    for i, (name, code, mask) in enumerate(masks):
        x, y = i % 2 * width, i // 2 * height
        drawing.add(Text(x, y + 12, caption(name, language), 13, bold=True))
        drawing.add(Text(x, y + 28, code, 12, color=FAINT))
        drawing.place(_draw_mask(mask.tensor(length, lead=(1,))[0].numpy(), language), x, y + 34)
    return add_frame(
        drawing, caption("masks", language), [caption("masks legend", language)], language
    )


def _draw_mask(allowed: np.ndarray, language: str) -> Drawing:
    left, top, side = 24, 20, _CELL * len(allowed)
    drawing = Drawing(left + side, top + side)
    drawing.add(Text(left, 14, caption("keys", language), 11, color=ROLES["key"], bold=True))
    queries = caption("queries", language)
    drawing.add(Text(14, top + side / 2, queries, 11, "middle", True, ROLES["query"], 90))
    for (i, j), sees in np.ndenumerate(allowed):
        x, y = left + _CELL * j, top + _CELL * i
        fill = ROLES["weight"] if sees else MASKED
        tooltip = f"{i} → {j}: {caption('allowed' if sees else 'not allowed', language)}"
        drawing.add(Box(x, y, _CELL, _CELL, fill, "#FFFFFF", tooltip=tooltip))
        if not sees:
            drawing.add(Line(((x + 5, y + _CELL - 5), (x + _CELL - 5, y + 5)), ROLES["masked"]))
    drawing.add(Box(left, top, side, side, stroke=HAIRLINE))
    return drawing


def draw_positions(*, length: int = 64, d_model: int = 128, language: str = "en") -> Drawing:
    """Draw sinusoidal positions, with a row for each position."""
    table = sinusoid(length, d_model).numpy()
    drawing = grid.draw_pixels(shade_signed(table, 1.0), width=640, height=400)
    middle = grid.PIXELS_TOP + 200
    drawing.add(Text(grid.PIXELS_LEFT, 20, caption("dimension", language), 12, bold=True))
    drawing.add(Text(14, middle, caption("position", language), 12, "middle", True, rotation=90))
    legend = grid.draw_color_legend(language, low=-1, label="vector entries")
    drawing.place_below(legend, left=grid.PIXELS_LEFT, gap=0)
    formula = f"PE(pos, 2i) = sin(pos / 10000^(2i / {d_model})),  PE(pos, 2i+1) = cos(…)"
    return add_frame(drawing, caption("positions", language), [formula], language)


_WAVES = (4, 5, 6, 7)  # dimensions of the drawn curves, of vectors of width 20


def draw_waves(*, length: int = 100, d_model: int = 20, language: str = "en") -> Drawing:
    """Draw positional encodings as curves, and how alike two positions are by distance."""
    table = sinusoid(length, d_model)
    x = linear_axis(caption("position", language), 0, length - 1, tight=True)
    dimension = caption("dimension", language)
    waves = [
        Series(f"{dimension} {i}", list(enumerate(table[:, i].tolist())))
        for i in _WAVES
        if i < d_model
    ]
    whole = draw_plot(waves, x, linear_axis(f"PE(pos, i),  d = {d_model}", -1, 1), size=(560, 190))
    distance = linear_axis(caption("distance", language), 0, length - 1, tight=True)
    size = (560, 150)
    whole.place_below(draw_plot(_position_dots(table), distance, _dot_axis(language), size=size))
    slopes = [
        Series(f"{caption('head', language)} {head}", [(n, -slope * n) for n in range(length)])
        for head, slope in enumerate(alibi_slopes(4))
    ]
    lowest = -alibi_slopes(4)[0] * (length - 1)
    alibi = linear_axis(caption("alibi bias", language), lowest, 0)
    whole.place_below(draw_plot(slopes, distance, alibi, size=size))
    notes = [f"PE(pos, 2i) = sin(pos / 10000^(2i / {d_model})),  PE(pos, 2i+1) = cos(…)"]
    return add_frame(whole, caption("waves", language), notes, language)


def _dot_axis(language: str) -> Axis:
    return linear_axis(caption("similarity of positions", language), -1, 1)


def _position_dots(table: torch.Tensor) -> list[Series]:
    """Return the mean cosine of two positions by their distance: sinusoidal and rotary.

    A rotary dot product of equal vectors is the same sum of cosines, at half as many dimensions.
    """
    n, d = table.shape
    unit = table / table.norm(dim=-1, keepdim=True)
    cosines = unit @ unit.T
    sinusoidal = [(k, float(cosines.diagonal(k).mean())) for k in range(n)]
    half = max(2, d // 4 * 2)
    vector = torch.ones(1, 1, n, half, dtype=torch.float64) / half**0.5
    rotated = RotaryPositions(half)(vector, 0)[0, 0]
    rotary = [(k, float(rotated[0] @ rotated[k])) for k in range(n)]
    return [Series(f"PE, d = {d}", sinusoidal), Series(f"RoPE, d_k = {half}", rotary)]


_BATCH = (5, 8, 3)
_TOKEN = 54


def draw_padding(
    *,
    lengths: Sequence[int] = _BATCH,
    sentences: Sequence[Sequence[str]] = (),
    language: str = "en",
) -> Drawing:
    """Draw a batch of sequences of different lengths and its mask, padded on either side.

    Args:
        sentences: tokens of each sequence; by default they are numbered.
    """
    rows = sentences or [[f"x{i}" for i in range(1, n + 1)] for n in lengths]
    longest = max(map(len, rows))
    width = min(max([_TOKEN, *(text_width(token, 12) + 12 for row in rows for token in row)]), 110)
    whole = Drawing(0, 0)
    for side in ("right", "left"):
        part = Drawing(longest * width + 40, 0)
        part.add(Text(0, 14, caption(f"padding {side}", language), 13, bold=True))
        table = _padded(rows, longest, side)
        for i, row in enumerate(table):
            y = 26 + 30 * i
            for j, token in enumerate(row):
                _add_token(part, token, (width * j, y, width, 26), (i, j), language)
            mask = " ".join("0" if token is None else "1" for token in row)
            part.add(Text(longest * width + 16, y + 18, mask, 13))
            part.width = max(part.width, longest * width + 16 + text_width(mask))
        part.add(Text(longest * width + 16, 14, caption("mask", language), 12, color=FAINT))
        part.height = 26 + 30 * len(rows)
        whole.place_below(part, gap=18 if whole.height else 0)
    sizes = ", ".join(str(len(row)) for row in rows)
    notes = [caption("padding note", language), f"{caption('lengths', language)}: {sizes}"]
    return add_frame(whole, caption("padding batch", language), notes, language)


def _padded(rows: Sequence[Sequence[str]], longest: int, side: str) -> list[list[str | None]]:
    filled = [([*row], [None] * (longest - len(row))) for row in rows]
    return [[*row, *rest] if side == "right" else [*rest, *row] for row, rest in filled]


def _add_token(
    drawing: Drawing,
    token: str | None,
    place: tuple[float, float, float, float],
    at: tuple[int, int],
    language: str,
) -> None:
    x, y, width, height = place
    seen = token is not None
    said = caption("allowed" if seen else "not allowed", language)
    fill = "#E3EEF7" if seen else MASKED
    drawing.add(Box(*place, fill, "#FFFFFF", tooltip=f"{at[0]}, {at[1]}: {said}"))
    color = ROLES["query"] if seen else FAINT
    name = grid.truncate(token if seen else "[PAD]", width - 6, 12)
    drawing.add(Text(x + width / 2, y + 18, name, 12, "middle", color=color))
    if not seen:
        drawing.add(Line(((x + 5, y + height - 5), (x + width - 5, y + 5)), ROLES["masked"], 0.7))
