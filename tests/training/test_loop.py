"""The loop: it learns, stops when it should, and goes on as if it had never stopped."""

import os
import signal

import pytest
import torch
from torch.testing import assert_close

from regard.errors import FileError, InputError, NotFiniteError
from regard.training.callbacks import TrainerHooks, ValidationResult, Callback


def weights_of(trainer):
    return {name: one.detach().clone() for name, one in trainer.model.state_dict().items()}


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


class StopsAt(Callback):
    """Sends this process a signal at a step."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_step(self, step_info):
        if step_info.position.step == self.step:
            os.kill(os.getpid(), self.number)


def scored(scores) -> dict:
    """Options of a training whose evaluations find these scores, one after another."""
    scores = iter(scores)
    callbacks = TrainerHooks(
        lambda model, numbers: None,
        evaluate=lambda model: ValidationResult({"bleu": next(scores)}),
    )
    return {"callbacks": callbacks, "evaluate": {"metric": "bleu"}}


def test_the_loss_falls(make):
    trainer = make(steps=60, validate_every=20)
    outcome = trainer.run()
    moments = trainer.callbacks.reporter.moments
    assert outcome.reason == "steps"
    assert [one.position.step for one in moments] == list(range(1, 61))
    assert moments[-1].result.nll < 0.8 * moments[0].result.nll
    assert outcome.metrics["loss"] < moments[0].result.nll


def test_the_same_recipe_gives_the_same_weights_bit_by_bit(make):
    first, second = make(folder="a"), make(folder="b")
    first.run(), second.run()
    assert same(weights_of(first), weights_of(second))


def test_another_seed_gives_other_weights(make):
    first, second = make(folder="a"), make(folder="b", seed=2)
    first.run(), second.run()
    assert not same(weights_of(first), weights_of(second))


@pytest.mark.parametrize("stop", [3, 4, 9])
@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "accumulate": 3}, {"average": 2}])
def test_a_run_that_is_stopped_goes_on_to_the_same_weights_bit_by_bit(make, stop, options):
    whole = make(folder="whole", **options)
    whole.run()
    callbacks = TrainerHooks(lambda model, numbers: None, reporter=StopsAt(stop, signal.SIGTERM))
    stopped = make(folder="parts", callbacks=callbacks, **options)
    outcome = stopped.run()
    assert (outcome.reason, outcome.signal, outcome.position.step) == ("stopped", signal.SIGTERM, stop)
    resumed = make(folder="parts", **options)
    resumed.run()
    assert resumed.callbacks.reporter.notes[0] == f"going on from step {stop}"
    assert same(weights_of(whole), weights_of(resumed))
    assert resumed.saved[-1] == whole.saved[-1]


def test_what_is_done_between_steps_does_not_change_training(make):
    def meddle(model):
        torch.manual_seed(0)
        torch.randn(100)
        return ValidationResult({"luck": 1.0})

    plain = make(folder="a")
    meddled = make(folder="b", callbacks=TrainerHooks(lambda model, numbers: None, evaluate=meddle))
    plain.run(), meddled.run()
    assert same(weights_of(plain), weights_of(meddled))


def test_accumulated_batches_are_one_large_batch(make):
    # the same 8 batches in one step: 8 at a time, or 2 large ones that hold them all
    small = make(folder="a", accumulate=8, steps=1, model={"dropout": 0.0}, clip=0.0)
    parts = small.loader.next_step()
    assert len({part.n_targets() for part in parts}) > 1
    (total,) = [sum(part.n_targets() for part in parts)]
    small.train_step.compute_gradients(parts, step=1, n_targets=total)
    accumulated = [one.grad.clone() for one in small.model.parameters()]
    small.train_step.optimizer.zero_grad()
    rows = [row for part in parts for row in rows_of(part)]
    loss = sum(small.train_step.objective(row).loss for row in rows) / total
    loss.backward()
    for ours, whole in zip(accumulated, small.model.parameters(), strict=True):
        assert_close(ours, whole.grad, rtol=1e-4, atol=1e-6)


def rows_of(batch):
    for row in range(len(batch.source_ids)):
        yield type(batch)(
            batch.source_ids[row : row + 1, : batch.source_lengths[row]],
            batch.target_ids[row : row + 1, : batch.target_lengths[row]],
            batch.source_lengths[row : row + 1],
            batch.target_lengths[row : row + 1],
        )


def test_training_ends_after_epochs_and_at_a_whole_one(make):
    trainer = make(steps=None, epochs=2, validate_every=0)
    outcome = trainer.run()
    assert outcome.reason == "epochs"
    assert outcome.position.epochs == 2
    assert len(trainer.callbacks.reporter.validations) == 3  # two epochs and the final model


def test_the_clock_ends_training_with_a_saved_averaged_and_evaluated_model(make):
    trainer = make(steps=None, minutes=0.02, average=2, validate_every=3, schedule="linear")
    outcome = trainer.run()
    assert outcome.reason == "minutes"
    assert "the final model has the" in trainer.callbacks.reporter.notes[-1]
    assert trainer.saved[-1] == outcome.metrics
    assert outcome.position.seconds < 10


def test_training_ends_early_when_nothing_gets_better(make):
    trainer = make(**scored([3.0, 5.0, 4.0, 4.5, 9.0]), steps=100, validate_every=2, patience=2)
    outcome = trainer.run()
    assert (outcome.reason, outcome.position.step) == ("patience", 8)
    assert trainer.state.best_step == 4


def test_of_equal_scores_the_later_is_kept_but_patience_is_not_renewed(make):
    trainer = make(**scored([3.0, 5.0, 5.0, 5.0, 5.0, 5.0]), validate_every=2, patience=3)
    outcome = trainer.run()
    assert (outcome.reason, outcome.position.step) == ("patience", 10)
    assert trainer.state.best_step == 10
    assert same(weights_of(trainer), trainer.checkpoints.load_weights(10))


@pytest.mark.parametrize(
    ("average", "scores"), [(0, [1.0, 3.0, 2.0, 3.0]), (3, [1.0, 3.0, 2.0, 2.9, 3.0])]
)
def test_the_final_model_has_the_best_weights_if_their_mean_is_no_better(make, average, scores):
    trainer = make(**scored(scores), average=average)
    outcome = trainer.run()
    assert trainer.state.best_step == 8
    assert same(weights_of(trainer), trainer.checkpoints.load_weights(8))
    assert outcome.metrics["bleu"] == 3.0


def test_the_final_model_has_the_mean_of_the_last_weights(make):
    averaged = make(**scored([1.0, 3.0, 2.0, 3.0]), average=3)
    averaged.run()
    steps = averaged.checkpoints.scheduled_steps(3)
    assert steps == [4, 8, 12]
    for name, value in weights_of(averaged).items():
        parts = [averaged.checkpoints.load_weights(step)[name].double() for step in steps]
        assert_close(value, (sum(parts) / 3).float())


def test_the_moving_average_is_what_is_validated_and_kept(make):
    trainer = make(ema=0.9)
    trainer.run()
    steps = trainer.checkpoints.steps()
    _, tensors = trainer.checkpoints.load(steps[-1])
    chosen = trainer.checkpoints.load(trainer.state.best_step)[1].average
    assert not same(tensors.average, {name: tensors.weights[name] for name in tensors.average})
    assert all(torch.equal(dict(trainer.model.named_parameters())[n], v) for n, v in chosen.items())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_first(make, number):
    callbacks = TrainerHooks(lambda model, numbers: None, reporter=StopsAt(6, number))
    trainer = make(callbacks=callbacks)
    assert trainer.run().signal == number
    assert trainer.checkpoints.steps()[-1] == 6
    assert not trainer.checkpoints.load_state(6).regular


def test_the_last_checkpoints_and_the_best_are_kept(make):
    scores = iter([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    callbacks = TrainerHooks(
        lambda model, numbers: None,
        evaluate=lambda model: ValidationResult({"bleu": next(scores)}),
    )
    trainer = make(callbacks=callbacks, evaluate={"metric": "bleu"}, validate_every=2, keep=2)
    trainer.run()
    assert trainer.checkpoints.steps() == [2, 10, 12]


def test_a_loss_that_is_no_number_stops_with_the_tap_where_it_began(make):
    trainer = make(validate_every=2, steps=4)
    trainer.run()
    again = make(validate_every=2, steps=8)
    layer = again.model.decoder.layers[0].loader_forward.inner
    layer.register_forward_pre_hook(lambda module, given: (given[0] * float("inf"),))
    with pytest.raises(NotFiniteError) as caught:
        again.run()
    sentence = str(caught.value)
    assert "the loss became nan at step 5" in sentence
    assert "decoder.layers.0.loader_forward.activation is the first inner value" in sentence
    assert "The checkpoint of step 4 is good" in sentence
    assert again.checkpoints.steps()[-1] == 4


def test_a_checkpoint_that_the_last_update_has_wrecked_is_not_called_good(make):
    # Adam moves every weight by lr: those saved after step 1 are finite, and good for nothing
    trainer = make(lr=1e30, warmup=1, schedule="constant", save_every=1, validate_every=100)
    with pytest.raises(NotFiniteError, match=r"at step 2.*The checkpoint of step 0 is good"):
        trainer.run()
    assert trainer.checkpoints.steps() == [0]
    again = make(save_every=1, validate_every=100)
    assert again.run().reason == "steps"


def test_a_wrecked_checkpoint_is_still_known_after_a_stop(make):
    options = {"lr": 1e30, "warmup": 1, "schedule": "constant", "validate_every": 100}
    callbacks = TrainerHooks(lambda model, numbers: None, reporter=StopsAt(1, signal.SIGTERM))
    assert make(**options, callbacks=callbacks).run().position.step == 1
    with pytest.raises(NotFiniteError, match=r"at step 2.*The checkpoint of step 0 is good"):
        make(**options).run()


def test_weights_that_are_not_finite_are_never_saved(make):
    trainer = make(lr=1e39, warmup=1, schedule="constant", save_every=1, validate_every=100)
    with pytest.raises(NotFiniteError, match=r"the update of step 1 has left .* with weights not"):
        trainer.run()
    assert trainer.checkpoints.steps() == [0]


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_a_validation_loss_that_is_no_number_stops_before_anything_is_saved(make, ema):
    trainer = make(lr=1e30, warmup=1, schedule="constant", validate_every=1, ema=ema)
    with pytest.raises(
        NotFiniteError, match=r"validation loss became \S+ after step 1: \S+ is the"
    ):
        trainer.run()
    assert trainer.saved == []
    assert trainer.checkpoints.steps() == [0]


def test_a_score_that_is_no_number_is_never_the_best(make):
    trainer = make(**scored([float("nan"), 3.0, 2.0, 3.0]))
    trainer.run()
    assert (trainer.state.best_step, trainer.state.best_score) == (8, 3.0)
    never = make(**scored([float("nan")] * 4), folder="never")
    assert never.run().reason == "steps"
    assert never.state.best_score is None
    assert same(weights_of(never), never.checkpoints.load_weights(12))


def test_an_exploding_loss_stops_too(make):
    trainer = make(lr=30.0, warmup=1, schedule="constant", clip=0.0, steps=200)
    with pytest.raises(NotFiniteError, match=r"the loss became .*the largest_difference inner value is "):
        trainer.run()


def test_a_metric_that_nobody_measures_and_another_seed_are_refused(make):
    with pytest.raises(InputError, match="metric is 'bleu', but this task measures loss, perpl"):
        make(evaluate={"metric": "bleu"}).run()
    with pytest.raises(InputError, match=r"begun with training\.seed = 1"):
        make(seed=3).run()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"optimizer": "muon"}, r'training\.optimizer = "adam" and cannot go on with "muon"'),
        ({"precision": "fp16"}, r'training\.precision = "float32" and cannot go on with "fp16"'),
        ({"batch_tokens": 300}, r"training\.batch_tokens = 200 and cannot go on with 300"),
    ],
)
def test_a_run_cannot_go_on_with_what_makes_its_checkpoint_mean_something_else(
    make, change, sentence
):
    make(steps=1).run()
    with pytest.raises(InputError, match=sentence):
        make(steps=2, **change).run()


def test_a_moving_average_that_is_turned_on_later_begins_at_the_weights_of_then(make):
    make(steps=4).run()
    again = make(steps=4, ema=0.9)
    again.run()
    saved = again.checkpoints.load_weights(4)
    assert all(torch.equal(value, saved[name]) for name, value in again.average.weights.items())
    longer = make(steps=8, ema=0.9)
    assert longer.run().position.step == 8
    assert longer.checkpoints.load(8)[1].average


def test_a_run_does_not_go_on_with_other_data(make, data_file):
    make(steps=2).run()
    text = data_file.read_text()
    count = make(steps=2).loader.state()["examples"]
    data_file.write_text(text.replace("8", "8 8"))
    with pytest.raises(InputError, match=rf"begun with {count} training examples and now there"):
        make(steps=4).run()
    data_file.write_text(text)
    assert make(steps=4).run().position.step == 4


def test_a_damaged_checkpoint_says_so(make):
    trainer = make()
    trainer.run()
    step = trainer.checkpoints.steps()[-1]
    (trainer.checkpoints.path(step) / "model.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(FileError, match=r"is damaged .*goes on from the one before"):
        make().run()


def test_frozen_parts_stay_as_they_are(make):
    trainer = make(freeze=["encoder.*"])
    before = weights_of(trainer)
    trainer.run()
    after = weights_of(trainer)
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("encoder."))
    assert not torch.equal(before["tokens.weight"], after["tokens.weight"])


@pytest.mark.parametrize("precision", ["bf16"])
def test_half_precision_learns(make, precision):
    trainer = make(precision=precision, steps=40, validate_every=20)
    trainer.run()
    moments = trainer.callbacks.reporter.moments
    assert moments[-1].result.nll < moments[0].result.nll
    assert next(trainer.model.parameters()).dtype == torch.float32
