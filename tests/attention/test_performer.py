"""Performer: its kernel is right on average, its result nears softmax attention, and its laws."""

from itertools import pairwise
from math import exp, sqrt

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.performer import Performer, log_features, orthogonal_features
from regard.errors import ShapeError
from tests.attention.forms import check_site, drawn, performer_attention

LENGTHS = [150, 70, 0]
MASKS = {
    "none": None,
    "padding": regard.padding(LENGTHS),
    "causal": regard.causal(),
    "causal and padding": regard.causal() & regard.padding(LENGTHS),
    "causal and left padding": regard.padding(LENGTHS, side="left") & regard.causal(),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def features_of(n_features, d_k, seed=0, dtype=torch.float64):
    return orthogonal_features(n_features, d_k, generator=seeded(seed)).to(dtype)


def written_out(query, key, value, features, allowed):
    """φ(Q) φ(K)ᵀ with its n × n numbers, masked after the map, each row divided by its sum."""
    n, d_k = query.shape[-2:]
    weights = torch.zeros(*query.shape[:-1], n, dtype=query.dtype)
    for w in features:
        left, right = (
            torch.exp(x @ w * d_k**-0.25 - x.pow(2).sum(-1) / (2 * sqrt(d_k))) for x in (query, key)
        )
        weights += left.unsqueeze(-1) * right.unsqueeze(-2)
    if allowed is not None:
        weights = weights * allowed.tensor(n, lead=query.shape[:-2])
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    return weights, weights @ value


def test_one_feature_and_two_keys_by_hand():
    # d = 1, so nothing is scaled: φ(k) = exp(w k - k²/2) with w = 2 is e^1.5 for k = 1 and 1 for 0
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    key, value = torch.cat([one, zero]), torch.tensor([[1.0], [0.0]])
    found = performer_attention(zero, key, value, features=2 * one)
    assert_close(found, torch.tensor([[exp(1.5) / (exp(1.5) + 1)]]))


@pytest.mark.parametrize("mask", MASKS)
def test_context_and_weights_are_those_of_the_matrix(mask):
    inputs, features = drawn(3, 2, 150, 4), features_of(10, 4)
    with regard.watch() as trace:
        context = performer_attention(*inputs, features=features, allowed=MASKS[mask], site="here")
    weights, expected = written_out(*inputs, features, MASKS[mask])
    assert_close(context, expected)
    check_site(trace["here"], weights, context)


def test_the_kernel_is_the_softmax_kernel_on_average():
    n_draws, n_features, d_k = 1500, 12, 8
    query, key, _ = (0.4 * x for x in drawn(5, d_k))
    draws = []
    for seed in range(n_draws):
        features = features_of(n_features, d_k, seed)
        left, right = (log_features(x, features).exp() for x in (query, key))
        draws.append(left @ right.T / n_features)
    draws = torch.stack(draws)
    exact = torch.exp(query @ key.T / sqrt(d_k))
    error = draws.mean(0) - exact
    deviation = draws.std(0) / sqrt(n_draws)
    # 25 numbers: the largest of so many is beyond 4.5 deviations less than once in 5,000 times
    assert (error.abs() < 4.5 * deviation).all()
    assert (deviation < 0.02 * exact).all()


def test_more_features_approximate_softmax_attention_better():
    query, key, value = (scale * x for scale, x in zip((0.5, 0.5, 1), drawn(40, 8), strict=True))
    exact = regard.attend(query, key, value)

    def error(n_features):
        draws = [
            performer_attention(query, key, value, features=features_of(n_features, 8, seed))
            for seed in range(10)
        ]
        return torch.stack([(draw - exact).pow(2).mean() for draw in draws]).mean().sqrt().item()

    errors = [error(n) for n in (16, 64, 256, 1024)]
    # four times the features, half the error
    assert all(0.3 < after / before < 0.75 for before, after in pairwise(errors))
    assert errors[-1] < 0.02


def test_features_are_orthogonal_in_blocks_and_as_long_as_gaussian_vectors():
    features = features_of(20, 8)
    lengths = features.norm(dim=-1)
    cosines = features @ features.T / (lengths[:, None] * lengths)
    for block in (slice(0, 8), slice(8, 16), slice(16, 20)):
        inside = cosines[block, block]
        assert_close(inside, torch.eye(len(inside), dtype=inside.dtype), atol=1e-5, rtol=0)
    assert cosines[:8, 8:16].abs().max() > 0.1
    # squared lengths are chi-squared with d degrees: mean d, variance 2 d
    squares = features_of(20_000, 8, seed=1).pow(2).sum(-1)
    assert abs(squares.mean() - 8) < 0.15
    assert abs(squares.var() - 16) < 1.5


def test_one_key_has_all_the_weight_and_no_key_none():
    query, key, value = drawn(2, 1, 4)
    form = Performer(4).double()
    assert_close(form(query, key, value), value)
    nothing = form(query, key, value, allowed=regard.padding([1, 0]))
    assert_close(nothing[0], value[0])
    assert torch.equal(nothing[1], torch.zeros_like(nothing[1]))


def test_redrawing_gives_other_features_and_a_seed_the_same():
    form, same = Performer(4, 16, generator=seeded(1)), Performer(4, 16, generator=seeded(1))
    assert torch.equal(form.features, same.features)
    form.redraw(seeded(2))
    assert not torch.equal(form.features, same.features)
    same.redraw(seeded(2))
    assert torch.equal(form.features, same.features)


def test_about_d_times_its_logarithm_features_are_drawn_by_default():
    assert Performer(64).features.shape == (256, 64)  # 64 · ln 64 = 266
    assert Performer(1).features.shape == (64, 1)
    assert "n_features=256" in repr(Performer(64))


def test_features_of_another_width_are_refused():
    with pytest.raises(ShapeError, match=r"queries and keys of width 5, but they are 4 wide"):
        Performer(5, 16).double()(*drawn(3, 4))


def test_features_are_redrawn_after_so_many_training_batches():
    form = Performer(4, 8, redraw_every=2)
    inputs = [x.requires_grad_() for x in drawn(1, 5, 4, dtype=torch.float32)]
    first = form.features.clone()
    results = [form(*inputs) for _ in range(2)]
    assert torch.equal(form.features, first)
    results.append(form(*inputs))
    assert not torch.equal(form.features, first)
    sum(result.sum() for result in results).backward()  # old graphs keep their features
    second = form.features.clone()
    form.eval()
    for _ in range(3):
        form(*inputs)
    assert torch.equal(form.features, second)
