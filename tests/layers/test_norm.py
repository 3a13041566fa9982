import pytest
import torch
from torch.testing import assert_close

from regard.errors import UnknownNameError
from regard.layers.stack import make_norm


def test_layer_norm_by_hand():
    # mean 2, variance ((-1)^2 + 1^2 + 3^2 + (-3)^2) / 4 = 5
    x = torch.tensor([[1.0, 3.0, 5.0, -1.0]])
    assert_close(make_norm("layer", 4, eps=0.0)(x), torch.tensor([[-1.0, 1.0, 3.0, -3.0]]) / 5**0.5)


def test_rms_norm_by_hand():
    # root of the mean square: sqrt((9 + 16) / 2)
    x = torch.tensor([[3.0, 4.0]])
    assert_close(make_norm("rms", 2, eps=0.0)(x), x / 12.5**0.5)


def test_layer_norm_ignores_shift_and_scale_and_rms_norm_ignores_scale():
    x = torch.randn(5, 8, dtype=torch.float64)
    layer, rms = (make_norm(kind, 8, eps=0.0).double() for kind in ("layer", "rms"))
    assert_close(layer(3 * x + 2), layer(x))
    assert_close(rms(3 * x), rms(x))
    assert (rms(x + 2) - rms(x)).abs().max() > 0.1


def test_equal_numbers_become_zeros_not_nan():
    assert_close(make_norm("layer", 3)(torch.full((1, 3), 7.0)), torch.zeros(1, 3))
    assert_close(make_norm("rms", 3)(torch.zeros(1, 3)), torch.zeros(1, 3))


def test_an_unknown_norm_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="norm_kind is 'layers'; choose one of layer, rms"):
        make_norm("layers", 4)
