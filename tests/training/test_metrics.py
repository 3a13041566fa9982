"""metrics.jsonl and TensorBoard: averages over steps, and resumed runs."""

from dataclasses import astuple

import pytest

from regard.training.callbacks import CallbackList, StepAverages, ValidationResult
from regard.training.checkpoint import TrainingState
from regard.training.metrics import MetricsFile, TensorBoard, read_metrics
from tests.training.conftest import Recorder, step_info


def test_entries_average_over_targets_and_time_steps_after_the_first(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path, every=3)
    metrics.on_step(step_info(1, seconds=10.0, nll=3.5))
    metrics.on_step(step_info(2, seconds=11.0, nll=0.5, n_targets=200))
    metrics.on_step(step_info(3, seconds=13.0, nll=0.5))
    (entry,) = read_metrics(path)
    assert entry["loss"] == (4 * 100 + 1 * 200 + 1 * 100) / 400
    assert entry["surprise"] == entry["loss"] - 0.5
    assert entry["speed"] == 100.0  # 300 targets in the 3 seconds after step 1
    assert (entry["step"], entry["lr"], entry["targets"], entry["norm"]) == (3, 0.03, 100, 1.5)
    for step in (4, 5, 6):
        metrics.on_step(step_info(step, seconds=10.0 + step))
    after = read_metrics(path)[1]
    assert (after["loss"], after["speed"]) == (2.0, 100.0)  # independent of the first entry


def test_time_of_validations_does_not_count():
    averages = StepAverages()
    for step, seconds in ((1, 1.0), (2, 2.0)):
        averages.add(step_info(step, seconds=seconds))
    averages.pause()
    averages.add(step_info(3, seconds=60.0))
    averages.add(step_info(4, seconds=61.0))
    assert averages.speed() == 100.0


def test_only_recent_steps_count():
    averages = StepAverages(30)
    for n in range(100):
        averages.add(step_info(n, seconds=10.0 * n, nll=5.0))
    for n in range(31):
        averages.add(step_info(100 + n, seconds=1000 + 0.1 * n, nll=0.0))
    assert averages.loss() == (0.5, 0.0)
    assert averages.speed() == pytest.approx(1000)


def test_the_last_step_has_an_entry_and_a_single_step_no_speed(tmp_path):
    MetricsFile(tmp_path / "m.jsonl").on_step(step_info(7, seconds=3.0, progress=1.0))
    (entry,) = read_metrics(tmp_path / "m.jsonl")
    assert entry["step"] == 7
    assert "speed" not in entry


def test_resumed_runs_drop_entries_after_their_checkpoint(tmp_path):
    path, text = tmp_path / "deep" / "metrics.jsonl", "한 a\u2028b\x85c\x0bd\re\nf"
    first = MetricsFile(path, every=1)
    first.on_validation(1, ValidationResult({"bleu": 3.0}, [{"output": text}]), best=True)
    for step in (2, 3, 4):
        first.on_step(step_info(step, seconds=float(step)))
    with path.open("ab") as stream:
        stream.write('{"step": 5, "samples": ["Grü'.encode()[:-1])  # killed inside a character
    assert [one["step"] for one in read_metrics(path)] == [1, 2, 3, 4]
    again = MetricsFile(path, every=1, resumed=TrainingState(step=2))
    again.on_step(step_info(3, seconds=3.5))
    lines = read_metrics(path)
    assert [one["step"] for one in lines] == [1, 2, 3]
    assert lines[-1]["seconds"] == 3.5
    samples = [{"output": text}]
    assert lines[0] == {"step": 1, "validation": {"bleu": 3.0}, "best": True, "samples": samples}
    MetricsFile(path)
    assert read_metrics(path) == []


def test_a_resumed_run_averages_over_the_steps_before_its_checkpoint_too(tmp_path):
    steps = [step_info(step, seconds=float(step), nll=float(step)) for step in (1, 2, 3)]
    whole, parts = (MetricsFile(tmp_path / name, every=3) for name in ("whole", "parts"))
    for step in steps:
        whole.on_step(step)
    parts.on_step(steps[0])
    recent = [astuple(steps[0].result)]
    again = MetricsFile(
        tmp_path / "parts", every=3, resumed=TrainingState(step=1, recent=recent, scheduled=False)
    )
    for step in steps[1:]:
        again.on_step(step)
    (one,), (other,) = (read_metrics(tmp_path / name) for name in ("whole", "parts"))
    assert one["loss"] == other["loss"] == 2.5  # (1.5 + 2.5 + 3.5) / 3


@pytest.mark.parametrize("scheduled", [True, False])
def test_the_validation_of_the_final_model_is_not_kept_twice(tmp_path, scheduled):
    path = tmp_path / "m.jsonl"
    first = MetricsFile(path, every=1)
    first.on_step(step_info(1, seconds=1.0))
    for _ in range(2):  # of the step, and of the final weights
        first.on_validation(1, ValidationResult({"bleu": 3.0}), best=True)
    MetricsFile(path, every=1, resumed=TrainingState(step=1, scheduled=scheduled))
    assert ["validation" in one for one in read_metrics(path)] == [False, True][: 1 + scheduled]


def test_callbacks_are_called_in_order_and_may_lack_methods():
    first, second = Recorder(), Recorder()
    second.messages = first.messages
    callbacks = CallbackList([first, object(), second])
    callbacks.on_message("done")
    callbacks.on_validation(2, ValidationResult(), best=True)
    assert first.messages == ["done", "done"]
    assert first.validations == second.validations == [(2, ValidationResult(), True)]
    with pytest.raises(AttributeError):
        callbacks.on_mesage("done")


def test_tensorboard_resumes_at_the_checkpoint(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoard(tmp_path, every=1)
    for step in (1, 2, 3):
        first.on_step(step_info(step, seconds=float(step)))
    first.close()
    again = TensorBoard(tmp_path, every=1, resumed=TrainingState(step=1))
    again.on_step(step_info(2, seconds=2.5, nll=0.5))
    again.on_validation(2, ValidationResult({"bleu": 7.5}, [{"output": "a", "n": 1}]), best=False)
    again.close()
    board = EventAccumulator(str(tmp_path)).Reload()
    found = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert found == [(1, 2.0), (2, 1.0)]
    assert [event.value for event in board.Scalars("validation/bleu")] == [7.5]
    assert [event.value for event in board.Scalars("train/perplexity")] == [
        pytest.approx(4.4817, rel=1e-4),  # exp(1.5)
        pytest.approx(1.6487, rel=1e-4),
    ]
