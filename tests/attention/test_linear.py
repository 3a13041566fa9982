"""Products in which the n × n matrix is never made: against the matrix, and their laws."""

from math import inf

import pytest
import torch
from torch.testing import assert_close

from regard.attention.efficient import CHUNK, causal_product, rows_by_chunk, running_sums


def drawn(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


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


@pytest.mark.parametrize("n", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_the_causal_product_is_the_lower_triangle_times_the_values(n):
    left, right, value = drawn(2, 3, n, 4), drawn(2, 3, n, 4, seed=1), drawn(2, 3, n, 5, seed=2)
    wanted = (left @ right.transpose(-1, -2)).tril() @ value
    assert_close(causal_product(left, right, value), wanted)


@pytest.mark.parametrize("n", [1, CHUNK, 3 * CHUNK + 5])
def test_running_sums_give_the_lower_triangle_of_the_kernel(n):
    left, features, value = drawn(2, n, 4), drawn(2, n, 4, seed=1), drawn(2, n, 5, seed=2)
    assert_close(running(left, features, value), kernel(left, features, value))


def test_keys_that_nobody_sees_add_nothing_wherever_they_stand():
    n = 3 * CHUNK
    left, features, value = drawn(2, n, 4), drawn(2, n, 4, seed=1), drawn(2, n, 5, seed=2)
    seen = torch.ones(2, n, 1, dtype=torch.bool)
    seen[0, : CHUNK + 7] = False  # the first chunk has nothing to measure from
    seen[1, 5:9] = False
    assert_close(running(left, features, value, seen), kernel(left, features, value, seen))


@pytest.mark.parametrize("size", [10.0, 1e3, 1e30])
def test_later_keys_never_change_earlier_sums_however_large_they_are(size):
    left, features, value = (drawn(200, 4, dtype=torch.float32, seed=s) for s in range(3))

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


def test_keys_far_below_their_past_are_summed_as_they_are():
    # The past is e^100 larger: beside it the new ones are exactly as good as nothing.
    features = torch.zeros(2 * CHUNK, 1)
    features[CHUNK:] = -100.0
    _, run = running_sums(chunked(features), chunked(torch.ones(2 * CHUNK, 1)))
    assert run.before.item() == CHUNK
    assert (run.right < 1e-40).all()


def test_rows_by_chunk_measure_keys_as_running_sums_do():
    n = 2 * CHUNK + 3
    features = drawn(n, 4)
    seen = torch.ones(n, 1, dtype=torch.bool)
    seen[:3] = False
    rows = torch.tensor([2, 5, 70, 71, n - 1])
    hidden = features.masked_fill(~seen, -inf)
    runs = running_sums(chunked(hidden), chunked(drawn(n, 1)))
    groups = list(rows_by_chunk(rows, features, seen))
    assert [group.tolist() for group, _, _ in groups] == [[2, 5], [70, 71], [n - 1]]
    for number, ((_, peak, right), run) in enumerate(zip(groups, runs, strict=True)):
        assert torch.equal(peak, run.peak)
        assert_close(right.split(CHUNK)[number], run.right)


def test_gradients_are_those_of_the_matrix():
    def both(function):
        inputs = [drawn(CHUNK + 9, 3, seed=seed).requires_grad_() for seed in range(3)]
        function(*inputs).pow(2).sum().backward()
        return [x.grad for x in inputs]

    for ours, wanted in zip(both(running), both(kernel), strict=True):
        assert_close(ours, wanted)
