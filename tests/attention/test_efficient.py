"""Efficient attention: the worked numbers, the n × n matrix it stands for, and its laws."""

from math import inf, nan

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.efficient import efficient_attention
from regard.errors import InputError, MaskError

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


def drawn(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(len(shape) + shape[-1])
    return (torch.randn(*shape, dtype=dtype, generator=generator) for _ in range(3))


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
def test_it_is_what_its_matrix_says(mask, normalization):
    query, key, value = drawn(3, 2, 150, 4)
    found = efficient_attention(query, key, value, allowed=MASKS[mask], normalization=normalization)
    assert_close(found, written_out(query, key, value, MASKS[mask], normalization)[1])


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("mask", MASKS)
def test_its_tiles_are_the_matrix_and_give_the_context(mask, normalization):
    query, key, value = drawn(3, 2, 150, 4)
    with regard.watch() as trace:
        context = efficient_attention(
            query, key, value, allowed=MASKS[mask], normalization=normalization, site="here"
        )
    site = trace["here"]
    weights = written_out(query, key, value, MASKS[mask], normalization)[0]
    for batch in range(3):
        assert_close(site.weights(batch=batch), weights[batch])
        assert_close(site.context(batch=batch), context[batch])
    tile = site.weights(1, batch=1, rows=slice(60, 70), columns=slice(10, 90))
    assert_close(tile, weights[1, 1, 60:70, 10:90])
    assert_close(trace.value("here.context"), context)


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("garbage", [1e4, inf, nan])
def test_padding_changes_nothing_whatever_it_holds(normalization, causal, garbage):
    query, key, value = drawn(1, 2, 20, 4)
    mask = regard.causal() if causal else None
    alone = efficient_attention(query, key, value, allowed=mask, normalization=normalization)
    padded = [torch.full((1, 2, 100, 4), garbage, dtype=torch.float64) for _ in range(3)]
    for old, new in zip((query, key, value), padded, strict=True):
        new[..., :20, :] = old
    padded[0][..., 20:, :] = 1.0  # a query that is not a number has no answer
    mask = regard.padding([20]) if mask is None else mask & regard.padding([20])
    found = efficient_attention(*padded, allowed=mask, normalization=normalization)
    assert_close(found[..., :20, :], alone)
    assert found.isfinite().all()


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("size", [1.0, 100.0, 1e5])
def test_later_positions_never_change_earlier_ones(normalization, size):
    query, key, value = drawn(2, 2, 200, 8, dtype=torch.float32)
    options = {"allowed": regard.causal(), "normalization": normalization}
    before = efficient_attention(query, key, value, **options)[..., :90, :]
    for x in (query, key, value):
        x[..., 90:, :] *= -size
    after = efficient_attention(query, key, value, **options)
    assert torch.equal(after[..., :90, :], before)
    assert after.isfinite().all()


@pytest.mark.parametrize("normalization", FORMS)
def test_permuting_keys_with_their_values_changes_nothing(normalization):
    query, key, value = drawn(2, 2, 30, 4)
    order = torch.randperm(30)
    found = efficient_attention(
        query, key[..., order, :], value[..., order, :], normalization=normalization
    )
    assert_close(found, efficient_attention(query, key, value, normalization=normalization))


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("mask", ["none", "causal and left padding"])
def test_gradients_are_right_and_those_of_nothing_are_zero(mask, normalization):
    inputs = [x[..., :12, :].clone().requires_grad_() for x in drawn(3, 1, 150, 3)]
    allowed = regard.padding([12, 5, 0], side="left") & regard.causal() if mask != "none" else None
    call = lambda *x: efficient_attention(*x, allowed=allowed, normalization=normalization)  # noqa: E731
    assert torch.autograd.gradcheck(call, inputs)
    call(*inputs).sum().backward()
    if allowed is not None:
        assert all(torch.equal(x.grad[2], torch.zeros_like(x.grad[2])) for x in inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_lose_no_more_than_their_digits(dtype):
    query, key, value = (x.to(dtype) for x in drawn(2, 300, 8))
    for mask in (None, regard.causal()):
        found = efficient_attention(query, key, value, allowed=mask)
        exact = efficient_attention(query.double(), key.double(), value.double(), allowed=mask)
        assert found.dtype == dtype
        assert_close(found.double(), exact, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("mask", ["none", "causal and padding"])
def test_long_inputs_never_make_an_n_by_n_matrix(mask, largest):
    n = 8192
    inputs = [x.requires_grad_() for x in drawn(1, 1, n, 16, dtype=torch.float32)]
    allowed = regard.causal() & regard.padding([n - 5]) if mask != "none" else None
    with largest:
        efficient_attention(*inputs, allowed=allowed).sum().backward()
    assert n * 16 <= largest.numbers <= n * 80


@pytest.mark.parametrize("mask", ["padding"])
@pytest.mark.parametrize("normalization", FORMS)
def test_it_compiles_to_one_graph(mask, normalization, no_shape_checks):
    query, key, value = drawn(3, 2, 150, 4)

    def call(query, key, value):
        return efficient_attention(
            query, key, value, allowed=MASKS[mask], normalization=normalization
        )

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert_close(compiled(query, key, value), call(query, key, value))


@pytest.mark.parametrize(
    "mask",
    [
        regard.window(2),
        regard.edges([(0, 0)]),
        torch.ones(3, 3, dtype=torch.bool),
        ~regard.causal(),
        regard.causal() & regard.window(1),
    ],
)
def test_masks_of_single_pairs_are_refused(mask):
    with pytest.raises(MaskError, match=r"single pairs: use padding, causal\(\) or both"):
        efficient_attention(QUERY, KEY, VALUE, allowed=mask)


def test_causal_needs_as_many_queries_as_keys():
    with pytest.raises(MaskError, match="as many queries as keys, not 2 and 3"):
        efficient_attention(QUERY[:2], KEY, VALUE, allowed=regard.causal())


def test_an_unknown_normalization_is_refused():
    with pytest.raises(InputError, match="'softmax' or 'scaling', not 'mean'"):
        efficient_attention(QUERY, KEY, VALUE, normalization="mean")
