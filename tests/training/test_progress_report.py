"""Progress for people: what the bar and the lines say."""

import io

import pytest
from rich.console import Console

from regard.training.callbacks import ValidationResult, StepInfo, RunPosition
from regard.training.progress_report import Bar, Lines, Machine, Pace, sample_lines, format_metrics
from regard.training.step import StepResult


def step_info(step, *, seconds, surprise=0.0, n_targets=100, progress=0.25):
    learned = StepResult(surprise + 1, surprise, 0.0, n_targets, 1.0)
    return StepInfo(RunPosition(step, step / 4, seconds), progress, 0.1, learned)


def pace(*moments, machine=None):
    found = Pace(machine or Machine())
    for one in moments:
        found.add(one)
    return found


def test_facts_by_hand():
    # 300 targets in 2 s are 150/s; at 4e6 operations each that is 6e8 of 2e9: 30 %
    found = pace(
        step_info(1, seconds=1.0),
        step_info(2, seconds=2.0),
        step_info(3, seconds=3.0, n_targets=200),
        machine=Machine(peak=2e9, flops=4e6),
    )
    assert found.speed() == 150
    assert found.facts() == "loss 1.000  perplexity 1.00  150 tokens/s  30 % of peak  9.0 s left"


def test_losses_weigh_by_targets():
    found = pace(step_info(1, seconds=1.0), step_info(2, seconds=2.0, surprise=3.0, n_targets=300))
    assert found.loss() == pytest.approx(((1 * 100 + 4 * 300) / 400, (3 * 300) / 400))


def test_only_recent_steps_count():
    found = pace(*(step_info(n, seconds=10.0 * n, surprise=5.0) for n in range(100)))
    for n in range(30):
        found.add(step_info(100 + n, seconds=1000 + 0.1 * n))
    assert found.loss() == (1.0, 0.0)
    assert found.speed() == pytest.approx(1000)


def test_one_step_has_no_speed_and_a_beginning_no_end():
    found = pace(step_info(1, seconds=1.0, progress=0.0))
    assert found.speed() == 0
    assert found.facts() == "loss 1.000  perplexity 1.00"


def test_the_time_of_a_validation_is_no_part_of_the_speed():
    found = pace(step_info(1, seconds=1.0), step_info(2, seconds=2.0))
    found.pause()
    found.add(step_info(3, seconds=60.0))
    found.add(step_info(4, seconds=61.0))
    assert found.speed() == 100


def test_numbers_are_told_in_their_own_forms():
    told = format_metrics({"loss": 1.23456, "accuracy": 0.5, "exact": 0.1234, "bleu": 41.126})
    assert told == "loss 1.2346  accuracy 50.00%  exact 12.34%  bleu 41.13"


def test_only_texts_of_samples_are_told():
    samples = [{"source": "a", "alignment": {"soft": []}}, {"written": "b"}]
    assert sample_lines(ValidationResult(samples=samples)) == ["    source: a", "    written: b"]


def test_lines_come_after_a_pause_and_with_every_validation():
    said = []
    lines = Lines(said.append, pause=0.0)
    lines.on_step(step_info(1000, seconds=1.0))
    lines.on_validation(1000, ValidationResult({"bleu": 4.0}, [{"written": "[b]x[/b]"}]), best=True)
    lines.note("stopped")
    assert said == [
        "step 1,000  epoch 250.00  loss 1.000  perplexity 1.00  3.0 s left",
        "step 1,000  validation: bleu 4.00  (best)",
        "    written: [b]x[/b]",
        "stopped",
    ]
    seldom = []
    slow = Lines(seldom.append, pause=1000.0)
    slow.on_step(step_info(1, seconds=1.0))
    assert seldom == []


def test_the_bar_shows_loss_perplexity_speed_share_of_peak_and_time_left():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140, legacy_windows=False)
    drawn = []
    with Bar(console, Machine(2e9, 4e6), draw=lambda found: drawn.append(found) or ["  ▓▓"]) as bar:
        bar.on_step(step_info(1, seconds=1.0))
        bar.on_step(step_info(2, seconds=2.0))
        bar._progress.refresh()
        bar.on_validation(2, ValidationResult({"bleu": 4.0}), best=True)
    said = screen.getvalue()
    assert "loss 1.000  perplexity 1.00  100 tokens/s  20 % of peak  6.0 s left" in said
    assert "step 2  bleu 4.00  ★" in said
    assert "  ▓▓" in said
    assert drawn == [ValidationResult({"bleu": 4.0})]
