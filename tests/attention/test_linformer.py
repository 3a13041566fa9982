"""Linformer: a number by hand, exact attention as its limit, its matrix, and its laws."""

from math import e, inf, nan, sqrt

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.linformer import Linformer
from regard.errors import InputError, MaskError, ShapeError
from tests.attention.forms import linformer_attention

LENGTHS = [20, 9, 0]
MASKS = {
    "none": None,
    "padding": regard.padding(LENGTHS),
    "left padding": regard.padding(LENGTHS, side="left"),
}


def drawn(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, dtype=dtype, generator=generator) for _ in range(3)]


def projections(*shape, dtype=torch.float64):
    key, value, _ = drawn(*shape, dtype=dtype, seed=7)
    return {"key_projection": key, "value_projection": value}


def written_out(query, key, value, allowed, key_projection, value_projection):
    """Position by position: what a query takes from each of them, and the context."""
    n_query, n_key = query.size(-2), key.size(-2)
    seen = torch.ones(*query.shape[:-2], n_query, n_key, dtype=torch.bool)
    seen = seen if allowed is None else allowed.tensor(n_query, n_key, lead=query.shape[:-2])
    keep = seen[..., 0, :, None].to(key.dtype)
    mixed = torch.einsum("...pn,...nd->...pd", key_projection[..., :n_key], key * keep)
    scores = torch.einsum("...qd,...pd->...qp", query, mixed) / sqrt(query.size(-1))
    parts = scores.exp() / scores.exp().sum(-1, keepdim=True)
    weights = torch.einsum("...qp,...pn->...qn", parts, value_projection[..., :n_key])
    weights = weights * seen
    return weights, weights @ value


def test_two_mixtures_by_hand():
    # keys 1 and 1: E keeps the first and takes their difference, so the scores are 1 and 0
    query, key, value = torch.ones(1, 1), torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0], [0.0]])
    mix = torch.tensor([[1.0, 0.0], [1.0, -1.0]])
    found = linformer_attention(
        query, key, value, key_projection=mix, value_projection=torch.eye(2)
    )
    assert_close(found, torch.tensor([[e / (e + 1)]]))


def test_with_identities_it_is_exact_attention():
    query, key, value = drawn(3, 2, 20, 4)
    eye = torch.eye(20, dtype=torch.float64)
    found = linformer_attention(query, key, value, key_projection=eye, value_projection=eye)
    assert_close(found, regard.attend(query, key, value))


@pytest.mark.parametrize("shape", [(5, 20), (5, 31), (2, 5, 20)])
@pytest.mark.parametrize("mask", MASKS)
def test_it_is_what_its_matrix_says(mask, shape):
    inputs, both = drawn(3, 2, 20, 4), projections(*shape)
    found = linformer_attention(*inputs, allowed=MASKS[mask], **both)
    assert_close(found, written_out(*inputs, MASKS[mask], **both)[1])


@pytest.mark.parametrize("shape", [(5, 31), (2, 5, 20)])
@pytest.mark.parametrize("mask", MASKS)
def test_its_tiles_are_the_matrix_and_give_the_context(mask, shape):
    inputs, both = drawn(3, 2, 20, 4), projections(*shape)
    with regard.watch() as trace:
        context = linformer_attention(*inputs, allowed=MASKS[mask], site="here", **both)
    site = trace["here"]
    weights = written_out(*inputs, MASKS[mask], **both)[0]
    for batch in range(3):
        assert_close(site.weights(batch=batch), weights[batch])
        assert_close(site.context(batch=batch), context[batch])
    assert_close(
        site.weights(1, batch=1, rows=slice(6, 9), columns=slice(3, 15)), weights[1, 1, 6:9, 3:15]
    )
    assert (weights < 0).any()
    assert trace.value("here.projected_key").shape == (3, 2, 5, 4)
    assert_close(trace.value("here.context"), context)


@pytest.mark.parametrize("garbage", [1e4, inf, nan])
def test_padding_changes_nothing_whatever_it_holds(garbage):
    inputs, form = drawn(1, 2, 20, 4), Linformer(100, 6).double()
    alone = form(*inputs)
    padded = [torch.full((1, 2, 100, 4), garbage, dtype=torch.float64) for _ in range(3)]
    for old, new in zip(inputs, padded, strict=True):
        new[..., :20, :] = old
    padded[0][..., 20:, :] = 1.0  # a query that is not a number has no answer
    found = form(*padded, allowed=regard.padding([20]))
    assert_close(found[..., :20, :], alone)
    assert found.isfinite().all()


def test_a_sequence_of_padding_gives_zeros():
    found = Linformer(20, 6).double()(*drawn(3, 2, 20, 4), allowed=MASKS["padding"])
    assert torch.equal(found[2], torch.zeros_like(found[2]))
    assert (found[:2] != 0).all()


def test_gradients_are_right_also_those_of_the_projections():
    inputs = [x.requires_grad_() for x in drawn(2, 1, 6, 3)]
    both = [x.requires_grad_() for x in drawn(4, 8)[:2]]

    def call(query, key, value, to_key, to_value):
        return linformer_attention(
            query,
            key,
            value,
            key_projection=to_key,
            value_projection=to_value,
            allowed=regard.padding([6, 0]),
        )

    assert torch.autograd.gradcheck(call, [*inputs, *both])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_lose_no_more_than_their_digits(dtype):
    inputs = [x.to(dtype) for x in drawn(2, 2, 20, 4)]
    both = {name: x.to(dtype) for name, x in projections(5, 20).items()}
    found = linformer_attention(*inputs, **both)
    exact = linformer_attention(
        *(x.double() for x in inputs), **{name: x.double() for name, x in both.items()}
    )
    assert found.dtype == dtype
    assert_close(found.double(), exact, atol=0.1, rtol=0.1)


def test_long_inputs_never_make_an_n_by_n_matrix(largest):
    n = 8192
    inputs = [x.requires_grad_() for x in drawn(1, 1, n, 16, dtype=torch.float32)]
    with largest:
        Linformer(n, 32)(*inputs, allowed=regard.padding([n - 5])).sum().backward()
    assert n * 16 <= largest.numbers <= n * 32


@pytest.mark.parametrize("mask", ["padding"])
def test_it_compiles_to_one_graph(mask, no_shape_checks):
    inputs, form = drawn(3, 2, 20, 4), Linformer(30, 6).double()
    compiled = torch.compile(
        lambda *x: form(*x, allowed=MASKS[mask]), fullgraph=True, backend="aot_eager"
    )
    assert_close(compiled(*inputs), form(*inputs, allowed=MASKS[mask]))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 2 * 3 * 10),
        ({"sharing": "all"}, 3 * 10),
        ({"sharing": "none", "n_heads": 4}, 2 * 4 * 3 * 10),
    ],
)
def test_projections_are_shared_as_asked(options, count):
    form = Linformer(10, 3, **options)
    assert sum(parameter.numel() for parameter in form.parameters()) == count
    assert f"sharing={options.get('sharing', 'heads')!r}" in repr(form)
    heads = options.get("n_heads", 2)
    assert form(*drawn(1, heads, 7, 4, dtype=torch.float32)).shape == (1, heads, 7, 4)


def test_projections_keep_lengths_on_average():
    torch.manual_seed(0)
    form = Linformer(400, 200)
    assert_close(
        form.key_projection.norm(dim=0).pow(2).mean(), torch.tensor(1.0), atol=0.02, rtol=0
    )


@pytest.mark.parametrize("mask", [regard.causal(), regard.causal() & regard.padding([20, 9, 0])])
def test_it_refuses_to_be_causal(mask):
    with pytest.raises(
        MaskError, match="cannot be causal because its projected keys mix all positions"
    ):
        Linformer(20, 5).double()(*drawn(3, 2, 20, 4), allowed=mask)


@pytest.mark.parametrize("mask", [regard.window(2), torch.ones(20, 20, dtype=torch.bool)])
def test_masks_of_single_pairs_are_refused(mask):
    with pytest.raises(MaskError, match=r"never compares single pairs"):
        Linformer(20, 5).double()(*drawn(3, 2, 20, 4), allowed=mask)


def test_inputs_that_are_too_long_are_refused():
    with pytest.raises(ShapeError, match="at most 10 positions, but there are 20 keys"):
        Linformer(10, 5).double()(*drawn(3, 2, 20, 4))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_tokens": 0, "n_projected": 3}, "not 0 to 3"),
        ({"n_tokens": 10, "n_projected": 0}, "not 10 to 0"),
        ({"n_tokens": 10, "n_projected": 3, "sharing": "layers"}, "sharing is 'layers'"),
        ({"n_tokens": 10, "n_projected": 3, "sharing": "none"}, "needs n_heads"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Linformer(**options)
