"""One layer against torch's own, and against the formulas of post-norm and pre-norm."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.mask import causal, padding
from regard.layers.stack import Layer, LayerConfig, SubLayer
from tests.layers.torch_weights import copy_layer


def layer(*, cross: bool = False, **changes) -> Layer:
    plan = {"d_model": 8, "n_heads": 2, "d_ff": 12} | changes
    torch.manual_seed(0)
    return Layer(LayerConfig(**plan), path="encoder.layers.0", cross=cross).eval()


def theirs(ours: Layer, norm: str, activation: str) -> nn.Module:
    """Torch's own layer with the same weights."""
    cross = ours.cross_attention is not None
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    options = {"activation": activation, "batch_first": True, "norm_first": norm == "pre"}
    made = kind(8, 2, 12, 0.0, **options).eval()
    copy_layer(ours, made)
    return made


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_equals_torchs_own(norm, activation):
    ours = layer(norm=norm, activation=activation)
    x = torch.randn(3, 5, 8)
    hidden = torch.arange(5) >= torch.tensor([5, 3, 1])[:, None]
    reference = theirs(ours, norm, activation)
    with torch.no_grad():
        expected = reference(x, src_key_padding_mask=hidden)
    got = ours(x, allowed=padding([5, 3, 1]))
    real = ~hidden
    assert_close(got[real], expected[real])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_layer_equals_torchs_own(norm):
    ours = layer(norm=norm, cross=True)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    reference = theirs(ours, norm, "relu")
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    hidden = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    with torch.no_grad():
        expected = reference(x, memory, tgt_mask=future, memory_key_padding_mask=hidden)
    assert_close(ours(x, memory, allowed=causal(), memory_allowed=padding([7, 4])), expected)


@pytest.mark.parametrize(("norm", "expected"), [("post", [[1.0, -1.0]]), ("pre", [[6.0, 2.0]])])
def test_post_norm_and_pre_norm_by_hand(norm, expected):
    # x = (3, 1) normalized is (1, -1). The inner layer is the identity, weights all on itself.
    # post: norm(x + x) = norm(6, 2) = (1, -1). pre, with a norm that gives (3, 1): x + (3, 1)
    plan = LayerConfig(d_model=2, n_heads=1, d_ff=1, norm=norm, norm_eps=0.0)
    attention = plan.make_attention("site")
    for linear in (attention.to_query, attention.to_key, attention.to_value, attention.to_output):
        linear.weight.data, linear.bias.data = torch.eye(2), torch.zeros(2)
    sublayer = SubLayer(attention, plan)
    if norm == "pre":
        sublayer.norm.bias.data = torch.tensor([2.0, 2.0])
    assert_close(sublayer(torch.tensor([[[3.0, 1.0]]]), first=0), torch.tensor([expected]))


def test_dropout_acts_on_what_a_sub_layer_adds_and_never_on_the_stream():
    ours = layer(norm="pre", dropout=0.999).train()
    x = torch.randn(1, 4, 8)
    torch.manual_seed(1)
    assert ((ours(x) - x).abs() < 1e-6).float().mean() > 0.8


def test_widths_and_groups_of_heads_are_those_of_the_configuration():
    attention = layer(d_k=3, d_v=5, n_heads=4, n_kv_heads=2).self_attention.inner
    assert attention.to_query.weight.shape == (12, 8)
    assert attention.to_key.weight.shape == (6, 8)
    assert attention.to_value.weight.shape == (10, 8)
    assert attention.to_output.weight.shape == (8, 20)


def test_no_linear_layer_is_unused():
    # slip 7: multi-head attention has four linear layers, and a layer two more
    ours = layer().double()
    linears = [name for name, one in ours.named_modules() if isinstance(one, nn.Linear)]
    assert len(linears) == 6
    x, weights = torch.randn(2, 1, 3, 8, dtype=torch.float64)
    (ours(x) * weights).sum().backward()
    reached = {name: p.grad.abs().max().item() for name, p in ours.named_parameters()}
    # the same number added to all scores of a query changes nothing, so no bias of keys matters
    assert reached.pop("self_attention.inner.to_key.bias") < 1e-12
    assert min(reached.values()) > 1e-6
