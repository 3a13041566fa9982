"""Performer: its kernel is right on average, its result nears softmax attention, and its laws."""

from itertools import pairwise
from math import exp, inf, nan, sqrt

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.performer import Performer, log_features, orthogonal_features
from regard.errors import MaskError, ShapeError
from tests.attention.forms import performer_attention

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


def drawn(*shape, dtype=torch.float64, seed=0):
    generator = seeded(seed)
    return [torch.randn(*shape, dtype=dtype, generator=generator) for _ in range(3)]


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
def test_it_is_what_its_matrix_says(mask):
    query, key, value = drawn(3, 2, 150, 4)
    features = features_of(10, 4)
    found = performer_attention(query, key, value, features=features, allowed=MASKS[mask])
    assert_close(found, written_out(query, key, value, features, MASKS[mask])[1])


@pytest.mark.parametrize("mask", MASKS)
def test_its_tiles_are_the_matrix_and_give_the_context(mask):
    query, key, value = drawn(3, 2, 150, 4)
    features = features_of(10, 4)
    with regard.watch() as trace:
        context = performer_attention(
            query, key, value, features=features, allowed=MASKS[mask], site="here"
        )
    site = trace["here"]
    weights = written_out(query, key, value, features, MASKS[mask])[0]
    for batch in range(3):
        assert_close(site.weights(batch=batch), weights[batch])
        assert_close(site.context(batch=batch), context[batch])
        some = weights[batch].sum(-1) > 0
        assert_close(site.weights(batch=batch).sum(-1), some.double())
    tile = site.weights(1, batch=1, rows=slice(60, 70), columns=slice(10, 90))
    assert_close(tile, weights[1, 1, 60:70, 10:90])
    assert_close(trace.value("here.context"), context)


def test_the_kernel_is_the_softmax_kernel_on_average():
    n_draws, n_features, d_k = 4000, 12, 8
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
    assert (deviation < 0.01 * exact).all()


def test_more_features_come_nearer_to_softmax_attention():
    query, key, value = (scale * x for scale, x in zip((0.5, 0.5, 1), drawn(40, 8), strict=True))
    exact = regard.attend(query, key, value)

    def error(n_features):
        draws = [
            performer_attention(query, key, value, features=features_of(n_features, 8, seed))
            for seed in range(20)
        ]
        return torch.stack([(draw - exact).pow(2).mean() for draw in draws]).mean().sqrt().item()

    errors = [error(n) for n in (16, 64, 256, 1024, 4096)]
    # four times the features, half the error
    assert all(0.35 < after / before < 0.7 for before, after in pairwise(errors))
    assert errors[-1] < 0.01


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("garbage", [1e4, inf, nan])
def test_padding_changes_nothing_whatever_it_holds(causal, garbage):
    query, key, value = drawn(1, 2, 20, 4)
    form = Performer(4, 16, generator=seeded()).double()
    mask = regard.causal() if causal else None
    alone = form(query, key, value, allowed=mask)
    padded = [torch.full((1, 2, 100, 4), garbage, dtype=torch.float64) for _ in range(3)]
    for old, new in zip((query, key, value), padded, strict=True):
        new[..., :20, :] = old
    padded[0][..., 20:, :] = 1.0  # a query that is not a number has no answer
    mask = regard.padding([20]) if mask is None else mask & regard.padding([20])
    found = form(*padded, allowed=mask)
    assert_close(found[..., :20, :], alone)
    assert found.isfinite().all()


@pytest.mark.parametrize("size", [1.0, 0.01, 30.0, 1e4])
def test_later_positions_never_change_earlier_ones(size):
    query, key, value = drawn(2, 2, 200, 8, dtype=torch.float32)
    form = Performer(8, 32, generator=seeded())
    before = form(query, key, value, allowed=regard.causal())[..., :90, :]
    for x in (query, key, value):
        x[..., 90:, :] *= -size
    after = form(query, key, value, allowed=regard.causal())
    assert torch.equal(after[..., :90, :], before)
    assert after.isfinite().all()


def test_one_key_has_all_the_weight_and_no_key_none():
    query, key, value = drawn(2, 1, 4)
    form = Performer(4).double()
    assert_close(form(query, key, value), value)
    nothing = form(query, key, value, allowed=regard.padding([1, 0]))
    assert_close(nothing[0], value[0])
    assert torch.equal(nothing[1], torch.zeros_like(nothing[1]))


@pytest.mark.parametrize("mask", ["none", "causal and left padding"])
def test_gradients_are_right_and_those_of_nothing_are_zero(mask):
    inputs = [x.requires_grad_() for x in drawn(3, 1, 12, 3)]
    allowed = regard.padding([12, 5, 0], side="left") & regard.causal() if mask != "none" else None
    features = features_of(5, 3)

    def call(*inputs):
        return performer_attention(*inputs, features=features, allowed=allowed)

    assert torch.autograd.gradcheck(call, inputs)
    call(*inputs).sum().backward()
    if allowed is not None:
        assert all(torch.equal(x.grad[2], torch.zeros_like(x.grad[2])) for x in inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_lose_no_more_than_their_digits(dtype):
    inputs = [x.to(dtype) for x in drawn(2, 300, 8)]
    form = Performer(8, 32, generator=seeded())
    for mask in (None, regard.causal()):
        found = form(*inputs, allowed=mask)
        exact = form(*(x.double() for x in inputs), allowed=mask)
        assert found.dtype == dtype
        assert_close(found.double(), exact, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("mask", ["none", "causal and padding"])
def test_long_inputs_never_make_an_n_by_n_matrix(mask, largest):
    n = 8192
    inputs = [x.requires_grad_() for x in drawn(1, 1, n, 16, dtype=torch.float32)]
    allowed = regard.causal() & regard.padding([n - 5]) if mask != "none" else None
    with largest:
        Performer(16, 64)(*inputs, allowed=allowed).sum().backward()
    assert n * 16 <= largest.numbers <= n * 64


@pytest.mark.parametrize("mask", ["padding"])
def test_it_compiles_to_one_graph(mask, no_shape_checks):
    inputs = drawn(3, 2, 150, 4)
    form = Performer(4, 16).double()
    compiled = torch.compile(
        lambda *x: form(*x, allowed=MASKS[mask]), fullgraph=True, backend="aot_eager"
    )
    assert_close(compiled(*inputs), form(*inputs, allowed=MASKS[mask]))


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


def test_masks_of_single_pairs_are_refused():
    query, key, value = drawn(3, 4)
    with pytest.raises(MaskError, match=r"a Performer cannot use the mask window\(1\)"):
        Performer(4).double()(query, key, value, allowed=regard.window(1))


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
