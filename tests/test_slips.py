"""Where popular explanations slip (docs/slips.md): one test for each, by the same number."""

import re
from math import log, sqrt
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from docs.hooks import slip_figures
from regard.analysis.worked_example import DEFAULT, work
from regard.attention.efficient import efficient_attention
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.softmax import softmax_over_keys
from regard.errors import InputError, MaskError
from regard.layers.embedding import sinusoid
from regard.layers.stack import initialize, make_norm
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import train_tokenizer

REPOSITORY = Path(__file__).resolve().parents[1]


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
    wrong = torch.sin(torch.arange(4) / 10000 ** (8 / 2))
    assert wrong.max() < 1e-15  # all positions look the same


def test_slip_2_a_padding_mask_of_three_axes_is_refused_even_where_it_would_broadcast():
    q = torch.randn(4, 4, 5, 3)  # batch = heads = 4: torch itself would take it without a word
    hidden = torch.ones(4, 1, 5, dtype=torch.bool)
    with pytest.raises(MaskError, match=r"shape \(4, 1, 5\)"):
        regard.attend(q, q, q, allowed=hidden)
    assert regard.attend(q, q, q, allowed=hidden[:, None]).shape == q.shape
    # two sentences of 3 and 1 tokens, two heads: the slip hides keys of sentence 0 in head 1
    seen = regard.padding([3, 1]).tensor(1, 3, lead=(2,))
    scores = torch.zeros(2, 2, 1, 3)
    wrong, right = (
        scores.masked_fill(~one, float("-inf")).softmax(-1)[0, 1, 0]
        for one in (seen, seen[:, None])
    )
    assert wrong.tolist() == [1, 0, 0]
    assert_close(right, torch.full((3,), 1 / 3))


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
    wrong, right = (one.softmax(-1) for one in (logits.relu(), logits))
    negative = logits[0, 0] < 0
    assert wrong[0, 0][negative].std() < 1e-7 < right[0, 0][negative].std()


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


def test_slip_13_a_comma_has_an_id(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += ["hello", ",", "how", "are", "you", "doing", "?"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt")
    ids = tokenizer.encode("Hello, how are you doing?")
    assert ids == [2, 5, 6, 7, 8, 9, 10, 11, 3]  # the listing has no id for the comma, 6


@pytest.mark.data("vocabularies")
def test_slip_13_with_the_vocabulary_of_bert(data):
    tokenizer = Tokenizer.load(data / "vocabularies" / "bert-base-uncased.vocab.txt")
    ids = tokenizer.encode("Hello, how are you doing?")
    assert ids == [101, 7592, 1010, 2129, 2024, 2017, 2725, 1029, 102]


class PlainDropout:  # not an nn.Module, so that eval() does not reach its layer
    def __init__(self):
        self.layer = nn.Dropout(0.5)

    def __call__(self, x):
        return self.layer(x)


def test_slip_14_dropout_of_a_class_that_is_not_a_module_stays_on():
    torch.manual_seed(0)
    x = torch.ones(100)
    hidden, model = nn.Module(), small_transformer(activation_dropout=0.5)
    hidden.part = PlainDropout()
    hidden.eval()
    assert not torch.equal(hidden.part(x), hidden.part(x))
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids, ids), model(ids, ids))


def test_slip_15_biases_start_at_zero():
    assert nn.Linear(64, 64).bias.abs().max() > 0.1  # what is left if only matrices are initialized
    biases = [value for name, value in small_transformer().named_parameters() if "bias" in name]
    assert len(biases) > 10
    assert not any(value.any() for value in biases)


@pytest.mark.parametrize(
    ("kind", "unknown"), [("bpe", True), ("wordpiece", True), ("byte-bpe", False)]
)
def test_slip_16_only_a_vocabulary_without_bytes_has_unknown_tokens(kind, unknown):
    tokenizer = train_tokenizer(["low lower"], kind=kind, vocab_size=270, min_frequency=1)
    assert (tokenizer.id_of("[UNK]") in tokenizer.encode("low 국수")) == unknown


def test_slip_17_every_size_that_is_given_is_used():
    for d_model in (8, 12):
        config = {"family": "decoder", "n_vocab": 9, "n_heads": 2, "d_ff": 8, "n_layers": 1}
        model = regard.build({**config, "d_model": d_model})
        assert model.decoder.layers[0].feed_forward.inner.to_hidden.in_features == d_model


def test_slip_18_the_output_matrix_leads_back_to_d_model():
    module = MultiHeadAttention(12, 2, d_k=5, d_v=7)
    assert module.to_output.weight.shape == (12, 2 * 7)  # torch stores it transposed
    assert module(torch.randn(1, 3, 12)).shape == (1, 3, 12)


def test_slip_19_scores_divided_by_the_root_have_unit_variance():
    torch.manual_seed(0)
    q, k = torch.randn(500, 256), torch.randn(40, 256)
    with regard.watch() as trace:
        regard.attend(q, k, k)
    (site,) = trace.sites.values()
    assert site.scores().std().item() == pytest.approx(1, rel=0.05)
    assert (q @ k.T / 256).std().item() == pytest.approx(1 / 16, rel=0.05)  # the slip


def test_slip_20_scores_compare_projected_words():
    tables = work(DEFAULT)
    x = torch.tensor(tables["x"].values)
    assert (x @ x.T).tolist() == [[2, 0, 2], [0, 4, 2], [2, 2, 3]]  # the slip
    query, key = (torch.tensor(tables[name].values) for name in ("query", "key"))
    assert (query @ key.T).tolist() == [[3, 6, 6], [6, 0, 6], [6, 6, 9]]


def test_slip_21_keys_and_values_of_cross_attention_come_from_the_source():
    with regard.watch(model := small_transformer()) as trace:
        model(torch.tensor([[3, 4]]), torch.tensor([[1, 5, 6, 2]]))  # shifted: 3 inputs
    site = trace["decoder.layers.0.cross"]
    assert (site.n_query, site.n_key) == (3, 2)
    assert site.value.size(-2) == 2


def test_slip_22_a_dot_product_is_the_cosine_of_vectors_of_norm_1():
    torch.manual_seed(0)
    unit = nn.functional.normalize(torch.randn(2, 5), dim=-1)
    cosine = nn.functional.cosine_similarity(unit[0], unit[1], dim=0)
    assert_close(unit[0] @ unit[1], cosine)
    assert_close((10 * unit[0]) @ (10 * unit[1]), 100 * cosine)  # the slip: norms of 10


@pytest.mark.parametrize("number", range(1, 23))
def test_the_figure_of_a_slip_has_other_numbers_for_wrong_than_for_right(number):
    tables = slip_figures.TABLES[number - 1]()
    if number == 16:  # three tokenizers: only byte-level BPE has no unknown tokens
        assert tables[0].cells == [["2"], ["1"], ["0"]]
        return
    assert {"wrong", "right"} <= {table.heading for table in tables}
    wrong, right = (
        next(table for table in tables if table.heading == one) for one in ("wrong", "right")
    )
    assert wrong != right


def test_every_slip_has_a_figure_in_both_languages():
    for language in ("en", "ko"):
        page = REPOSITORY / "docs" / ("slips.ko.md" if language == "ko" else "slips.md")
        shown = slip_figures.add_figures(page.read_text("utf-8"), "", language)
        images = re.findall(r'<img class="figure" loading="lazy" src="[^"]+" alt="[^"]+">', shown)
        assert len(images) == len(slip_figures.TABLES) == 22
    assert "틀림" in slip_figures.files["figures/slip-3-ko.svg"].decode()
