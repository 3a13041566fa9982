"""What is told before training: operations by hand, time and memory of the right size."""

import pytest
import torch

from regard.training.progress_report import Estimate, estimate, format_bytes, format_seconds


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (10.4, "10 s"),
        (89.4, "89 s"),
        (90, "1:30 min"),
        (605, "10:05 min"),
        (5399, "89:59 min"),
        (5400, "1 h 30 min"),
        (90_061, "25 h 1 min"),
    ],
)
def test_times_are_told_as_people_do(seconds, told):
    assert format_seconds(float(seconds)) == told


def test_sizes_are_told_as_people_do():
    assert [format_bytes(size) for size in (999, 4_600_000, 999_000_000, 1_234_000_000)] == [
        *("0 MB", "5 MB", "999 MB", "1.23 GB")
    ]
    assert str(Estimate(100.0, 2_000_000_000, 1.0)) == (
        "about 1:40 min per epoch and 2.00 GB at most"
    )


def test_operations_are_those_of_the_matrix_products(make):
    trainer = make(model={"dropout": 0.0, "n_encoder_layers": 1, "n_decoder_layers": 1})
    found = estimate(trainer.train_step, trainer.loader)
    d, ff, vocab = 16, 32, trainer.model.config.n_vocab
    # forward and backward: 3 times 2 operations for each weight of a product, of a token each;
    # attention itself and padding come on top, sources and targets are alike in length here
    encoder, decoder = 4 * d * d + 2 * d * ff, 8 * d * d + 2 * d * ff
    least = 6 * (encoder + decoder + vocab * d)
    assert least < found.flops < 1.8 * least


def test_nothing_is_learned_and_nothing_left_behind(make):
    trainer = make()
    before = [one.detach().clone() for one in trainer.model.parameters()]
    state = trainer.loader.state()
    found = estimate(trainer.train_step, trainer.loader)
    assert found.seconds > 0
    assert found.memory > 50e6
    assert all(map(torch.equal, before, trainer.model.parameters()))
    assert all(one.grad is None for one in trainer.model.parameters())
    assert trainer.loader.state() == state
    assert not trainer.train_step.optimizer.state


def test_an_epoch_of_more_batches_takes_longer(make, monkeypatch):
    trainer = make(batch_tokens=100)
    ticks = iter([0.0, 6.0] * 2)
    monkeypatch.setattr("regard.training.progress_report.time.perf_counter", lambda: next(ticks))
    once = estimate(trainer.train_step, trainer.loader)
    count = trainer.loader.numbers.count
    monkeypatch.setattr(trainer.loader.numbers, "count", lambda: 2 * count())
    assert estimate(trainer.train_step, trainer.loader).seconds == pytest.approx(2 * once.seconds)
    # three batches took 6 s, and there are many more of about their size
    assert once.seconds == pytest.approx(2 * count(), rel=0.3)
