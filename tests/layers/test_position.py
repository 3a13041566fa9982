from math import cos, sin

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError, ShapeError
from regard.layers.embedding import (
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    sinusoid,
    token_positions,
)

CPU = torch.device("cpu")


def test_sinusoid_by_hand():
    # d_model 4: pair 0 turns by 1, pair 1 by 1 / 10000^(2/4) = 1/100
    expected = [[0, 1, 0, 1], [sin(1), cos(1), sin(0.01), cos(0.01)]]
    assert_close(sinusoid(2, 4), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("shift", [1, 7])
def test_a_shifted_position_is_a_linear_function_of_the_position(shift):
    # one matrix, fitted on the first half, maps PE(pos) to PE(pos + shift) in the second half, too
    table = sinusoid(200, 8)
    here, there = table[:-shift], table[shift:]
    matrix = torch.linalg.lstsq(here[:50], there[:50]).solution
    assert_close(here[50:] @ matrix, there[50:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("d_model", [6, 7])
def test_both_layouts_have_the_same_waves(d_model):
    turns, halves = sinusoid(9, d_model), sinusoid(9, d_model, layout="halves")
    assert_close(halves, torch.cat([turns[:, 0::2], turns[:, 1::2]], dim=-1))


def test_the_module_gives_the_table_in_the_type_of_its_input():
    module = SinusoidalPositions(6)
    for dtype in (torch.float32, torch.float64):
        got = module(token_positions(300, device=CPU), torch.empty(0, dtype=dtype), stop=300)
        assert_close(got, sinusoid(300, 6).to(dtype)[None], rtol=0, atol=0)


def test_a_table_made_without_gradients_serves_training_later():
    module, x = SinusoidalPositions(6), torch.randn(1, 3, 6, requires_grad=True)
    with torch.inference_mode():
        module(token_positions(3, device=CPU), x, stop=3)
    (x * module(token_positions(3, device=CPU), x, stop=3)).sum().backward()
    assert x.grad is not None


def test_positions_count_from_the_first_token():
    assert token_positions(3, first=4, device=CPU).tolist() == [[4, 5, 6]]


def test_positions_with_padding_on_the_left_count_from_the_first_real_token():
    lengths = torch.tensor([4, 2])
    assert token_positions(4, lengths=lengths, device=CPU).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    # one more step with a cache of 4
    later = token_positions(1, first=4, lengths=lengths + 1, device=CPU)
    assert later.tolist() == [[4], [2]]


def test_more_positions_than_were_learned_are_refused():
    with pytest.raises(InputError, match=r"has 6 tokens, but .* only 5 positions"):
        LearnedPositions(5, 2)(token_positions(6, device=CPU), torch.empty(0), stop=6)


def test_rotary_rotates_a_pair_by_its_position_by_hand():
    # d_k 2: one pair, which turns by 1 each position; (1, 0) at position 3 becomes (cos 3, sin 3)
    x = torch.tensor([[[[1.0, 0.0]]]])
    assert_close(RotaryPositions(2)(x, 3), torch.tensor([[[[cos(3), sin(3)]]]]))


def test_rotary_equals_multiplication_by_complex_numbers():
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    rotary = RotaryPositions(8, theta=50.0)
    angles = torch.arange(4, 11)[:, None] * 50.0 ** -(torch.arange(4) / 4.0).double()
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    assert_close(rotary(x, 4), torch.cat([turned.real, turned.imag], dim=-1))


def test_rotary_products_depend_on_the_distance_only_and_lengths_stay():
    rotary = RotaryPositions(8)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    products = [(rotary(query, 5 + n) * rotary(key, 2 + n)).sum() for n in (0, 100)]
    assert_close(*products)
    assert_close(rotary(query, 9).norm(), query.norm())


def test_partial_rotation_leaves_the_rest_alone():
    x = torch.randn(1, 1, 3, 8)
    turned = RotaryPositions(8, d_rotary=4)(x, 2)
    assert_close(turned[..., 4:], x[..., 4:], rtol=0, atol=0)
    assert_close(turned[..., :4], RotaryPositions(4)(x[..., :4], 2))


def test_rows_may_have_different_positions():
    x = torch.randn(2, 1, 2, 4)
    turned = RotaryPositions(4).at(torch.tensor([[0, 1], [5, 6]]), x)(x, 0)
    assert_close(turned[0], RotaryPositions(4)(x[:1], 0)[0])
    assert_close(turned[1], RotaryPositions(4)(x[1:], 5)[0])


def test_scaling_slows_slow_pairs_down_and_leaves_fast_ones_alone():
    plain = RotaryPositions(64, theta=500_000.0).frequencies()
    scaled = RotaryPositions(64, theta=500_000.0, scaling=(8.0, 1.0, 4.0, 8192.0)).frequencies()
    assert_close(scaled[0], plain[0])
    assert_close(scaled[-1], plain[-1] / 8)
    assert ((scaled <= plain) & (scaled >= plain / 8)).all()


@pytest.mark.parametrize("d_rotary", [3, 6, 0])
def test_numbers_that_are_not_pairs_cannot_be_rotated(d_rotary):
    with pytest.raises(ShapeError, match="cannot rotate"):
        RotaryPositions(4, d_rotary=d_rotary)
