from math import log

import pytest

from regard.figures.curves import draw_curves, run_history
from tests.figures.svg import parse, plotted, texts


def step(number, surprise=2.0, **more):
    usual = {"epoch": 0.1, "seconds": number / 10, "loss": 3.0, "norm": 1.0, "lr": 0.01}
    return {"step": number, "surprise": surprise, "targets": 100, **usual, **more}


def validation(number, *, best=False, **numbers):
    return {"step": number, "validation": numbers, "best": best, "samples": []}


RUN = [
    step(10, log(8), lr=0.002, speed=500.0),
    step(20, log(4), lr=0.004, speed=700.0),
    validation(20, loss=log(5), bleu=10.0, exact=0.25, best=True),
    step(30, log(2), lr=0.006, speed=600.0),
    validation(30, loss=log(6), bleu=9.0, exact=0.5),
    validation(30, loss=log(3), bleu=12.0, exact=0.75),  # averaged weights
]


def points(history, panel):
    return [list(series.points) for series in history[0][panel]]


def test_series_are_those_of_the_metrics():
    history = run_history(RUN)
    assert points(history, "loss") == [
        [(10, log(8)), (20, log(4)), (30, log(2))],
        [(20, log(5)), (30, log(6))],
    ]
    assert points(history, "perplexity")[1] == [(20, pytest.approx(5)), (30, pytest.approx(6))]
    assert points(history, "score") == [[(20, 10.0), (30, 9.0)], [(20, 25.0), (30, 50.0)]]
    assert points(history, "learning rate") == [[(10, 0.002), (20, 0.004), (30, 0.006)]]
    assert points(history, "speed") == [[(10, 500.0), (20, 700.0), (30, 600.0)]]
    assert history[1] == 20


def test_missing_speeds_are_computed_from_the_clock_but_not_across_a_validation():
    history = run_history([step(10), step(20), validation(20, loss=1.0), step(30), step(40)])
    # 10 steps of 100 targets in one second; a validation runs between 20 and 30
    assert points(history, "speed") == [[(20, 1000.0), (40, 1000.0)]]


def test_long_runs_are_averaged():
    history = run_history([step(n, surprise=n % 2) for n in range(1, 1001)])
    averaged, _ = points(history, "loss")
    assert len(averaged) == 250
    assert {value for _, value in averaged} == {0.5}
    assert averaged[0][0] == 2.5


def test_the_drawing_names_the_best_validation_in_both_languages():
    english, korean = draw_curves(RUN, title="a < b"), draw_curves(RUN, language="ko")
    best = "best: step 20 · loss 1.61 · perplexity 5 · BLEU 10 · exact match 25 %"
    assert texts(english)[:2] == ["Learning curves · a < b", best]
    assert texts(korean)[1] == "최고: 스텝 20 · 손실 1.61 · 퍼플렉서티 5 · BLEU 10 · 완전 일치 25 %"
    assert "학습률" in texts(korean)
    circles = [one for one in parse(english).iter() if one.tag.endswith("circle")]
    assert len(circles) == 2 * 4  # two validations of four series


def test_higher_values_are_drawn_higher():
    drawing = draw_curves([step(n, surprise=5 - n / 10) for n in (10, 20, 30)])
    (x0, y0), (x1, y1), (x2, y2) = plotted(drawing)["training"]
    assert x0 < x1 < x2
    assert y0 < y1 < y2  # y grows downwards


def test_a_run_without_entries_or_validations_can_be_drawn():
    for entries in ([], [step(10)]):
        assert "not validated yet" in texts(draw_curves(entries))
