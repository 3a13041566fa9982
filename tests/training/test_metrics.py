"""The file of metrics: means over steps, speed without validations, and going on after a stop."""

import json

import pytest

from regard.training.callbacks import ValidationResult, StepInfo, RunPosition, Callback
from regard.training.metrics import CallbackList, MetricsFile, Stretch, read_metrics
from regard.training.step import StepResult


def step_info(step, *, seconds, loss=2.0, n_targets=100, progress=0.5):
    learned = StepResult(loss, loss - 0.5, 0.0, n_targets, 1.5)
    return StepInfo(RunPosition(step, step / 10, seconds), progress, 0.01 * step, learned)


def test_losses_are_means_over_targets_and_speed_counts_from_the_first_step_on():
    stretch = Stretch(3)
    assert stretch.add(step_info(1, seconds=10.0, loss=4.0, n_targets=100)) is None
    assert stretch.add(step_info(2, seconds=11.0, loss=1.0, n_targets=200)) is None
    entry = stretch.add(step_info(3, seconds=13.0, loss=1.0, n_targets=100))
    assert entry["loss"] == (4 * 100 + 1 * 200 + 1 * 100) / 400
    assert entry["surprise"] == entry["loss"] - 0.5
    assert entry["speed"] == 100.0  # 300 targets in the 3 seconds after step 1
    assert (entry["step"], entry["lr"], entry["targets"], entry["norm"]) == (3, 0.03, 100, 1.5)
    stretch.add(step_info(4, seconds=14.0))
    stretch.add(step_info(5, seconds=15.0))
    after = stretch.add(step_info(6, seconds=16.0))
    assert (after["loss"], after["speed"]) == (2.0, 100.0)  # nothing is left of the stretch before


def test_validations_are_no_part_of_the_speed():
    stretch = Stretch(4)
    stretch.add(step_info(1, seconds=1.0))
    stretch.add(step_info(2, seconds=2.0))
    stretch.pause()
    stretch.add(step_info(3, seconds=60.0))
    entry = stretch.add(step_info(4, seconds=61.0))
    assert entry["speed"] == 100.0
    assert entry["loss"] == 2.0


def test_the_last_step_has_an_entry_and_a_single_step_no_speed():
    entry = Stretch(10).add(step_info(7, seconds=3.0, progress=1.0))
    assert entry["step"] == 7
    assert "speed" not in entry


def test_a_run_that_goes_on_forgets_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "deep" / "metrics.jsonl"
    first = MetricsFile(path, every=1)
    for step in (1, 2, 3):
        first.on_step(step_info(step, seconds=float(step)))
    first.on_validation(3, ValidationResult({"loss": 1.0}, [{"written": "Grüße"}]), best=True)
    with path.open("a") as stream:
        stream.write('{"step": 4, "lo')  # the line that a killed process was writing
    assert [one["step"] for one in read_metrics(path)] == [1, 2, 3, 3]
    again = MetricsFile(path, every=1, resumed_at=2)
    again.on_step(step_info(3, seconds=3.5))
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [one["step"] for one in lines] == [1, 2, 3]
    assert lines[-1]["seconds"] == 3.5
    MetricsFile(path)
    assert read_metrics(path) == []


def test_a_validation_is_written_with_its_numbers_and_samples(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).on_validation(5, ValidationResult({"bleu": 3.0}, [{"written": "한국어"}]), best=True)
    assert read_metrics(path) == [
        {"step": 5, "validation": {"bleu": 3.0}, "best": True, "samples": [{"written": "한국어"}]}
    ]
    assert "한국어" in path.read_text("utf-8")


def test_a_sample_with_other_line_ends_is_one_line_and_survives_going_on(tmp_path):
    path, text = tmp_path / "metrics.jsonl", "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\ni"
    first = MetricsFile(path, every=1)
    first.on_validation(1, ValidationResult({"loss": 1.0}, [{"written": text}]), best=True)
    first.on_step(step_info(2, seconds=1.0))
    with path.open("ab") as stream:
        stream.write('{"step": 3, "samples": ["Grü'.encode()[:-1])  # killed inside a letter
    MetricsFile(path, every=1, resumed_at=2)
    found = read_metrics(path)
    assert [one["step"] for one in found] == [1, 2]
    assert found[0]["samples"] == [{"written": text}]


class Notes(Callback):
    def __init__(self, told):
        self.told = told

    def on_step(self, step_info):
        self.told.append(step_info.position.step)

    def on_validation(self, step, evaluation, *, best):
        self.told.append((step, best))

    def on_message(self, text):
        self.told.append(text)


def test_everybody_is_told_in_order():
    told = []
    everybody = CallbackList(Notes(told), Notes(told))
    everybody.on_step(step_info(1, seconds=0.1))
    everybody.on_validation(2, ValidationResult(), best=True)
    everybody.note("done")
    assert told == [1, 1, (2, True), (2, True), "done", "done"]


def test_tensorboard_goes_on_where_the_checkpoint_was(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from regard.training.metrics import TensorBoard

    first = TensorBoard(tmp_path, every=1)
    for step in (1, 2, 3):
        first.on_step(step_info(step, seconds=float(step), loss=2.0))
    first.close()
    again = TensorBoard(tmp_path, every=1, resumed_at=1)
    again.on_step(step_info(2, seconds=2.5, loss=1.0))
    again.on_validation(2, ValidationResult({"bleu": 7.5}, [{"written": "a", "n": 1}]), best=False)
    again.close()
    board = EventAccumulator(str(tmp_path)).Reload()
    found = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert found == [(1, 2.0), (2, 1.0)]
    assert [event.value for event in board.Scalars("validation/bleu")] == [7.5]
    assert [event.value for event in board.Scalars("train/perplexity")] == [
        pytest.approx(4.4817, rel=1e-4),  # exp(1.5)
        pytest.approx(1.6487, rel=1e-4),
    ]
