"""Figures of concepts that need no model: masks, padding, positions, scaling, cost, tokenizers."""

from collections.abc import Sequence

import numpy as np
import torch

from regard.analysis.measurements import (
    LayerCost,
    ScalingMeasures,
    measure_costs,
    measure_scaling,
)
from regard.attention.mask import Mask, causal, padding, window
from regard.attention.similarity import alibi_slopes
from regard.errors import InputError
from regard.figures import grid
from regard.figures.captions import caption, show_spaces, text_width
from regard.figures.colors import FAINT, HAIRLINE, MASKED, ROLES, shade_signed
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.plots import Axis, Series, draw_plot, linear_axis, logarithmic_axis
from regard.layers.attention_forms import attention_products
from regard.layers.embedding import RotaryPositions, sinusoid
from regard.text.tokenizer_training import WordSplit

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


def draw_scaling(measured: ScalingMeasures | None = None, *, language: str = "en") -> Drawing:
    """Draw spread of scores, entropy of weights and norm of gradients against d_k."""
    found = measured or measure_scaling()
    ticks = [(width, str(width)) for width in found.widths]
    x = Axis("d_k", found.widths[0], found.widths[-1], ticks, logarithmic=True)
    whole = Drawing(0, 0)
    for name in ("spread", "entropy", "gradient"):
        values: dict[str, list[float]] = getattr(found, name)
        series = [
            Series(label, list(zip(found.widths, values[key], strict=True)), marked=True)
            for key, label in (("dot", "q · k"), ("scaled", "q · k / √d_k"))
        ]
        highest = max(max(part) for part in values.values())
        y = linear_axis(caption(f"scaling {name}", language), 0, highest)
        plot = draw_plot(series, x, y, size=(460, 150))
        whole.place_below(plot, gap=8 if whole.height else 0)
    notes = [caption("scaling note", language)]
    return add_frame(whole, caption("scaling", language), notes, language)


_COLUMNS = ("cost layer", "cost formula", "cost sequential", "cost path", "cost fitted")


def draw_cost(rows: Sequence[LayerCost] | None = None, *, language: str = "en") -> Drawing:
    """Draw the paper's table 1 with fitted exponents, and the measured times below."""
    rows = rows or measure_costs()
    cells = [[caption(name, language) for name in _COLUMNS]]
    for row in rows:
        name = caption(f"cost {row.name}", language)
        orders = [f"O({part})" for part in (row.complexity, row.sequential, row.path)]
        cells.append([name, *orders, f"n^{row.fitted:.2f}  (n^{row.exponent:g})"])
    widths = [max(text_width(line[j], 12) * 1.06 for line in cells) + 22 for j in range(5)]
    table = Drawing(sum(widths), 26 * len(cells))
    for i, line in enumerate(cells):
        y, x = 18 + 26 * i, 0.0
        for j, text in enumerate(line):
            bold = not i or not j
            table.add(Text(x, y, text, 12, bold=bold, color=FAINT if not i else "#222222"))
            x += widths[j]
        table.add(Line(((0, y + 8), (table.width, y + 8)), HAIRLINE, 0.7))
    lengths = sorted(rows[0].seconds)
    ticks = [(n, f"{n:,}") for n in lengths]
    axis = Axis(caption("tokens", language), lengths[0], lengths[-1], ticks, logarithmic=True)
    series = [
        Series(
            caption(f"cost {row.name}", language),
            [(n, 1e3 * taken) for n, taken in row.seconds.items()],
            marked=True,
        )
        for row in rows
    ]
    times = [taken for line in series for _, taken in line.points]
    y_axis = logarithmic_axis(caption("milliseconds", language), times)
    table.place_below(draw_plot(series, axis, y_axis, size=(520, 280)), gap=22)
    notes = [caption("cost note", language)]
    return add_frame(table, caption("cost", language), notes, language)


_PRODUCTS = {  # boxes with their rows and columns, and the signs between them
    "exact": ["Q nk", "×", "Kᵀ kn", "=", "A nn", "×", "V nc", "=", "Y nc"],
    "efficient": ["Q nk", "(", "Kᵀ kn", "×", "V nc", ") =", "KᵀV kc", "→", "Y nc"],
}


def draw_efficient(
    *, length: int = 1024, d_k: int = 64, d_v: int = 64, language: str = "en"
) -> Drawing:
    """Draw the shapes of exact and efficient attention to scale, with their cost."""
    whole, numbers = Drawing(0, 0), {"n": length, "k": d_k, "c": d_v}
    for name, parts in _PRODUCTS.items():
        products = attention_products(name, length, d_k, n_heads=1)
        stored = length * length if name == "exact" else d_k * d_v
        counts = {"multiplications": products, "stored numbers": stored}
        cost = ", ".join(f"{caption(key, language)}: {n:,}" for key, n in counts.items())
        row = _draw_product(parts, numbers)
        row.add(Text(0, 14, caption(f"efficient {name}", language), 13, bold=True))
        row.add(Text(0, 32, cost, 12, color=FAINT))
        row.width = max(row.width, text_width(cost, 12))
        whole.place_below(row, gap=18 if whole.height else 0)
    notes = [caption("efficient note", language)]
    return add_frame(whole, caption("efficient", language), notes, language)


def _draw_product(parts: Sequence[str], numbers: dict[str, int]) -> Drawing:
    """Draw matrices to scale, with the signs of their product between them."""
    tallest = 150.0
    sides = {name: max(tallest * n / numbers["n"], 12.0) for name, n in numbers.items()}
    row, x = Drawing(0, sides["n"] + 74), 0.0
    for part in parts:
        symbol, _, axes = part.partition(" ")
        if not axes.isalpha():  # a sign
            row.add(Text(x, 46 + sides["n"] / 2, part, 15, bold=True))
            x += text_width(part, 15) + 16
            continue
        height, width = (sides[axis] for axis in axes)
        y, size = 42 + (sides["n"] - height) / 2, " × ".join(str(numbers[axis]) for axis in axes)
        middle = symbol in ("A", "KᵀV")
        fill, stroke = ("#EFECF6", ROLES["weight"]) if middle else ("#E3EEF7", FAINT)
        tooltip = f"{symbol}: {numbers[axes[0]] * numbers[axes[1]]}"
        row.add(Box(x, y, width, height, fill, stroke, tooltip=tooltip))
        row.add(Text(x, y + height + 14, symbol, 12, bold=True))
        row.add(Text(x, y + height + 28, size, 11, color=FAINT))
        x += max(width, text_width(size, 11)) + 16
    row.width = x
    return row


_ROW, _MAX_STEPS = 30, 60


def draw_merges(words: Sequence[WordSplit], *, language: str = "en") -> Drawing:
    """Draw the pieces of each word after each merge (BPE) or cut (WordPiece)."""
    if not words or sum(len(word.steps) for word in words) > _MAX_STEPS:
        raise InputError(
            f"merges shows words of together at most {_MAX_STEPS} steps: give one or a few words."
        )
    whole, kind = Drawing(0, 0), words[0].kind
    for word in words:
        part = Drawing(0, 22 + _ROW * len(word.steps))
        part.add(Text(0, 14, show_spaces(word.word), 13, bold=True))
        for i, step in enumerate(word.steps):
            x, y = 90.0, 22 + _ROW * i
            label = caption("merge start", language) if not i else f"{i}"
            part.add(Text(80, y + 18, label, 11, "end", color=FAINT))
            for piece in step.pieces:
                text, new = show_spaces(piece), piece == step.joined
                width = text_width(text) + 16
                fill, stroke = ("#FBEFD8", ROLES["key"]) if new else ("#FFFFFF", HAIRLINE)
                rank = "" if step.rank is None else f" {step.rank}"
                part.add(
                    Box(x, y, width, 24, fill, stroke, 4, f"{i}{rank if new else ''}: {piece}")
                )
                part.add(Text(x + width / 2, y + 17, text, 13, "middle", bold=new))
                x += width + 6
            if step.rank is not None:
                note = caption("merge rank", language).format(rank=f"{step.rank:,}")
                part.add(Text(x + 10, y + 17, note, 11, color=FAINT))
                x += text_width(note, 11) + 10
            part.width = max(part.width, x)
        whole.place_below(part, gap=16 if whole.height else 0)
    title = caption("merges", language).format(kind=kind)
    return add_frame(whole, title, [caption(f"merges {kind}", language)], language)
