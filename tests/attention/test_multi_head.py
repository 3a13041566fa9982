"""Multi-head attention: by hand, against torch and transformers, cached, grouped, refused."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.efficient import Efficient
from regard.attention.mask import causal, padding, window
from regard.attention.multi_head import KeyValueCache, MultiHeadAttention
from regard.attention.performer import Performer
from regard.errors import InputError, ShapeError
from regard.tap import listen
from tests.listeners import Everybody


def copy_linear(target: nn.Linear, source: nn.Linear) -> None:
    target.load_state_dict(source.state_dict())


def test_one_head_with_identities_is_attention_itself():
    layer = MultiHeadAttention(4, 1, bias=False)
    for linear in (layer.to_query, layer.to_key, layer.to_value, layer.to_output):
        nn.init.eye_(linear.weight)
    x = torch.randn(2, 3, 4)
    assert_close(layer(x), attend(x, x, x))


def test_two_heads_by_hand():
    # head 0 looks at the first number of each token, head 1 at the second; they are put side by
    # side and to_output exchanges them
    layer = MultiHeadAttention(2, 2, bias=False)
    for linear in (layer.to_query, layer.to_key, layer.to_value):
        nn.init.eye_(linear.weight)
    with torch.no_grad():
        layer.to_output.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    x = torch.tensor([[[0.0, 2.0], [0.0, 2.0], [3.0, 2.0]]])
    result = layer(x)[0]
    assert_close(result[:, 0], torch.full((3,), 2.0))  # head 1: all values are 2
    assert_close(result[0, 1], torch.tensor(1.0))  # head 0: query 0 weighs 0, 0 and 3 alike
    parts = torch.tensor([0.0, 0.0, 9.0]).softmax(0)
    assert_close(result[2, 1], 3 * parts[2])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_it_is_torchs_module_on_the_same_weights(bias, mask):
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).eval()
    ours = MultiHeadAttention(12, 3, bias=bias).eval()
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    with torch.no_grad():
        for i, linear in enumerate((ours.to_query, ours.to_key, ours.to_value)):
            linear.weight.copy_(theirs.in_proj_weight[12 * i : 12 * i + 12])
            if bias:
                linear.bias.copy_(theirs.in_proj_bias[12 * i : 12 * i + 12])
        copy_linear(ours.to_output, theirs.out_proj)
    x, lengths = torch.randn(2, 5, 12), [5, 3]
    padded = torch.arange(5) >= torch.tensor(lengths)[:, None]
    theirs_mask = {
        "causal": {"attn_mask": ~causal().tensor(5)},
        "padding": {"key_padding_mask": padded},
    }
    expected, weights = theirs(x, x, x, average_attn_weights=False, **theirs_mask.get(mask, {}))
    allowed = {"causal": causal(), "padding": padding(lengths)}.get(mask)
    assert_close(ours(x, allowed=allowed), expected)
    everybody = Everybody()
    with listen(everybody):
        assert_close(ours(x, allowed=allowed), expected)
    assert_close(everybody.seen["attention.weights"], weights)


@pytest.fixture(scope="module")
def llama():
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation="eager",
    )
    turn = modeling_llama.LlamaRotaryEmbedding(config)

    def rotate(x: torch.Tensor, first: int) -> torch.Tensor:
        positions = torch.arange(first, first + x.size(-2))[None]
        return modeling_llama.apply_rotary_pos_emb(x, x, *turn(x, positions))[0]

    return modeling_llama.LlamaAttention(config, layer_idx=0).eval(), turn, rotate


@pytest.fixture
def like_llama(llama):
    theirs = llama[0]
    ours = MultiHeadAttention(24, 6, d_k=8, n_kv_heads=2, bias=False).eval()
    copy_linear(ours.to_query, theirs.q_proj)
    copy_linear(ours.to_key, theirs.k_proj)
    copy_linear(ours.to_value, theirs.v_proj)
    copy_linear(ours.to_output, theirs.o_proj)
    return ours


def test_grouped_heads_with_rotary_positions_are_llamas_attention(llama, like_llama):
    theirs, turn, rotate = llama
    x = torch.randn(2, 7, 24)
    low = torch.zeros(7, 7).masked_fill(~causal().tensor(7), torch.finfo(torch.float32).min)
    expected, weights = theirs(x, turn(x, torch.arange(7)[None]), low.expand(2, 1, 7, 7))
    everybody = Everybody()
    with listen(everybody):
        found = like_llama(x, allowed=causal(), rotate=rotate)
    assert_close(found, expected)
    assert_close(like_llama(x, allowed=causal(), rotate=rotate), expected)
    assert_close(everybody.seen["attention.weights"], weights)


@torch.no_grad()
@pytest.mark.parametrize("chunks", [[1] * 7, [4, 1, 2]])
def test_step_by_step_with_a_cache_equals_the_whole_at_once(llama, like_llama, chunks):
    rotate = llama[2]
    x = torch.randn(2, 7, 24)
    whole = like_llama(x, allowed=causal(), rotate=rotate)
    cache, steps = KeyValueCache(), []
    for part in x.split(chunks, dim=1):
        mask = causal(offset=cache.length)
        steps.append(like_llama(part, allowed=mask, cache=cache, rotate=rotate))
    assert cache.length == 7
    assert_close(torch.cat(steps, dim=1), whole)


@torch.no_grad()
def test_steps_are_tapped_with_the_position_of_their_first_query():
    layer, cache, everybody = (
        MultiHeadAttention(4, 2, path="decoder.self"),
        KeyValueCache(),
        Everybody(),
    )
    with listen(everybody):
        for part in torch.randn(1, 5, 4).split([2, 1, 2], dim=1):
            layer(part, cache=cache, allowed=causal(offset=cache.length))
    sites = {path.removesuffix(".query") for path in everybody.seen if path.endswith(".query")}
    assert sites == {"decoder.self@0", "decoder.self@2", "decoder.self@3"}
    assert everybody.seen["decoder.self@3.weights"].shape == (1, 2, 2, 5)


@torch.no_grad()
def test_cross_attention_computes_its_keys_once_and_reads_them_afterwards(monkeypatch):
    layer = MultiHeadAttention(8, 2, d_input=5)
    memory, x = torch.randn(3, 6, 5), torch.randn(3, 4, 8)
    whole = layer(x, memory, allowed=padding([6, 2, 3]))
    calls, real = [], layer.to_key.forward
    monkeypatch.setattr(layer.to_key, "forward", lambda x: calls.append(1) or real(x))
    cache, everybody = KeyValueCache(grows=False), Everybody()
    with listen(everybody):
        steps = [
            layer(part, memory, allowed=padding([6, 2, 3]), cache=cache, first=i)
            for i, part in enumerate(x.split(1, dim=1))
        ]
    assert len(calls) == 1
    assert_close(torch.cat(steps, dim=1), whole)
    assert "attention@3.query" in everybody.seen


def test_dropout_works_while_training_only():
    layer, x = MultiHeadAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.long
def test_it_compiles_and_exports(no_shape_checks):
    torch.compiler.reset()
    layer = MultiHeadAttention(8, 4, n_kv_heads=2).eval()
    x = torch.randn(2, 5, 8)

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, lengths):
            return self.layer(x, allowed=causal() & padding(lengths) & window(3))

    inputs = x, torch.tensor([5, 2])
    expected = Masked()(*inputs)
    compiled = torch.compile(Masked(), fullgraph=True, backend="eager")
    assert_close(compiled(*inputs), expected)
    assert_close(torch.export.export(Masked(), inputs).module()(*inputs), expected)


@pytest.mark.parametrize("name", ["n_heads", "n_kv_heads", "d_model", "d_k", "d_v", "d_input"])
@pytest.mark.parametrize("size", [0])
def test_sizes_below_one_are_refused(name, size):
    sizes = {"d_model": 8, "n_heads": 2, name: size}
    with pytest.raises(InputError, match=rf"^{name} is {size}; it must be 1 or more\.$"):
        MultiHeadAttention(**sizes)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"n_heads": 3}, "d_model is 8, which 3 heads cannot share evenly: choose n_heads that"),
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads is 3, which 4 heads cannot share evenly"),
    ],
)
def test_heads_that_cannot_share_evenly_are_refused(sizes, sentence):
    with pytest.raises(InputError, match=sentence):
        MultiHeadAttention(8, **sizes)


@pytest.mark.parametrize(
    ("x", "memory", "sentence"),
    [
        (
            (2, 5, 7),
            None,
            "the inputs of the queries are 7 wide, but this attention was built",
        ),
        ((2, 5, 8), (2, 4, 9), "the inputs of the keys are 9 wide"),
    ],
)
def test_inputs_of_another_width_are_refused(x, memory, sentence):
    layer = MultiHeadAttention(8, 2, d_input=6)
    with pytest.raises(ShapeError, match=f"^{sentence}"):
        layer(torch.ones(x), None if memory is None else torch.ones(memory))


@pytest.mark.parametrize("form", [None, Efficient(), Performer(4, 32)])
def test_weights_are_returned_on_request(form):
    layer, x = MultiHeadAttention(8, 2, form=form), torch.randn(3, 5, 8)
    output, weights = layer(x, x, x, allowed=padding([5, 3, 1]), need_weights=True)
    assert_close(output, layer(x, allowed=padding([5, 3, 1])))
    assert_close(weights.sum(-1), torch.ones(3, 2, 5))
    assert not weights[1, :, :, 3:].any()


def test_query_key_and_value_are_those_of_torchs_module():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    ours = MultiHeadAttention(8, 2)
    parts = zip(
        (ours.to_query, ours.to_key, ours.to_value),
        theirs.in_proj_weight.chunk(3),
        theirs.in_proj_bias.chunk(3),
        strict=True,
    )
    for linear, weight, bias in parts:
        linear.weight.data, linear.bias.data = weight.detach(), bias.detach()
    ours.to_output.load_state_dict(theirs.out_proj.state_dict())
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    expected = theirs(query, key, value, average_attn_weights=False)
    for got, wanted in zip(ours(query, key, value, need_weights=True), expected, strict=True):
        assert_close(got, wanted)
