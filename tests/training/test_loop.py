"""The training loop: limits, validation, checkpoints, signals and divergence."""

import json
import signal

import pytest
import torch
from torch.testing import assert_close

from regard.errors import FileError, InputError, NotFiniteError
from regard.training.callbacks import Callback, ValidationResult
from tests.training.conftest import PlainEvaluator

pytestmark = pytest.mark.long


def weights_of(trainer):
    return {name: one.detach().clone() for name, one in trainer.model.state_dict().items()}


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


class StopsAt(Callback):
    """Calls the handler of a signal at a step; tests/cli/test_train.py sends real ones."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_step(self, info):
        if info.position.step == self.step:
            handler = signal.getsignal(self.number)
            assert callable(handler)
            handler(self.number, None)


def scored(scores) -> dict:
    """Options of a run whose validations give these scores."""
    scores = iter(scores)
    evaluator = PlainEvaluator(lambda model: ValidationResult({"bleu": next(scores)}))
    return {"parts": {"evaluator": evaluator}, "evaluate": {"metric": "bleu"}}


def test_loss_decreases(make):
    trainer = make(steps=40, validate_every=20)
    outcome = trainer.run()
    steps = trainer.callbacks.steps
    assert outcome.reason == "steps"
    assert [one.position.step for one in steps] == list(range(1, 41))
    assert steps[-1].result.nll < 0.8 * steps[0].result.nll
    assert outcome.metrics["loss"] < steps[0].result.nll


def test_same_seed_gives_identical_weights_and_another_seed_others(make):
    first, second, other = make(folder="a"), make(folder="b"), make(folder="c", seed=2)
    first.run(), second.run(), other.run()
    assert same(weights_of(first), weights_of(second))
    assert not same(weights_of(first), weights_of(other))


@pytest.mark.parametrize(
    ("stop", "number", "options"),
    [
        (3, signal.SIGTERM, {}),
        (4, signal.SIGINT, {"ema": 0.9, "accumulate": 3}),
        (9, signal.SIGTERM, {"average": 2}),
        (5, signal.SIGTERM, {"optimizer": "muon", "precision": "fp16"}),
    ],
)
def test_interrupted_runs_resume_to_identical_weights(make, stop, number, options):
    whole = make(folder="whole", **options)
    whole.run()
    stopped = make(folder="parts", parts={"callbacks": StopsAt(stop, number)}, **options)
    outcome = stopped.run()
    assert (outcome.reason, outcome.signal, outcome.position.step) == (
        "stopped",
        number,
        stop,
    )
    resumed = make(folder="parts", **options)
    resumed.run()
    assert resumed.callbacks.messages[0] == f"resuming from step {stop}"
    assert same(weights_of(whole), weights_of(resumed))
    assert resumed.evaluator.saved[-1] == whole.evaluator.saved[-1]


def test_random_numbers_between_steps_do_not_change_training(make):
    def evaluate(model):
        torch.manual_seed(0)
        torch.randn(100)
        return ValidationResult({"other": 1.0})

    plain = make(folder="a")
    other = make(folder="b", parts={"evaluator": PlainEvaluator(evaluate)})
    plain.run(), other.run()
    assert same(weights_of(plain), weights_of(other))


def test_epochs_limit(make):
    trainer = make(steps=None, epochs=2, validate_every=0)
    outcome = trainer.run()
    assert outcome.reason == "epochs"
    assert outcome.position.epochs == 2
    assert len(trainer.callbacks.validations) == 3  # two epochs and the final model


def test_time_limit_ends_with_a_saved_averaged_and_evaluated_model(make):
    trainer = make(steps=None, minutes=0.02, average=2, validate_every=3, schedule="linear")
    outcome = trainer.run()
    assert outcome.reason == "minutes"
    assert "the final model has the" in trainer.callbacks.messages[-1]
    assert trainer.evaluator.saved[-1] == outcome.metrics
    assert outcome.position.seconds < 10


def test_patience_ends_training_early(make):
    trainer = make(**scored([3.0, 5.0, 4.0, 4.5, 9.0]), steps=100, validate_every=2, patience=2)
    outcome = trainer.run()
    assert (outcome.reason, outcome.position.step) == ("patience", 8)
    assert trainer.state.best_step == 4


def test_equal_scores_keep_the_later_model_and_do_not_reset_patience(make):
    trainer = make(**scored([3.0, 5.0, 5.0, 5.0, 5.0, 5.0]), validate_every=2, patience=3)
    outcome = trainer.run()
    assert (outcome.reason, outcome.position.step) == ("patience", 10)
    assert trainer.state.best_step == 10
    assert same(weights_of(trainer), trainer.checkpoints.load_weights(10))


@pytest.mark.parametrize(
    ("average", "scores"), [(0, [1.0, 3.0, 2.0, 3.0]), (3, [1.0, 3.0, 2.0, 2.9, 3.0])]
)
def test_final_model_is_the_best_if_the_mean_is_not_better(make, average, scores):
    trainer = make(**scored(scores), average=average)
    outcome = trainer.run()
    assert trainer.state.best_step == 8
    assert same(weights_of(trainer), trainer.checkpoints.load_weights(8))
    assert outcome.metrics["bleu"] == 3.0


def test_final_model_is_the_mean_of_the_last_checkpoints(make):
    averaged = make(**scored([1.0, 3.0, 2.0, 3.0]), average=3)
    averaged.run()
    steps = averaged.checkpoints.scheduled_steps()
    assert steps == [4, 8, 12]
    for name, value in weights_of(averaged).items():
        parts = [averaged.checkpoints.load_weights(step)[name].double() for step in steps]
        assert_close(value, (sum(parts) / 3).float())


def test_moving_average_is_validated_and_saved(make):
    trainer = make(ema=0.9)
    trainer.run()
    steps = trainer.checkpoints.steps()
    _, tensors = trainer.checkpoints.load(steps[-1])
    chosen = trainer.checkpoints.load(trainer.state.best_step)[1].average
    assert not same(tensors.average, {name: tensors.weights[name] for name in tensors.average})
    assert all(torch.equal(dict(trainer.model.named_parameters())[n], v) for n, v in chosen.items())


def test_recent_checkpoints_and_the_best_are_kept(make):
    scores = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    trainer = make(**scored(scores), validate_every=2, keep=2)
    trainer.run()
    assert trainer.checkpoints.steps() == [2, 10, 12]


def test_nan_loss_stops_the_run_and_names_the_first_bad_value(make):
    trainer = make(validate_every=2, steps=4)
    trainer.run()
    again = make(validate_every=2, steps=8)
    layer = again.model.decoder.layers[0].feed_forward.inner
    layer.register_forward_pre_hook(lambda module, given: (given[0] * float("inf"),))
    with pytest.raises(NotFiniteError) as caught:
        again.run()
    sentence = str(caught.value)
    assert "the loss became nan at step 5" in sentence
    assert "decoder.layers.0.feed_forward.activation is the first inner value" in sentence
    assert "The checkpoint of step 4 is good" in sentence
    assert again.checkpoints.steps()[-1] == 4


def test_checkpoints_of_diverged_weights_are_deleted(make):
    # Adam changes every weight by lr: after step 1 they are finite but useless
    trainer = make(lr=1e30, warmup=1, schedule="constant", save_every=1, validate_every=100)
    with pytest.raises(NotFiniteError, match=r"at step 2.*The checkpoint of step 0 is good"):
        trainer.run()
    assert trainer.checkpoints.steps() == [0]
    again = make(save_every=1, validate_every=100)
    assert again.run().reason == "steps"


def test_a_diverged_checkpoint_is_recognized_after_a_stop(make):
    # step 1 ruins the weights and the run stops before another loss shows it
    options = {"lr": 1e30, "warmup": 1, "schedule": "constant", "validate_every": 100}
    stopped = make(parts={"callbacks": StopsAt(1, signal.SIGTERM)}, **options)
    assert stopped.run().reason == "stopped"
    resumed = make(**options)
    assert resumed.checkpoints.steps()[-1] == 1
    with pytest.raises(NotFiniteError, match=r"at step 2.*The checkpoint of step 0 is good"):
        resumed.run()
    assert resumed.checkpoints.steps() == [0]


def test_fp16_scale_is_restored(make):
    trainer = make(precision="fp16", steps=4)
    trainer.train_step.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    trainer.run()
    assert trainer.state.scaler["scale"] == 16.0
    resumed = make(precision="fp16", steps=5)
    resumed.run()
    scaler = resumed.train_step.scaler
    assert (scaler.get_scale(), scaler.get_growth_interval()) == (16.0, 3)


def test_nonfinite_weights_are_never_saved(make):
    trainer = make(lr=1e39, warmup=1, schedule="constant", save_every=1, validate_every=100)
    with pytest.raises(NotFiniteError, match=r"the update of step 1 made .* non-finite"):
        trainer.run()
    assert trainer.checkpoints.steps() == [0]


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_nonfinite_validation_loss_stops_before_saving(make, ema):
    trainer = make(lr=1e30, warmup=1, schedule="constant", validate_every=1, ema=ema)
    with pytest.raises(
        NotFiniteError, match=r"validation loss became \S+ after step 1: \S+ is the"
    ):
        trainer.run()
    assert trainer.evaluator.saved == []
    assert trainer.checkpoints.steps() == [0]


def test_nan_scores_are_never_the_best(make):
    trainer = make(**scored([float("nan"), 3.0, 2.0, 3.0]))
    trainer.run()
    assert (trainer.state.best_step, trainer.state.best_score) == (8, 3.0)
    never = make(**scored([float("nan")] * 4), folder="never")
    assert never.run().reason == "steps"
    assert never.state.best_score is None
    assert same(weights_of(never), never.checkpoints.load_weights(12))


def test_exploding_loss_stops_the_run(make):
    trainer = make(lr=30.0, warmup=1, schedule="constant", clip=0.0, steps=200)
    with pytest.raises(NotFiniteError, match=r"the loss became .*the largest inner value is "):
        trainer.run()


def test_unknown_metrics_and_another_seed_are_refused(make):
    with pytest.raises(InputError, match="metric is 'bleu', but this task has loss, perpl"):
        make(evaluate={"metric": "bleu"}).run()
    with pytest.raises(InputError, match=r"started with training\.seed = 1"):
        make(seed=3).run()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"optimizer": "muon"}, r'training\.optimizer = "adam" and cannot continue with "muon"'),
        ({"precision": "fp16"}, r'training\.precision = "float32" and cannot continue with "fp16"'),
        ({"batch_tokens": 300}, r"training\.batch_tokens = 200 and cannot continue with 300"),
    ],
)
def test_fixed_settings_cannot_change_in_a_resumed_run(make, change, sentence):
    make(steps=1).run()
    with pytest.raises(InputError, match=sentence):
        make(steps=2, **change).run()


def test_moving_average_can_start_in_a_resumed_run(make):
    make(steps=4).run()
    again = make(steps=4, ema=0.9)
    again.run()
    saved = again.checkpoints.load_weights(4)
    assert all(torch.equal(value, saved[name]) for name, value in again.average.weights.items())
    longer = make(steps=8, ema=0.9)
    assert longer.run().position.step == 8
    assert longer.checkpoints.load(8)[1].average


def test_other_data_are_refused_in_a_resumed_run(make, data_file):
    make(steps=2, data=data_file).run()
    text = data_file.read_text()
    count = make(steps=2, data=data_file).loader.state()["examples"]
    data_file.write_text(text.replace("8", "8 8"))
    with pytest.raises(InputError, match=rf"started with {count} training examples and now there"):
        make(steps=4, data=data_file).run()
    data_file.write_text(text)
    assert make(steps=4, data=data_file).run().position.step == 4


def test_damaged_checkpoint_is_reported(make):
    trainer = make()
    trainer.run()
    step = trainer.checkpoints.steps()[-1]
    (trainer.checkpoints.path(step) / "model.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(FileError, match=r"is damaged .*continues from the previous"):
        make().run()


def test_frozen_parts_do_not_change(make):
    trainer = make(freeze=["encoder.*"])
    before = weights_of(trainer)
    trainer.run()
    after = weights_of(trainer)
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("encoder."))
    assert not torch.equal(before["tokens.weight"], after["tokens.weight"])


def test_checkpoints_of_version_0_1_resume(make):
    old = {"last_good_step": "sound", "n_worse": "waited", "scheduled": "regular"}
    whole, trainer = make(folder="whole"), make(steps=8)
    whole.run(), trainer.run()
    for folder in map(trainer.checkpoints.path, trainer.checkpoints.steps()):
        (folder / "optimizer.safetensors").rename(folder / "optimiser.safetensors")
        state = json.loads((folder / "state.json").read_text())
        state = {old.get(name, name): value for name, value in state.items()}
        state["settings"]["optimiser"] = state["settings"].pop("optimizer")
        (folder / "state.json").write_text(json.dumps(state))
    resumed = make()
    resumed.run()
    assert resumed.callbacks.messages[0] == "resuming from step 8"
    assert same(weights_of(whole), weights_of(resumed))
