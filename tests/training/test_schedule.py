"""Schedules: the paper's formula, and curves that begin and end where they should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError, UnknownNameError
from regard.training.optimizer import SCHEDULES, Schedule, paper_rate


@pytest.mark.parametrize("step", [1, 10, 3999, 4000, 4001, 100_000])
def test_the_paper_schedule_is_the_papers_formula(step):
    formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    schedule = Schedule("paper", paper_rate(512, 4000), 4000)
    assert schedule.at(step) == pytest.approx(formula, rel=1e-12)


def test_four_times_the_steps_halve_the_rate_of_the_paper_schedule():
    schedule = Schedule("paper", 0.005, 2000)
    assert [schedule.at(step) for step in (1000, 2000, 8000)] == pytest.approx(
        [0.0025, 0.005, 0.0025]
    )


@pytest.mark.parametrize(("kind", "half"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
def test_halfway_between_warm_up_and_end(kind, half):
    schedule = Schedule(kind, 2.0, 100)
    assert schedule.at(100, 100 / 1100) == pytest.approx(2.0)
    assert schedule.at(600, 600 / 1100) == pytest.approx(2.0 * half)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_falling_schedule_ends_at_its_final_share(kind):
    assert Schedule(kind, 2.0, 10, final=0.1).at(1000, 1.0) == pytest.approx(0.2)
    assert Schedule(kind, 2.0, 10).at(1000, 1.5) == pytest.approx(0.0, abs=1e-12)


@given(st.sampled_from(SCHEDULES), st.integers(1, 50), st.integers(51, 500), st.data())
def test_a_schedule_rises_to_its_peak_and_never_rises_again(kind, warmup, total, data):
    schedule = Schedule(kind, 1.0, warmup)
    step = data.draw(st.integers(1, total - 1))
    here, there = (schedule.at(one, one / total) for one in (step, step + 1))
    assert 0 <= here <= 1
    assert (there > here) if step < warmup else (there <= here)


def test_without_warm_up_the_first_step_has_the_whole_rate():
    assert Schedule("cosine", 3.0).at(1, 0.0) == 3.0
    assert Schedule("constant", 3.0).at(1) == 3.0


def test_training_shorter_than_its_warm_up_ends_on_the_way_up():
    assert Schedule("cosine", 1.0, 100).at(50, 1.0) == 0.5
    assert Schedule("cosine", 1.0, 100).at(100, 1.0) == 1.0


def test_what_is_no_schedule_is_refused():
    with pytest.raises(UnknownNameError, match="'cosin'; the nearest"):
        Schedule("cosin", 1.0)
    with pytest.raises(InputError, match="must be above 0"):
        Schedule("linear", 0.0)
    with pytest.raises(InputError, match="must be 1 or more"):
        Schedule("paper", 1.0, 0)
    with pytest.raises(InputError, match="from 0 to 1"):
        Schedule("linear", 1.0, final=2.0)
