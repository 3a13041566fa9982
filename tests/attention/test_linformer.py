"""Linformer: a number by hand, exact attention as its limit, its matrix, and its laws."""

from math import e, sqrt

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.linformer import Linformer
from regard.errors import InputError, MaskError, ShapeError
from tests.attention.forms import check_site, drawn, linformer_attention

LENGTHS = [20, 9, 0]
MASKS = {
    "none": None,
    "padding": regard.padding(LENGTHS),
    "left padding": regard.padding(LENGTHS, side="left"),
}


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


@pytest.mark.parametrize("shape", [(5, 31), (2, 5, 20)])
@pytest.mark.parametrize("mask", MASKS)
def test_context_and_weights_are_those_of_the_matrix(mask, shape):
    inputs, both = drawn(3, 2, 20, 4), projections(*shape)
    with regard.watch() as trace:
        context = linformer_attention(*inputs, allowed=MASKS[mask], site="here", **both)
    weights, expected = written_out(*inputs, MASKS[mask], **both)
    assert_close(context, expected)
    check_site(trace["here"], weights, context)
    assert (weights < 0).any()
    assert trace.value("here.projected_key").shape == (3, 2, 5, 4)


def test_a_sequence_of_padding_gives_zeros():
    found = Linformer(20, 6).double()(*drawn(3, 2, 20, 4), allowed=MASKS["padding"])
    assert torch.equal(found[2], torch.zeros_like(found[2]))
    assert (found[:2] != 0).all()


def test_gradients_of_the_projections_are_those_of_finite_differences():
    inputs, both = drawn(2, 1, 6, 3), [x.requires_grad_() for x in drawn(4, 8)[:2]]

    def call(to_key, to_value):
        names = {"key_projection": to_key, "value_projection": to_value}
        return linformer_attention(*inputs, **names, allowed=regard.padding([6, 0]))

    assert torch.autograd.gradcheck(call, both)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 2 * 3 * 10),
        ({"sharing": "all"}, 3 * 10),
        ({"sharing": "none", "n_heads": 4}, 2 * 4 * 3 * 10),
    ],
)
def test_projections_are_shared_as_configured(options, count):
    form = Linformer(10, 3, **options)
    assert sum(parameter.numel() for parameter in form.parameters()) == count
    assert f"sharing={options.get('sharing', 'heads')!r}" in repr(form)
    heads = options.get("n_heads", 2)
    assert form(*drawn(1, heads, 7, 4, dtype=torch.float32)).shape == (1, heads, 7, 4)


def test_projections_keep_lengths_on_average():
    form = Linformer(400, 200)
    assert_close(
        form.key_projection.norm(dim=0).pow(2).mean(), torch.tensor(1.0), atol=0.02, rtol=0
    )


def test_a_causal_mask_is_refused():
    mask = regard.causal() & regard.padding([20, 9, 0])
    with pytest.raises(MaskError, match="because its projected keys mix all positions"):
        Linformer(20, 5).double()(*drawn(3, 2, 20, 4), allowed=mask)


def test_inputs_that_are_too_long_are_refused():
    with pytest.raises(ShapeError, match="at most 10 positions, but there are 20 keys"):
        Linformer(10, 5).double()(*drawn(3, 2, 20, 4))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_tokens": 0, "n_projected": 3}, "n_tokens is 0"),
        ({"n_tokens": 10, "n_projected": 0}, "n_projected is 0"),
        ({"n_tokens": 10, "n_projected": 3, "sharing": "layers"}, "sharing is 'layers'"),
        ({"n_tokens": 10, "n_projected": 3, "sharing": "none"}, "needs n_heads"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Linformer(**options)
