"""Progress on the terminal, and the estimate before training."""

import io
import sys

import pytest
import torch
from rich.console import Console

from regard.training.callbacks import (
    ConsoleProgress,
    RunInfo,
    StepAverages,
    ValidationResult,
    estimate,
    format_bytes,
    format_metrics,
    format_seconds,
    sample_lines,
    step_summary,
)
from tests.training.conftest import step_info

RUN = RunInfo(1000, 1.0, 1000, flops_per_target=4e6, peak_flops=2e9)
ALIGNMENT = {
    "source_words": ["a", "dog"],
    "target_words": ["ein", "Hund"],
    "hard": "0-0 1-1",
    "soft": [[0, 0, 1.0], [0, 1, 0.25], [1, 1, 0.75]],
}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (10.4, "10 s"), (90, "1:30 min"), (5399, "89:59 min"), (5400, "1 h 30 min")],
)
def test_durations(seconds, text):
    assert format_seconds(float(seconds)) == text


def test_sizes_and_metrics():
    sizes = [format_bytes(size) for size in (999, 4_600_000, 1_234_000_000)]
    assert sizes == ["0 MB", "5 MB", "1.23 GB"]
    metrics = {"loss": 1.23456, "accuracy": 0.5, "exact": 0.1234, "bleu": 41.126}
    assert format_metrics(metrics) == "loss 1.2346  accuracy 50.00%  exact 12.34%  bleu 41.13"


def test_summary_by_hand():
    # 300 targets in 2 s are 150/s; at 4e6 operations each that is 6e8 of 2e9: 30 %
    averages = StepAverages()
    for step, n_targets in ((1, 100), (2, 100), (3, 200)):
        info = step_info(step, seconds=float(step), nll=0.0, n_targets=n_targets, progress=0.25)
        averages.add(info)
    summary = step_summary(info, averages, RUN)
    assert summary == "smoothed loss 0.500  perplexity 1.00  150 tokens/s  30 % of peak  9.0 s left"
    first = step_info(1, seconds=1.0, nll=0.0, progress=0.0)
    averages = StepAverages()
    averages.add(first)
    assert step_summary(first, averages) == "smoothed loss 0.500  perplexity 1.00"


def test_plain_lines_after_a_pause_and_at_every_validation():
    lines = []
    progress = ConsoleProgress(lines.append, terminal=False, pause=0.0)
    progress.on_step(step_info(1000, seconds=1.0, nll=0.0, progress=0.25))
    sample = {"output": "[b]x[/b]", "alignment": ALIGNMENT, "number": 3}
    progress.on_validation(1000, ValidationResult({"bleu": 4.0}, [sample]), best=True)
    progress.on_message("stopped")
    assert lines == [
        "step 1,000  epoch 100.00  smoothed loss 0.500  perplexity 1.00  3.0 s left",
        "step 1,000  validation: bleu 4.00  (best)",
        "    output: [b]x[/b]",
        "    alignment: ein←a Hund←dog",
        "stopped",
    ]
    slow = ConsoleProgress(lines.append, terminal=False, pause=1000.0)
    slow.on_step(step_info(1, seconds=1.0))
    slow.on_lines_read(5)
    assert len(lines) == 5


def test_the_bar_shows_the_summary_and_keeps_validations(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    progress = ConsoleProgress(terminal=True, console=console)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    progress._last -= 1.0
    progress.on_lines_read(4_096)
    assert sys.stderr.getvalue() == "\r4,096 lines read\x1b[K\r"
    progress.on_start(RUN)
    progress.on_step(step_info(1234, seconds=1.0, nll=0.0))
    progress.on_validation(1234, ValidationResult({"bleu": 4.0}, [{"output": "[b]x"}]), best=True)
    progress.close()
    for text in ("1,234", "loss 0.500", "bleu 4.00  (best)", "    output: [b]x"):
        assert text in shown.getvalue()


def test_alignments_are_drawn_if_the_terminal_is_wide_enough():
    result = ValidationResult(samples=[{"output": "ein Hund", "alignment": ALIGNMENT}])
    wide = sample_lines(result, 80)
    assert wide[0] == "    output: ein Hund"
    assert wide[3].split() == ["ein", "██", "1.00", "a"]
    assert wide[4].split() == ["Hund", "··", "▓▓", "0.75", "dog"]
    plain = ["    output: ein Hund", "    alignment: ein←a Hund←dog"]
    assert sample_lines(result) == plain
    assert sample_lines(result, 12) == [plain[0], "    alignme…"]


def test_estimate_counts_the_operations_of_matrix_products(make):
    trainer = make(model={"dropout": 0.0})
    info = estimate(trainer.train_step, trainer.loader)
    d, ff, vocab = 16, 32, trainer.model.config.n_vocab
    # forward and backward: 3 times 2 operations per weight and token; attention and padding come on
    # top, and sources and targets have similar lengths here
    encoder, decoder = 4 * d * d + 2 * d * ff, 8 * d * d + 2 * d * ff
    least = 6 * (encoder + decoder + vocab * d)
    assert least < info.flops_per_target < 1.8 * least


def test_estimate_scales_with_the_epoch_and_changes_nothing(make, monkeypatch):
    trainer = make(batch_tokens=100)
    before = [one.detach().clone() for one in trainer.model.parameters()]
    state = trainer.loader.state()
    ticks = iter([0.0, 6.0] * 2)
    monkeypatch.setattr("regard.training.callbacks.time.perf_counter", lambda: next(ticks))
    once = estimate(trainer.train_step, trainer.loader)
    count = trainer.loader.numbers.count
    # three batches took 6 s, and there are many more of about their size
    assert once.seconds_per_epoch == pytest.approx(2 * count(), rel=0.3)
    monkeypatch.setattr(trainer.loader.numbers, "count", lambda: 2 * count())
    twice = estimate(trainer.train_step, trainer.loader)
    assert twice.seconds_per_epoch == pytest.approx(2 * once.seconds_per_epoch)
    assert once.memory > 50e6
    assert all(map(torch.equal, before, trainer.model.parameters()))
    assert all(one.grad is None for one in trainer.model.parameters())
    assert trainer.loader.state() == state
    assert not trainer.train_step.optimizer.state
