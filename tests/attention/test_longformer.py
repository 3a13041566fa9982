"""Longformer: exact attention as its limit, global tokens and their projections, and its laws."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.longformer import Longformer
from regard.attention.mask import as_mask
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import InputError
from tests.attention.forms import GlobalHeads, drawn, longformer_attention, reach

LENGTHS = [300, 110, 0]
MASKS = {
    "none": None,
    "padding": regard.padding(LENGTHS),
    "left padding": regard.padding(LENGTHS, side="left"),
    "causal": regard.causal(),
    "causal and padding": regard.causal() & regard.padding(LENGTHS),
    "window": regard.window(3),
    "pairs": torch.rand(3, 2, 300, 300, generator=torch.Generator().manual_seed(0)) > 0.5,
}


def written_out(query, key, value, some, allowed, own=None):
    """Row by row: a window and the global tokens, each key once; global rows see everything."""
    n = query.size(-2)
    scores = query @ key.transpose(-1, -2) / query.size(-1) ** 0.5
    table = some.tensor(n) if allowed is None else (some & allowed).tensor(n, lead=query.shape[:-2])
    values = value.unsqueeze(-3).expand(*value.shape[:-2], n, -1, -1).clone()
    if own is not None:
        for number, token in enumerate(some.global_tokens):
            asked = own.query[..., number, None, :]
            scores[..., token, :] = (asked * own.key).sum(-1) / query.size(-1) ** 0.5
            values[..., token, :, :] = own.value
    parts = scores.exp() * table
    weights = parts / parts.sum(-1, keepdim=True).clamp(min=1e-300)
    return weights, (weights.unsqueeze(-1) * values).sum(-2)


def own_heads(some, n=300, d_k=4, d_v=4):
    query, key, _ = drawn(3, 2, n, d_k, seed=5)
    return GlobalHeads(query[..., list(some.global_tokens), :], key, drawn(3, 2, n, d_v, seed=6)[0])


def test_a_window_of_one_and_a_global_token_by_hand():
    # all scores are 0, so weights are equal shares: row 2 sees 1, 2, 3 and the global 0
    zero = torch.zeros(5, 1)
    value = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    found = longformer_attention(zero, zero, value, reach=reach(1, global_tokens=[0]))
    wanted = [31 / 5, 7 / 3, 15 / 4, 29 / 4, 25 / 3]  # row 1 sees 0 only once
    assert_close(found, torch.tensor(wanted).unsqueeze(-1))


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("mask", MASKS)
def test_context_and_weights_are_those_of_the_matrix(mask, dilation):
    inputs, some = drawn(3, 2, 300, 4), reach(7, dilation=dilation, global_tokens=[0, 9, 10, 299])
    allowed = None if MASKS[mask] is None else as_mask(MASKS[mask])
    for heads in (None, own_heads(some)):
        options = {"reach": some, "global_heads": heads, "allowed": allowed}
        with regard.watch() as trace:
            context = longformer_attention(*inputs, **options, site="here")
        weights, expected = written_out(*inputs, some, allowed, heads)
        assert_close(context, expected)
        assert_close(trace["here"].weights(batch=1), weights[1])
        tile = trace["here"].weights(1, batch=0, rows=slice(5, 30), columns=slice(3, 90))
        assert_close(tile, weights[0, 1, 5:30, 3:90])
        assert_close(trace["here"].context(batch=1)[:, 11:299], context[1, :, 11:299])
    # global tokens read values of their own
    rows = trace["here"].weights(0, batch=0, rows=[0, 9])
    assert_close(rows @ trace.value("here.global_value")[0, 0], context[0, 0, [0, 9]])


def test_queries_that_see_nothing_give_zeros_and_zero_gradients():
    inputs = [x.requires_grad_() for x in drawn(3, 2, 300, 4)]
    found = Longformer(5, global_tokens=[0])(*inputs, allowed=MASKS["padding"])
    assert torch.equal(found[2], torch.zeros_like(found[2]))
    found.sum().backward()
    assert all(torch.equal(x.grad[2], torch.zeros_like(x.grad[2])) for x in inputs)
    # without the global token the window of a query deep in the padding is empty
    alone = Longformer(5)(*inputs, allowed=MASKS["padding"])
    assert torch.equal(alone[1, :, 115:], torch.zeros(2, 185, 4, dtype=torch.float64))
    assert (alone[1, :, :115] != 0).all()


def test_gradients_reach_the_projections_of_global_tokens():
    form = Longformer(2, dilation=2, global_tokens=[1], n_heads=2, d_k=2, d_v=3).double()
    query, key, _ = drawn(1, 2, 9, 2)
    form(query, key, drawn(1, 2, 9, 3)[0]).pow(2).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in form.parameters())


def test_projections_of_global_tokens_start_as_identities():
    inputs = drawn(1, 2, 50, 4)
    form = Longformer(3, global_tokens=[0], n_heads=2, d_k=4).double()
    assert_close(form(*inputs), Longformer(3, global_tokens=[0])(*inputs))
    torch.nn.init.normal_(form.to_global_value.weight)
    changed = form(*inputs) != Longformer(3, global_tokens=[0])(*inputs)
    assert changed[..., 0, :].all()
    assert not changed[..., 1:, :].any()


def test_in_multi_head_attention_it_shows_its_reach_and_can_be_edited():
    form = Longformer(1, global_tokens=[0], n_heads=2, d_k=4)
    module = MultiHeadAttention(8, 2, form=form, path="encoder.layers.0.self")
    x = torch.randn(2, 6, 8)
    with regard.watch() as trace:
        module(x, allowed=regard.padding([6, 3]))
    weights = trace["encoder.layers.0.self"].weights(batch=0)
    assert torch.equal(weights[0] > 0, form.reach.tensor(6))
    forbidden = regard.forbid("encoder.layers.0.self", query=3, key=4, head=1)
    with regard.watch(edits=[forbidden]) as trace:
        module(x)
    weights = trace["encoder.layers.0.self"].weights(batch=0)
    assert weights[1, 3, 4] == 0
    assert weights[0, 3, 4] > 0


@pytest.mark.parametrize(
    ("options", "n_query", "sentence"),
    [
        ({}, 5, "as many queries as keys, not 5 and 10"),
        ({"global_tokens": [10]}, 10, "global token 10 does not exist: there are only 10 tokens"),
        ({"global_tokens": [0], "n_heads": 3, "d_k": 4}, 10, "projections for 3 heads"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(options, n_query, sentence):
    query, key, value = drawn(2, 10, 4)
    with pytest.raises(InputError, match=sentence):
        Longformer(3, **options).double()(query[:, :n_query], key, value)


@pytest.mark.parametrize("options", [{"n_heads": 2}, {"n_heads": 2, "d_k": 4, "global_tokens": ()}])
def test_projections_without_global_tokens_or_widths_are_refused(options):
    with pytest.raises(InputError, match="need global_tokens, n_heads and d_k"):
        Longformer(3, **{"global_tokens": [0], **options})


def test_it_is_the_longformer_of_transformers_on_the_same_weights():
    from transformers.models.longformer import modeling_longformer as modeling

    config = modeling.LongformerConfig(
        hidden_size=8, num_attention_heads=2, attention_window=[6], attention_probs_dropout_prob=0.0
    )
    torch.manual_seed(0)
    theirs = modeling.LongformerSelfAttention(config, layer_id=0).eval()
    x, tokens, lengths = torch.randn(2, 24, 8), [0, 5], [24, 17]
    state = torch.zeros(2, 24)
    state[:, tokens] = 10_000.0  # global
    state[1, 17:] = -10_000.0  # padding
    wanted = theirs(
        x,
        attention_mask=state,
        is_index_masked=state < 0,
        is_index_global_attn=state > 0,
        is_global_attn=True,
    )[0]

    def heads(linear):
        return linear(x).unflatten(-1, (2, 4)).transpose(1, 2)

    found = longformer_attention(
        *(heads(linear) for linear in (theirs.query, theirs.key, theirs.value)),
        reach=reach(3, global_tokens=tokens),
        global_heads=GlobalHeads(
            heads(theirs.query_global)[..., tokens, :],
            heads(theirs.key_global),
            heads(theirs.value_global),
        ),
        allowed=regard.padding(lengths),
    )
    found = found.transpose(1, 2).flatten(-2)
    for batch, length in enumerate(lengths):
        assert_close(found[batch, :length], wanted[batch, :length], atol=1e-5, rtol=1e-4)
