"""Softmax over keys: by hand, against torch, its laws, and its corners."""

from math import e, inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.attention.softmax import check_temperature, softmax_over_keys
from regard.errors import InputError


def test_scores_eight_and_nine_give_the_weights_of_the_additive_example():
    weights = softmax_over_keys(torch.tensor([[8.0, 9.0]]))
    assert_close(weights, torch.tensor([[0.2689, 0.7311]]), atol=5e-5, rtol=0)
    assert_close(weights, torch.tensor([[1.0, e]]) / (1 + e))


@pytest.mark.parametrize("temperature", [0.1, 1, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torchs_softmax_of_scores_over_temperature(temperature, dtype):
    scores = torch.randn(2, 3, 4, 5, dtype=dtype)
    assert_close(softmax_over_keys(scores, temperature), torch.softmax(scores / temperature, -1))


@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-40, 1e-46, 5e-324])
def test_tiny_temperatures_reach_the_limit_without_nan(temperature):
    scores = torch.tensor([[1.0, 3.0, 2.0], [2.0, -inf, 2.0], [-inf, -inf, -inf]])
    cold = softmax_over_keys(scores, 0)
    assert torch.equal(softmax_over_keys(scores, temperature), cold)
    tensor = torch.tensor(temperature, dtype=torch.float64)
    assert torch.equal(softmax_over_keys(scores.double(), tensor), cold.double())


@pytest.mark.parametrize("temperature", [1e30, 1e300, inf])
def test_large_temperatures_reach_equal_weights_over_what_is_allowed(temperature):
    scores = torch.tensor([[1.0, 3.0, -inf], [-inf, -inf, -inf]])
    expected = torch.tensor([[0.5, 0.5, 0], [0, 0, 0]])
    assert_close(softmax_over_keys(scores, temperature), expected)
    assert_close(
        softmax_over_keys(scores, torch.full((1, 1), temperature, dtype=torch.float64)), expected
    )


def test_a_query_that_may_see_nothing_has_weights_zero_and_gradient_zero():
    scores = torch.tensor([[-inf, -inf], [1.0, -inf]], requires_grad=True)
    weights = softmax_over_keys(scores)
    assert weights.tolist() == [[0, 0], [1, 0]]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 0], [0, 0]]


def test_a_learned_temperature_gets_its_gradient_despite_masked_scores():
    scores = torch.tensor([[1.0, 2.0, -inf], [-inf, -inf, -inf]], dtype=torch.float64)
    temperature = torch.tensor([[2.0]], dtype=torch.float64, requires_grad=True)
    softmax_over_keys(scores, temperature)[0, 1].backward()
    # w = 1 / (1 + exp(-1/t)); dw/dt = -w (1 - w) / t²
    weight = torch.sigmoid(torch.tensor(0.5, dtype=torch.float64))
    assert_close(temperature.grad, (-weight * (1 - weight) / 4).view(1, 1))


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=8),
    st.floats(0.05, 100),
    st.floats(-20, 20, width=32),
)
def test_weights_sum_to_one_keep_the_order_of_scores_and_ignore_a_common_shift(row, heat, shift):
    scores = torch.tensor([row], dtype=torch.float64)
    weights = softmax_over_keys(scores, heat)
    assert_close(weights.sum(-1), torch.ones(1, dtype=torch.float64))
    assert (weights[0, scores[0].sort().indices].diff() >= -1e-12).all()
    assert_close(softmax_over_keys(scores + shift, heat), weights, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0, 0.5, 1.0, inf])
def test_its_gradient_is_the_one_of_finite_differences(temperature):
    scores = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    hidden = torch.rand(2, 3, 4) < 0.3
    torch.autograd.gradcheck(
        lambda x: softmax_over_keys(x.masked_fill(hidden, -inf), temperature), scores
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (-1.0, "-1.0"),
        (nan, "nan"),
        (-inf, "-inf"),
        (torch.tensor([[1.0], [-2.0]]), "-2.0"),
        (torch.tensor(nan), "nan"),
    ],
)
def test_a_negative_or_nan_temperature_is_refused_in_a_sentence(given, said):
    sentence = (
        rf"^temperature is {said}; it must be 0 \(all weight on the best key\) or larger "
        r"\(1 leaves the scores as they are\)\.$"
    )
    with pytest.raises(InputError, match=sentence):
        check_temperature(given)
    with pytest.raises(InputError, match=sentence):
        softmax_over_keys(torch.zeros(2, 2), given)


def test_temperatures_that_would_act_on_keys_are_refused():
    with pytest.raises(InputError, match=r"temperature has shape \(4,\).*\(head, 1, 1\)"):
        check_temperature(torch.ones(4))
    with pytest.raises(InputError, match=r"temperature has shape \(2, 4\)"):
        check_temperature(torch.ones(2, 4))


def test_at_temperature_0_gradients_are_0_and_not_missing():
    scores = torch.tensor([[1.0, 2.0, -inf], [-inf, -inf, -inf]], requires_grad=True)
    softmax_over_keys(scores, 0.0).sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_no_queries_have_no_weights_and_need_no_temperature():
    empty = softmax_over_keys(torch.zeros(0, 3), torch.ones(0, 1))
    assert empty.shape == (0, 3)
