"""Gradients of a logit with respect to inner values, chosen names, and traces of a batch."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.errors import InputError
from regard.tap import Tapped, listen
from regard.trace.capture import trace_model

IDS = [5, 3, 8, 1]


@pytest.fixture(scope="module")
def model() -> regard.Model:
    torch.manual_seed(0)
    settings = {"n_vocab": 12, "d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2}
    module = regard.build({"family": "decoder", **settings}).eval().double()
    return regard.Model(module=module, task="language")


class Nudge:
    """Adds a small step to one number of one value."""

    changes = True

    def __init__(self, path: str, index: tuple[int, ...], step: float) -> None:
        self.path, self.index, self.step = path, index, step

    def wants(self, path: str) -> bool:
        return path == self.path

    def see(self, tapped: Tapped):
        if tapped.path != self.path:
            return tapped.value
        value = tapped.value.clone()
        value[self.index] += self.step
        return value


def logit(model: regard.Model, path: str, index: tuple[int, ...], step: float) -> float:
    with listen(Nudge(path, index, step)):
        return float(trace_model(model, IDS)["output.logits"][0, 2, 7])


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("decoder.layers.0.self.query", (0, 1, 2, 3)),
        ("decoder.layers.1.self.key", (0, 0, 1, 0)),
        ("decoder.layers.0.self.value", (0, 1, 0, 2)),
        ("decoder.layers.1.self.weights", (0, 1, 2, 1)),
        ("decoder.layers.0.feed_forward.output", (0, 1, 5)),
    ],
)
def test_gradients_are_the_finite_differences(model, path, index):
    found = model.trace(IDS, gradients=(2, 7)).gradients[path]
    step = 1e-5
    slope = (logit(model, path, index, step) - logit(model, path, index, -step)) / (2 * step)
    assert found[index].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)
    assert abs(slope) > 0


def test_later_positions_have_no_gradient_and_the_default_is_the_best_last_token(model):
    early = model.trace(IDS, gradients=(1, 7)).gradients["decoder.layers.0.self.value"]
    assert not early[..., 2:, :].any()
    trace = model.trace(IDS, gradients=True)
    best = int(trace["output.logits"][0, -1].argmax())
    same = model.trace(IDS, gradients=(len(IDS) - 1, best))
    path = "decoder.layers.1.self.value"
    assert_close(trace.gradients[path], same.gradients[path])
    assert trace.gradients.keys() >= {f"{site}.weights" for site in trace}


def test_a_trace_with_gradients_records_the_same_values(model):
    plain, with_gradients = model.trace(IDS), model.trace(IDS, gradients=True)
    assert plain.values.keys() == with_gradients.values.keys()
    for path, value in plain.values.items():
        assert_close(with_gradients.values[path], value)
        assert not with_gradients.values[path].requires_grad


def test_an_unknown_position_or_token_is_refused(model):
    with pytest.raises(InputError, match="position is 9; there are 4, 0 to 3"):
        model.trace(IDS, gradients=(9, 1))
    with pytest.raises(InputError, match="token is 12; there are 12, 0 to 11"):
        model.trace(IDS, gradients=(0, 12))


def test_only_chosen_names_are_recorded(model):
    trace = model.trace(IDS, only=["*.layers.1.self", "output.logits"])
    assert list(trace) == ["decoder.layers.1.self"]
    assert "output.logits" in trace.values
    assert not any(".layers.0." in path for path in trace.values)
    whole = model.trace(IDS)
    for path in trace:
        assert_close(trace[path].weights(), whole[path].weights())


def test_a_value_is_found_by_its_path_and_several_inputs_give_several_traces(model):
    first, second = model.traces([IDS, IDS[:2]])
    assert first["output.logits"] is first.values["output.logits"]
    assert first["output.logits"].shape == (1, 4, 12)
    assert second["output.logits"].shape == (1, 2, 12)
