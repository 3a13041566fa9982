"""Where popular explanations slip (docs/slips.md): one test for each, by the same number."""

from math import log, sqrt

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.analysis.worked_example import DEFAULT, work
from regard.attention.efficient import efficient_attention
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, MaskError
from regard.layers.initialize import initialize
from regard.layers.position import sinusoid
from regard.layers.stack import make_norm
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer import Tokenizer


def small_transformer(**changes):
    torch.manual_seed(0)
    sizes = {"n_vocab": 11, "d_model": 8, "n_heads": 2, "d_ff": 16, "dropout": 0.0}
    config = TransformerConfig(**sizes, n_encoder_layers=1, n_decoder_layers=1, **changes)
    return Transformer(config).eval()


def test_slip_1_the_exponent_of_the_positions_is_2i_over_d_model():
    table = sinusoid(4, 8)
    wavelength_of_pair_1 = 10000 ** (2 / 8)  # the slip would give 10000^(8/2), a constant
    assert table[3, 2].item() == pytest.approx(torch.sin(torch.tensor(3 / wavelength_of_pair_1)))
    assert table[3, 3].item() == pytest.approx(torch.cos(torch.tensor(3 / wavelength_of_pair_1)))


def test_slip_2_a_padding_mask_of_three_axes_is_refused_even_where_it_would_broadcast():
    q = torch.randn(4, 4, 5, 3)  # batch = heads = 4: torch itself would take it without a word
    hidden = torch.ones(4, 1, 5, dtype=torch.bool)
    with pytest.raises(MaskError, match=r"shape \(4, 1, 5\)"):
        regard.attend(q, q, q, allowed=hidden)
    assert regard.attend(q, q, q, allowed=hidden[:, None]).shape == q.shape


def test_slip_3_a_decoder_given_only_padding_still_cannot_see_the_future():
    model = small_transformer()
    source, target = torch.randint(11, (1, 4)), torch.randint(11, (1, 6))
    later = target.clone()
    later[0, 4] = (later[0, 4] + 1) % 11
    logits = [model(source, t, [4], [6]) for t in (target, later)]
    assert torch.equal(logits[0][:, :4], logits[1][:, :4])
    assert not torch.equal(logits[0][:, 4:], logits[1][:, 4:])


def test_slip_4_a_row_with_everything_masked_is_zero_and_neither_uniform_nor_nan():
    scores = torch.full((1, 3), float("-inf"))
    assert torch.softmax(scores, -1).isnan().all()  # the naive softmax
    assert_close(torch.softmax(torch.full((1, 3), -1e9), -1), torch.full((1, 3), 1 / 3))
    assert_close(softmax_over_keys(scores), torch.zeros(1, 3))


def test_slip_5_layer_norm_divides_by_the_biased_deviation_with_eps_under_the_root():
    x = torch.tensor([[1.0, 2.0, 4.0]])
    norm = make_norm("layer", 3, eps=1e-5)
    centered = x - x.mean()
    assert_close(norm(x), centered / torch.sqrt((centered**2).mean() + 1e-5))
    assert (norm(x) - centered / (x.std() + 1e-5)).abs().max() > 0.1  # the slip


def test_slip_6_logits_may_be_negative():
    model = small_transformer()
    logits = model(torch.randint(11, (2, 5)), torch.randint(11, (2, 5)))
    assert (logits < 0).any()


def test_slip_7_multi_head_attention_has_four_linear_layers_and_uses_all():
    module = MultiHeadAttention(8, 2)
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    assert len(layers) == 4
    module(torch.randn(1, 3, 8)).square().sum().backward()
    assert all(layer.weight.grad is not None and layer.weight.grad.any() for layer in layers)


def test_slip_8_xavier_uniform_reaches_to_the_root_of_6_over_in_plus_out():
    torch.manual_seed(0)
    layer = nn.Linear(100, 300)
    initialize(layer, "xavier_uniform")
    bound = sqrt(6 / (100 + 300))  # not 1/100, the slip
    assert layer.weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert layer.weight.var().item() == pytest.approx(2 / (100 + 300), rel=0.02)


def test_slip_9_an_embedding_of_width_3_needs_matrices_of_3_rows():
    with pytest.raises(InputError, match="w_query has 4 rows, but the inputs are 3 wide"):
        work({**DEFAULT, "w_query": torch.eye(4).tolist()})
    assert [len(DEFAULT[name]) for name in ("w_query", "w_key", "w_value")] == [3, 3, 3]


def test_slip_10_a_position_does_see_itself():
    assert regard.causal().tensor(3).diagonal().all()
    model = small_transformer()
    target = torch.tensor([[1, 5, 6, 2]])
    changed = torch.tensor([[1, 5, 7, 2]])  # input 2 is what the decoder reads when it writes 3
    source = torch.tensor([[3, 4]])
    assert not torch.equal(model(source, target)[:, 2], model(source, changed)[:, 2])


def test_slip_11_softmax_is_taken_over_the_keys_of_each_query():
    scores = torch.tensor([[0.0, log(3)], [5.0, 5.0]])
    assert_close(softmax_over_keys(scores), torch.tensor([[0.25, 0.75], [0.5, 0.5]]))


def test_slip_12_only_the_scaling_form_of_efficient_attention_equals_a_dot_product_attention():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 4).unbind()
    exact = q @ k.T / 6 @ v
    assert_close(efficient_attention(q, k, v, normalization="scaling"), exact)
    softmax_form = efficient_attention(q, k, v)
    assert (softmax_form - regard.attend(q, k, v)).abs().max() > 0.05
    assert (softmax_form - regard.attend(q, k, v, similarity="dot")).abs().max() > 0.05


@pytest.mark.data("vocabularies")
def test_slip_13_a_comma_has_an_id(data):
    tokenizer = Tokenizer.load(data / "vocabularies" / "bert-base-uncased.vocab.txt")
    ids = tokenizer.encode("Hello, how are you doing?")
    assert ids == [101, 7592, 1010, 2129, 2024, 2017, 2725, 1029, 102]
