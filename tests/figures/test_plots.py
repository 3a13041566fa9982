from math import exp, log10

import pytest

from regard.analysis.measurements import FORM_COSTS
from regard.figures.plots import (
    Series,
    decade_ticks,
    draw_complexity,
    draw_plot,
    draw_schedule,
    linear_axis,
    logarithmic_axis,
    round_ticks,
    short_number,
    spread_labels,
)
from tests.figures.svg import plotted, texts, tick_positions


def read_back(points, ticks_x, ticks_y, scale=lambda y: y):
    """Invert both axes with two of their ticks each."""
    (x0, left, _), *_, (x1, right, _) = ticks_x
    (y0, _, low), *_, (y1, _, high) = ticks_y
    for x, y in points:
        yield (
            x0 + (x - left) / (right - left) * (x1 - x0),
            scale(y0) + (y + 4 - low) / (high - low) * (scale(y1) - scale(y0)),
        )


def test_points_read_back_from_the_svg_are_the_data():
    points = [(0, 3.0), (10, 1.5), (40, 2.25)]
    plot = draw_plot([Series("a", points)], linear_axis("x", 0, 40), linear_axis("y", 1.5, 3))
    found = read_back(
        plotted(plot)["a"], tick_positions(plot, "middle"), tick_positions(plot, "end")
    )
    assert [pytest.approx(point, abs=0.02) for point in found] == points


def test_points_on_a_logarithmic_axis_read_back_as_logarithms():
    points = [(0, 2.0), (1, 80.0), (2, 900.0)]
    y = logarithmic_axis("y", [value for _, value in points])
    plot = draw_plot([Series("a", points)], linear_axis("x", 0, 2), y)
    ticks = tick_positions(plot, "end")
    found = list(read_back(plotted(plot)["a"], tick_positions(plot, "middle"), ticks, log10))
    assert [10**value for _, value in found] == [pytest.approx(y, rel=0.01) for _, y in points]


def test_values_outside_an_axis_are_clipped():
    axis = linear_axis("y", 0, 10)
    assert [axis.fraction(value) for value in (-5, 0, 5, 10, 50)] == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 8, [0, 2, 4, 6, 8]),
        (0, 0.005, [0, 0.002, 0.004, 0.006]),
        (1.3, 1.9, [1.2, 1.4, 1.6, 1.8, 2.0]),
        (3, 3, [3, 3.001]),
    ],
)
def test_round_ticks_enclose_the_range(low, high, ticks):
    assert round_ticks(low, high) == pytest.approx(ticks)


def test_decade_ticks_enclose_the_range():
    assert decade_ticks(1.5, 9) == [1, 2, 5, 10]
    assert decade_ticks(1.5, exp(9)) == [1, 10, 100, 1000, 10_000]


def test_labels_move_apart_as_little_as_possible():
    assert spread_labels([10, 100]) == [10, 100]
    assert spread_labels([100, 100]) == [91.5, 108.5]
    assert spread_labels([50, 10, 52]) == [42.5, 10, 59.5]


def test_short_numbers():
    assert [short_number(x) for x in (0.00025, 1.234, 12.0, 1234.5)] == [
        "0.00025",
        "1.23",
        "12",
        "1,234",
    ]


def test_schedules_are_drawn_as_given():
    figure = draw_schedule({"a": [(0, 0.0), (50, 1.0), (100, 0.25)]}, language="ko")
    (points,) = (plotted(figure)["a"],)
    ticks = tick_positions(figure, "middle"), tick_positions(figure, "end")
    found = [value for _, value in read_back(points, *ticks)]
    assert found == pytest.approx([0, 1, 0.25], abs=0.01)
    assert "학습률" in texts(figure)


def test_costs_are_those_of_the_formulas():
    drawing = draw_complexity(length=1024)
    assert set(plotted(drawing)) == {form.name for form in FORM_COSTS}
    exact, fused = FORM_COSTS[:2]
    assert exact.products(1024, 512) == 2 * 1024**2 * 512
    assert exact.numbers(2048, 512) == 4 * exact.numbers(1024, 512)
    assert fused.numbers(2048, 512) == 2 * fused.numbers(1024, 512)
