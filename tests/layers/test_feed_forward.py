from math import erf, exp, pi, sqrt, tanh

import pytest
import torch
from torch.testing import assert_close

from regard.errors import UnknownNameError
from regard.layers.feed_forward import ACTIVATIONS, FeedForward, activation_function
from regard.tap import listen


def test_relu_feed_forward_by_hand():
    module = FeedForward(2, 3)
    module.to_hidden.weight.data = torch.tensor([[1.0, 0], [0, 1], [-1, 0]])
    module.to_hidden.bias.data = torch.tensor([0.0, 1, 0])
    module.to_output.weight.data = torch.tensor([[1.0, 2, 4], [0, 1, 0]])
    module.to_output.bias.data = torch.tensor([0.5, 0])
    # (2, -3) → max(0, (2, -2, -2)) = (2, 0, 0) → (2.5, 0); (-1, 1) → (0, 2, 1) → (8.5, 2)
    x = torch.tensor([[[2.0, -3], [-1, 1]]])
    assert_close(module(x), torch.tensor([[[2.5, 0], [8.5, 2]]]))


BY_HAND = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * (1 + erf(x / sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + exp(-x)),
    "swiglu": lambda x: x / (1 + exp(-x)),
    "geglu": lambda x: x * (1 + erf(x / sqrt(2))) / 2,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_their_formulas(name):
    points = [-3.0, -0.5, 0.0, 1.0, 2.5]
    got = activation_function(name)(torch.tensor(points, dtype=torch.float64))
    assert_close(got, torch.tensor([BY_HAND[name](x) for x in points], dtype=torch.float64))


def test_gated_feed_forward_is_the_product_of_gate_and_hidden():
    module = FeedForward(4, 6, activation="swiglu", bias=False)
    x = torch.randn(2, 3, 4)
    gate, hidden, output = (
        linear.weight for linear in (module.to_gate, module.to_hidden, module.to_output)
    )
    z = x @ gate.T
    assert_close(module(x), (z * torch.sigmoid(z) * (x @ hidden.T)) @ output.T)
    assert [name for name, _ in module.named_parameters()] == [
        "to_hidden.weight",
        "to_gate.weight",
        "to_output.weight",
    ]


def test_the_activation_can_be_changed_and_its_path_has_the_position():
    module = FeedForward(4, 8, path="encoder.layers.0.feed_forward")

    class Silence:
        changes = True

        def __init__(self):
            self.paths = []

        def wants(self, path):
            return False

        def see(self, tapped):
            self.paths.append(tapped.path)
            silent = tapped.path.endswith("activation")
            return torch.zeros_like(tapped.value) if silent else tapped.value

    with listen(silence := Silence()):
        out = module(torch.randn(1, 2, 4), first=3)
    assert_close(out, module.to_output.bias.expand(1, 2, 4))
    assert silence.paths == [
        "encoder.layers.0.feed_forward@3.activation",
        "encoder.layers.0.feed_forward@3.output",
    ]


def test_an_unknown_activation_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"activation is 'gellu'.*gelu"):
        FeedForward(4, 8, activation="gellu")
