"""Efficient attention: the worked numbers, the n × n matrix it implies, and its sums."""

from math import inf

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.efficient import (
    CHUNK,
    causal_product,
    efficient_attention,
    rows_by_chunk,
    running_sums,
)
from regard.errors import InputError, MaskError
from tests.attention.forms import check_site, drawn

QUERY = torch.tensor([[2.0, 0, 1, 1], [0, 2, 0, 2], [2, 1, 1, 2]])
KEY = torch.tensor([[0.0, 1, 1, 2], [2, 0, 2, 0], [1, 1, 2, 2]])
VALUE = torch.tensor([[1.0, 2, 3, 3], [0, 6, 2, 0], [1, 5, 4, 3]])

FORMS = ["softmax", "scaling"]
MASKS = {
    "none": None,
    "padding": regard.padding([150, 70, 0]),
    "left padding": regard.padding([150, 70, 0], side="left"),
    "causal": regard.causal(),
    "causal and padding": regard.causal() & regard.padding([150, 70, 0]),
    "causal and left padding": regard.padding([150, 70, 0], side="left") & regard.causal(),
}


def written_out(query, key, value, allowed, normalization):
    """The pattern with its n × n numbers, row by row, and the context."""
    n = query.size(-2)
    allowed = regard.causal(n) if allowed is None else allowed
    table = allowed.tensor(n, lead=query.shape[:-2])
    rows = []
    for i in range(n):
        seen = table[..., i, :, None]
        if normalization == "scaling":
            parts = key.masked_fill(~seen, 0.0) / seen.sum(-2, keepdim=True).clamp(min=1)
            rows.append((query[..., i, None, :] * parts).sum(-1))
        else:
            parts = torch.softmax(key.masked_fill(~seen, -inf), dim=-2).nan_to_num(0.0)
            rows.append((torch.softmax(query[..., i, None, :], -1) * parts).sum(-1))
    weights = torch.stack(rows, dim=-2)
    return weights, weights @ value


def test_the_worked_example_has_its_numbers():
    wanted = [
        [0.5377, 4.8584, 2.8742, 1.6132],
        [0.8388, 3.9406, 3.2708, 2.5165],
        [0.6560, 4.4987, 3.0302, 1.9680],
    ]
    found = efficient_attention(QUERY, KEY, VALUE)
    assert_close(found, torch.tensor(wanted), atol=5e-5, rtol=0)


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("mask", MASKS)
def test_context_and_weights_are_those_of_the_matrix(mask, normalization):
    inputs = drawn(3, 2, 150, 4)
    options = {"allowed": MASKS[mask], "normalization": normalization}
    with regard.watch() as trace:
        context = efficient_attention(*inputs, **options, site="here")
    weights, expected = written_out(*inputs, MASKS[mask], normalization)
    assert_close(context, expected)
    check_site(trace["here"], weights, context)


@pytest.mark.parametrize("normalization", FORMS)
def test_permuting_keys_with_their_values_changes_nothing(normalization):
    query, key, value = drawn(2, 2, 30, 4)
    order = torch.randperm(30)
    permuted = query, key[..., order, :], value[..., order, :]
    found = efficient_attention(*permuted, normalization=normalization)
    assert_close(found, efficient_attention(query, key, value, normalization=normalization))


@pytest.mark.parametrize("mask", [~regard.causal(), regard.causal() & regard.window(1)])
def test_masks_of_single_pairs_are_refused(mask):
    with pytest.raises(MaskError, match=r"single pairs: use padding, causal\(\) or both"):
        efficient_attention(QUERY, KEY, VALUE, allowed=mask)


def test_causal_needs_as_many_queries_as_keys():
    with pytest.raises(MaskError, match="as many queries as keys, not 2 and 3"):
        efficient_attention(QUERY[:2], KEY, VALUE, allowed=regard.causal())


def test_an_unknown_normalization_is_refused():
    with pytest.raises(InputError, match="normalization is 'mean'; choose one of softmax, scaling"):
        efficient_attention(QUERY, KEY, VALUE, normalization="mean")


def random(*shape, dtype=torch.float64, seed=0):
    return drawn(*shape, dtype=dtype, seed=seed)[0]


def kernel(left, features, value, seen=None):
    """Σ_{j ≤ i} (exp(left_i) · exp(features_j)) value_j with the n × n matrix."""
    weights = left.exp() @ features.exp().transpose(-1, -2)
    weights = weights if seen is None else weights * seen.transpose(-1, -2)
    return weights.tril() @ value


def chunked(x):
    return x.split(CHUNK, dim=-2)


def running(left, features, value, seen=None):
    features = features if seen is None else features.masked_fill(~seen, -inf)
    runs = running_sums(chunked(features), chunked(value))
    parts = [
        run.product(torch.exp(x + run.peak)) for run, x in zip(runs, chunked(left), strict=True)
    ]
    return torch.cat(parts, dim=-2)


def test_the_causal_product_by_hand():
    left = torch.tensor([[1.0], [2.0], [3.0]])
    right = torch.tensor([[1.0], [10.0], [100.0]])
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    # row 2: 3 · (1·[1,0] + 10·[0,1] + 100·[1,1])
    wanted = torch.tensor([[1.0, 0.0], [2.0, 20.0], [303.0, 330.0]])
    assert_close(causal_product(left, right, value), wanted)


@pytest.mark.parametrize("n", [1, CHUNK, 3 * CHUNK + 5])
def test_causal_sums_are_the_lower_triangle_times_the_values(n):
    left, right, value = random(2, 3, n, 4), random(2, 3, n, 4, seed=1), random(2, 3, n, 5, seed=2)
    wanted = (left @ right.transpose(-1, -2)).tril() @ value
    assert_close(causal_product(left, right, value), wanted)
    assert_close(running(left, right, value), kernel(left, right, value))


def test_hidden_keys_add_nothing_wherever_they_are():
    n = 3 * CHUNK
    left, features, value = random(2, n, 4), random(2, n, 4, seed=1), random(2, n, 5, seed=2)
    seen = torch.ones(2, n, 1, dtype=torch.bool)
    seen[0, : CHUNK + 7] = False  # the first chunk has no peak
    seen[1, 5:9] = False
    assert_close(running(left, features, value, seen), kernel(left, features, value, seen))


@pytest.mark.parametrize("size", [10.0, 1e30])
def test_later_keys_never_change_earlier_sums_however_large_they_are(size):
    left, features, value = (random(200, 4, dtype=torch.float32, seed=s) for s in range(3))

    def results():
        for run, part in zip(
            running_sums(chunked(features), chunked(value)), chunked(left), strict=True
        ):
            assert run.right.isfinite().all()
            assert run.before.isfinite().all()
            yield run.product(part)

    before = torch.cat(list(results()))[:100]
    features[100:] = size * features[100:]
    value[100:] = 1e3
    assert torch.equal(torch.cat(list(results()))[:100], before)


def test_keys_far_below_earlier_ones_vanish():
    # The past is e^100 larger: compared with it the new ones vanish.
    features = torch.zeros(2 * CHUNK, 1)
    features[CHUNK:] = -100.0
    _, run = running_sums(chunked(features), chunked(torch.ones(2 * CHUNK, 1)))
    assert run.before.item() == CHUNK
    assert (run.right < 1e-40).all()


def test_rows_by_chunk_have_the_peaks_of_running_sums():
    n = 2 * CHUNK + 3
    features = random(n, 4)
    seen = torch.ones(n, 1, dtype=torch.bool)
    seen[:3] = False
    rows = torch.tensor([2, 5, 70, 71, n - 1])
    hidden = features.masked_fill(~seen, -inf)
    runs = running_sums(chunked(hidden), chunked(random(n, 1)))
    groups = list(rows_by_chunk(rows, features, seen))
    assert [group.tolist() for group, _, _ in groups] == [[2, 5], [70, 71], [n - 1]]
    for number, ((_, peak, right), run) in enumerate(zip(groups, runs, strict=True)):
        assert torch.equal(peak, run.peak)
        assert_close(right.split(CHUNK)[number], run.right)


def test_gradients_are_those_of_the_matrix():
    def both(function):
        inputs = [random(CHUNK + 9, 3, seed=seed).requires_grad_() for seed in range(3)]
        function(*inputs).pow(2).sum().backward()
        return [x.grad for x in inputs]

    for ours, wanted in zip(both(running), both(kernel), strict=True):
        assert_close(ours, wanted)
