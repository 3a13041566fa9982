from math import inf

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError
from regard.generation.fast_decoder import (
    FastStepper,
    FastTransformer,
    Int8Linear,
    can_run,
    make_linear,
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


def transformer(**settings):
    torch.manual_seed(1)
    config = TransformerConfig(**SIZES, n_encoder_layers=1, n_decoder_layers=2, **settings)
    module = Transformer(config).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def stepper(module, *, sources=SOURCES, lengths=LENGTHS, candidates=None, **options):
    fast = FastTransformer(module, **options)
    return FastStepper(fast, sources, lengths, end_id=END, candidates=candidates)


@torch.no_grad()
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_equals_the_model_while_rows_are_repeated_and_dropped(settings, int8):
    module = transformer(**settings)  # its matrices are too small to be quantized
    fast = stepper(module, int8=int8)
    plain = TranslationStepper(module, SOURCES, LENGTHS)
    start = torch.full((4, 1), START)
    expected = plain.step(start).index_fill(1, torch.tensor([END]), -inf).log_softmax(dim=1)
    assert_close(fast.step(start), expected, atol=1e-5, rtol=1e-5)
    for rows, width in (([0, 0, 1, 1, 3, 3], 1), ([1, 0, 5, 4], 1), ([3, 0, 0], 2)):
        for one in (fast, plain):
            one.keep(torch.tensor(rows))
        ids = torch.arange(len(rows) * width).view(-1, width) + 7
        assert_close(fast.step(ids), plain.step(ids), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_text_longer_than_the_buffer():
    module = transformer()
    fast = stepper(module, sources=SOURCES[:1], lengths=LENGTHS[:1])
    ids = torch.randint(4, 40, (1, 70))
    stepped = torch.stack([fast.step(ids[:, i : i + 1])[0] for i in range(70)])
    states = module.decode(ids, module.encode(SOURCES[:1], LENGTHS[:1]), LENGTHS[:1])
    expected = module.project(states)[0, 1:].log_softmax(dim=1)
    assert_close(stepped[1:], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_suppressed_tokens_and_non_candidates_are_impossible():
    module, few = transformer(), torch.tensor([3, 5, 8, 9])
    fast = stepper(module, suppressed=[8], candidates=few)
    plain = TranslationStepper(module, SOURCES, LENGTHS)
    for ids in (torch.full((4, 1), START), torch.full((4, 1), 5)):
        found, every = fast.step(ids), plain.step(ids)
    expected = every[:, [3, 5, 9]].log_softmax(dim=1)
    assert_close(found[:, [3, 5, 9]], expected, atol=1e-5, rtol=1e-5)
    assert_close(found.exp().sum(dim=1), torch.ones(4))


@torch.no_grad()
def test_positions_that_were_not_learned_are_refused():
    fast = stepper(transformer(positions="learned", max_positions=9))
    with pytest.raises(InputError, match="9 positions"):
        fast.step(torch.full((4, 10), 5))


def test_other_models_are_not_run():
    assert can_run(transformer())
    assert not can_run(transformer(positions="rotary"))
    assert not can_run(transformer(n_kv_heads=1))
    assert not can_run(nn.Linear(1, 1))


def test_linear_layers_are_joined_and_quantized_if_large():
    torch.manual_seed(0)
    one, two, x = nn.Linear(64, 300), nn.Linear(64, 20), torch.randn(5, 64)
    with torch.no_grad():
        expected = torch.cat([one(x), two(x)], dim=-1)
        assert_close(make_linear([one, two])(x), expected)
        assert_close(make_linear([one, two], int8=True)(x), expected)  # too small
        large = nn.Linear(64, 3000)
        quantized = make_linear([large], int8=True)
        assert isinstance(quantized, Int8Linear)
        assert float((quantized(x) - large(x)).abs().max() / large(x).abs().max()) < 0.03
        assert not torch.equal(quantized(x), large(x))


@pytest.mark.parametrize("positive", [False, True])
def test_int8_rows_do_not_depend_on_each_other(positive):
    torch.manual_seed(0)
    x, matrix = torch.randn(4, 64), torch.randn(300, 64)
    x = x.relu() if positive else x
    x[1] *= 30
    x[2] = 0
    linear = Int8Linear(matrix, None, positive=positive)
    together, exact = linear(x), x @ matrix.T
    assert_close(together, torch.cat([linear(row[None]) for row in x]), rtol=0, atol=0)
    assert torch.equal(together[2], torch.zeros(300))
    for row in (0, 1, 3):
        worst = (together[row] - exact[row]).abs().max() / exact[row].abs().max()
        assert float(worst) < 0.03


@torch.no_grad()
def test_half_precision_gives_float32_log_probabilities():
    module = transformer().bfloat16()
    fast, plain = stepper(module), TranslationStepper(module, SOURCES, LENGTHS)
    for one in (fast, plain):
        one.step(torch.full((4, 1), START))
    found, expected = (one.step(torch.full((4, 1), 5)) for one in (fast, plain))
    assert found.dtype == expected.dtype == torch.float32
    assert_close(found, expected, atol=0.1, rtol=0.1)
