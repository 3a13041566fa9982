"""Learning curves: what the picture says is what the metrics say."""

import re
import xml.etree.ElementTree as ElementTree
from math import exp, log

import pytest

from regard.figures.curves import _decades, _round_ticks, course_of, curves_svg


def step(number, surprise=2.0, **more):
    usual = {"epoch": 0.1, "seconds": number / 10, "loss": 3.0, "norm": 1.0, "lr": 0.01}
    return {"step": number, "surprise": surprise, "targets": 100, **usual, **more}


def check(number, *, best=False, **numbers):
    return {"step": number, "validation": numbers, "best": best, "samples": []}


RUN = [
    step(10, log(8), lr=0.002, speed=500.0),
    step(20, log(4), lr=0.004, speed=700.0),
    check(20, loss=log(5), bleu=10.0, exact=0.25, best=True),
    step(30, log(2), lr=0.006, speed=600.0),
    check(30, loss=log(6), bleu=9.0, exact=0.5),
    check(30, loss=log(3), bleu=12.0, exact=0.75),  # the final model, a mean of weights
]


def points(course, panel):
    return [line.points for line in course.panels[panel]]


def test_the_course_is_what_the_entries_say():
    course = course_of(RUN)
    assert points(course, "loss") == [
        [(10, log(8)), (20, log(4)), (30, log(2))],
        [(20, log(5)), (30, log(6))],
    ]
    assert points(course, "perplexity")[1] == [(20, pytest.approx(5)), (30, pytest.approx(6))]
    assert points(course, "score") == [[(20, 10.0), (30, 9.0)], [(20, 25.0), (30, 50.0)]]
    assert points(course, "lr") == [[(10, 0.002), (20, 0.004), (30, 0.006)]]
    assert points(course, "speed") == [[(10, 500.0), (20, 700.0), (30, 600.0)]]
    assert course.best == 20


def test_speed_is_told_from_the_clock_where_entries_do_not_say_it_but_not_over_a_validation():
    course = course_of([step(10), step(20), check(20, loss=1.0), step(30), step(40)])
    # 10 steps of 100 targets in one second; from 20 to 30 somebody validated
    assert points(course, "speed") == [[(20, 1000.0), (40, 1000.0)]]


def test_long_runs_become_means_of_neighbors():
    course = course_of([step(n, surprise=n % 2) for n in range(1, 1001)])
    (thin, _) = points(course, "loss")
    assert len(thin) == 250
    assert {value for _, value in thin} == {0.5}
    assert thin[0][0] == 2.5


def test_the_picture_is_well_formed_and_says_the_best_validation_in_both_languages():
    english, korean = curves_svg(RUN, title="a < b"), curves_svg(RUN, "ko")
    for picture in (english, korean):
        ElementTree.fromstring(picture)
        assert picture.count("<polyline") == 8
        assert picture.count("<circle") == 8
    assert "best: step 20 · loss 1.61 · perplexity 5 · BLEU 10 · exact match 25 %" in english
    assert "Learning curves · a &lt; b" in english
    assert "최고: 스텝 20 · 손실 1.61 · 퍼플렉서티 5 · BLEU 10 · 완전 일치 25 %" in korean
    assert "학습률" in korean


def test_higher_values_stand_higher_and_all_points_lie_inside_their_panel():
    picture = curves_svg([step(n, surprise=5 - n / 10) for n in (10, 20, 30)])
    path = re.search(r'polyline points="([^"]+)"', picture)[1]
    places = [tuple(map(float, place.split(","))) for place in path.split()]
    assert places[0][1] < places[1][1] < places[2][1]  # downwards is less
    assert places[0][0] < places[1][0] < places[2][0]
    assert all(70 <= x <= 490 and 96 <= y <= 296 for x, y in places)


def test_a_run_without_any_entry_or_validation_is_a_picture_too():
    for entries in ([], [step(10)]):
        picture = curves_svg(entries)
        ElementTree.fromstring(picture)
        assert "not validated yet" in picture


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 8, [0, 2, 4, 6, 8]),
        (0, 0.005, [0, 0.002, 0.004, 0.006]),
        (1.3, 1.9, [1.2, 1.4, 1.6, 1.8, 2.0]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round_and_reach_around_the_values(low, high, ticks):
    found = _round_ticks(low, high, 4)
    assert found[0] <= low
    assert found[-1] >= high
    assert found[: len(ticks)] == pytest.approx(ticks)


def test_decades_reach_around_the_values():
    assert _decades(1.5, 9) == [1, 2, 5, 10]
    wide = _decades(1.5, exp(9))
    assert wide == [1, 10, 100, 1000, 10_000]
