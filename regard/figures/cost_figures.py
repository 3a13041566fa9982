"""Figures of cost and scale: why √d_k, the paper's table 1 measured, and efficient attention."""

from collections.abc import Sequence

from regard.analysis.measurements import (
    LayerCost,
    ScalingMeasures,
    measure_costs,
    measure_scaling,
)
from regard.figures.captions import caption, text_width
from regard.figures.colors import FAINT, HAIRLINE, ROLES
from regard.figures.drawing import Box, Drawing, Line, Text, add_frame
from regard.figures.plots import Axis, Series, draw_plot, linear_axis, logarithmic_axis
from regard.layers.attention_forms import attention_products


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
