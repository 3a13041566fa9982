from math import inf

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InputError
from regard.generation.beam import BeamOptions, beam_search, largest
from regard.generation.fast_decoder import (
    Dense,
    Int8,
    FastStepper,
    FastTransformer,
    can_run,
    make_product,
)
from regard.generation.stepper import TranslationStepper
from regard.models.transformer import Transformer, TransformerConfig

SIZES = {"n_vocab": 40, "d_model": 16, "n_heads": 2, "d_ff": 24}
START, END = 2, 3
SOURCES = torch.randint(4, 40, (4, 7), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([7, 5, 7, 2])
SETTINGS = [
    {},
    {"norm": "pre", "tie": "none", "logits_bias": True},
    {"norm": "pre", "norm_kind": "rms", "activation": "swiglu"},
    {"positions": "learned", "max_positions": 12, "attention_bias": False},
    {"positions": "none", "d_k": 5},
]


def lively(**settings):
    torch.manual_seed(1)
    config = TransformerConfig(**SIZES, n_encoder_layers=1, n_decoder_layers=2, **settings)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@torch.no_grad()
@pytest.mark.parametrize("kind", ["own", "turned", "int8"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_lean_decoder_says_what_the_model_says_while_rows_come_and_go(settings, kind):
    model = lively(**settings)  # so small that no product is in int8; only their order differs
    lean = FastStepper(FastTransformer(model, kind=kind), SOURCES, LENGTHS, end_id=END)
    plain = TranslationStepper(model, SOURCES, LENGTHS)
    start = torch.full((4, 1), START)
    first, expected = lean.step(start), plain.step(start)
    expected = expected.index_fill(1, torch.tensor([END]), -inf).log_softmax(dim=1)
    assert_close(first, expected, atol=1e-5, rtol=1e-5)
    for rows, width in (([0, 0, 1, 1, 3, 3], 1), ([1, 0, 5, 4], 1), ([3, 0, 0], 2)):
        for one in (lean, plain):
            one.keep(torch.tensor(rows))
        ids = torch.arange(len(rows) * width).view(-1, width) + 7
        assert_close(lean.step(ids), plain.step(ids), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_text_longer_than_the_store_goes_on():
    model = lively()
    lean = FastStepper(FastTransformer(model), SOURCES[:1], LENGTHS[:1], end_id=END)
    ids = torch.randint(4, 40, (1, 70))
    stepped = torch.stack([lean.step(ids[:, i : i + 1])[0] for i in range(70)])
    states = model.decode(ids, model.encode(SOURCES[:1], LENGTHS[:1]), LENGTHS[:1])
    assert_close(stepped[1:], model.project(states)[0, 1:].log_softmax(dim=1), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_barred_and_unlisted_tokens_are_impossible_and_the_others_share_their_probability():
    model, few = lively(), torch.tensor([3, 5, 8, 9])
    decoder = FastTransformer(model, never=[8])
    lean = FastStepper(decoder, SOURCES, LENGTHS, end_id=END, candidates=few)
    plain = TranslationStepper(model, SOURCES, LENGTHS)
    for ids in (torch.full((4, 1), START), torch.full((4, 1), 5)):
        found, every = lean.step(ids), plain.step(ids)
    expected = every[:, [3, 5, 9]].log_softmax(dim=1)
    assert_close(found[:, [3, 5, 9]], expected, atol=1e-5, rtol=1e-5)
    assert bool((found.exp().sum(dim=1) - 1).abs().max() < 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3])
def test_beam_search_finds_the_same_by_either(beam):
    model, options = lively(norm="pre"), BeamOptions(START, END, beam=beam, shortest=1)
    limits = [9] * len(SOURCES)
    lean = beam_search(
        FastStepper(FastTransformer(model), SOURCES, LENGTHS, end_id=END), limits, options
    )
    plain = beam_search(TranslationStepper(model, SOURCES, LENGTHS), limits, options)
    assert [one[0].ids for one in lean] == [one[0].ids for one in plain]


def test_a_change_of_the_models_weights_is_seen_at_once():
    model = lively()
    decoder = FastTransformer(model)
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.inner.to_output.weight.zero_()
    assert not decoder.layers[0].last.matrix.any()


@torch.no_grad()
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_lean_encoder_reads_what_the_model_reads(settings):
    model = lively(**settings)
    read = FastTransformer(model, kind="turned").encode(SOURCES, LENGTHS)
    for row, (found, expected) in enumerate(zip(read, model.encode(SOURCES, LENGTHS), strict=True)):
        real = slice(LENGTHS[row])
        assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_positions_that_were_not_learned_are_refused():
    model = lively(positions="learned", max_positions=9)
    lean = FastStepper(FastTransformer(model), SOURCES, LENGTHS, end_id=END)
    with pytest.raises(InputError, match="learned only 9 positions"):
        lean.step(torch.full((4, 10), 5))


def test_other_models_are_not_lean():
    assert can_run(lively())
    assert not can_run(lively(positions="rotary"))
    assert not can_run(lively(n_kv_heads=1))
    assert not can_run(torch.nn.Linear(1, 1))


def test_products_in_eight_bits_are_close_where_they_are_made_and_exact_elsewhere():
    torch.manual_seed(0)
    x, matrix, bias = torch.randn(5, 64), torch.randn(300, 64), torch.randn(300)
    exact = x @ matrix.T + bias
    found = Int8(matrix, bias)(x)
    assert float((found - exact).abs().max() / exact.abs().max()) < 0.03
    assert not torch.equal(found, exact)
    assert_close(make_product(matrix, bias, "int8")(x), exact)  # too small for it to pay
    assert isinstance(make_product(matrix.repeat(10, 1), None, "int8"), Int8)
    assert isinstance(make_product(matrix.repeat(10, 1), None), Dense)
    turned = make_product(matrix, bias, "turned")
    assert isinstance(turned, Dense)
    assert turned.matrix.t().is_contiguous()
    assert_close(turned(x), exact)
    assert Int8(matrix, torch.full((300,), -inf))(x).isneginf().all()


@pytest.mark.parametrize("positive", [False, True])
def test_no_row_in_eight_bits_depends_on_those_beside_it(positive):
    torch.manual_seed(0)
    x, matrix = torch.randn(4, 64), torch.randn(300, 64)
    x = x.relu() if positive else x
    x[1] *= 30
    x[2] = 0
    product = Int8(matrix, None, positive=positive)
    together, exact = product(x), x @ matrix.T
    assert_close(together, torch.cat([product(row[None]) for row in x]), rtol=0, atol=0)
    assert torch.equal(together[2], torch.zeros(300))
    for row in (0, 1, 3):
        worst = (together[row] - exact[row]).abs().max() / exact[row].abs().max()
        assert float(worst) < 0.03


@torch.no_grad()
def test_half_precision_is_widened_as_in_the_definition():
    model = lively().bfloat16()
    lean = FastStepper(FastTransformer(model), SOURCES, LENGTHS, end_id=END)
    plain = TranslationStepper(model, SOURCES, LENGTHS)
    for one in (lean, plain):
        one.step(torch.full((4, 1), START))
    found, expected = lean.step(torch.full((4, 1), 5)), plain.step(torch.full((4, 1), 5))
    assert found.dtype == expected.dtype == torch.float32
    assert_close(found, expected, atol=0.1, rtol=0.1)


def test_the_largest_numbers_are_those_that_sorting_finds():
    numbers = torch.randn(6, 2500, generator=torch.Generator().manual_seed(3))
    numbers[0, -3:] = 9.0 + torch.arange(3)  # behind the last whole block
    numbers[1] = -inf
    numbers[1, 700] = 1.0
    for count in (1, 2, 7):
        found, places = largest(numbers, count)
        expected = numbers.sort(dim=1, descending=True).values[:, :count]
        assert torch.equal(found, expected)
        assert torch.equal(numbers.gather(1, places), expected)
    assert torch.equal(largest(numbers[:, :9], 4)[0], numbers[:, :9].topk(4, dim=1).values)
