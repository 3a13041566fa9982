import pytest
import torch
from torch.testing import assert_close

from regard.layers.feed_forward import Dropout, dropout_by_bytes


def test_what_is_kept_grows_by_exactly_what_is_dropped():
    torch.manual_seed(0)
    y = dropout_by_bytes(torch.ones(1000, 333), 0.25)  # 64 of 256 byte values drop: 1 / (1 - 1/4)
    assert_close(y.unique(), torch.tensor([0.0, 4 / 3]))
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.003)


def test_the_mean_stays_whatever_the_probability():
    torch.manual_seed(0)
    for p in (0.01, 0.1, 0.3, 0.5, 0.9):
        assert dropout_by_bytes(torch.ones(400, 1000), p).mean().item() == pytest.approx(
            1, abs=0.02
        )


def test_gradients_flow_only_through_what_was_kept():
    torch.manual_seed(0)
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    y = dropout_by_bytes(x, 0.4)
    y.sum().backward()
    assert x.grad is not None
    assert_close(x.grad, (y / x).detach())


def test_evaluation_and_probability_zero_leave_the_very_same_tensor():
    x = torch.randn(3, 4)
    assert Dropout(0.3).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 0, 2)])
def test_any_shape_is_accepted(shape):
    assert Dropout(0.3).train()(torch.ones(shape)).shape == shape
