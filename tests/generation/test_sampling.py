from collections import Counter
from math import inf, log

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from regard.errors import InputError
from regard.generation.sampling import sample, shape
from regard.generation.search import SamplingOptions
from regard.generation.stepper import DecoderStepper
from regard.generation.torch_engine import ArraySteps
from regard.models.decoder import Decoder, DecoderConfig

PROBABILITIES = np.array([0.5, 0.3, 0.15, 0.05])


class Always:
    """The same probabilities at every token."""

    def __init__(self, n_rows=1, probabilities=PROBABILITIES):
        self.n_rows, self.line = n_rows, np.log(probabilities)

    def step(self, ids):
        return np.tile(self.line, (len(ids), 1))

    def keep(self, rows):
        self.n_rows = len(rows)


def shaped(**options):
    return np.exp(shape(np.log(PROBABILITIES), [], SamplingOptions(**options)))


def test_shaping_by_hand():
    assert_allclose(shaped(), PROBABILITIES)
    assert_allclose(shaped(top_k=2), [0.625, 0.375, 0, 0])
    assert_allclose(shaped(top_p=0.6), [0.625, 0.375, 0, 0])
    assert_allclose(shaped(top_p=0.49), [1, 0, 0, 0])
    squares = PROBABILITIES**2
    assert_allclose(shaped(temperature=0.5), squares / squares.sum())
    assert_allclose(shaped(temperature=0.0), [1, 0, 0, 0])
    assert_allclose(shaped(temperature=1e-320), [1, 0, 0, 0])
    assert_allclose(shaped(temperature=1e6), [0.25] * 4, atol=1e-5)
    assert_allclose(shaped(top_k=9, top_p=1.0), PROBABILITIES)


def test_repetition_is_penalized_or_barred():
    before, given = [0, 1, 0], np.log(PROBABILITIES)
    penalized = np.exp(shape(given, before, SamplingOptions(repetition_penalty=2.0)))
    raw = np.array([0.25, 0.09, 0.15, 0.05])
    assert_allclose(penalized, raw / raw.sum())
    barred = shape(given, before, SamplingOptions(no_repeat=2))
    assert barred[1] == -inf  # "0 1" was written already
    assert (barred[[0, 2, 3]] > -inf).all()
    only_new = shape(given, before, SamplingOptions(no_repeat=1))
    assert (only_new == -inf).tolist() == [True, True, False, False]


def test_sampled_frequencies_match_the_probabilities():
    options = SamplingOptions(max_tokens=4000, seed=1)
    (text,) = sample(Always(), [[0]], options)
    counts = Counter(text.ids)
    for token, probability in enumerate(PROBABILITIES.tolist()):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)
    assert text.log_probs[0] == pytest.approx(log(PROBABILITIES[text.ids[0]]), abs=1e-5)


def test_rows_do_not_depend_on_each_other():
    options = SamplingOptions(max_tokens=30, seed=5)
    prompts = [[0], [1], [2]]
    together = sample(Always(3), prompts, options, end_id=3)
    alone = sample(Always(1), prompts[:1], options, end_id=3)
    assert together[0] == alone[0]
    assert sample(Always(3), prompts, options, end_id=3) == together
    assert len({tuple(text.ids) for text in together}) > 1


def test_the_end_token_ends_a_text():
    prompts = [[0]] * 20
    texts = sample(Always(20), prompts, SamplingOptions(max_tokens=6), end_id=0)
    for text in texts:
        assert 0 not in text.ids
        assert text.finished == (len(text.ids) < 6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_ends_when_every_token_is_barred(temperature):
    options = SamplingOptions(max_tokens=9, no_repeat=1, temperature=temperature)
    found = sample(Always(), [[]], options)
    assert sorted(found[0].ids) == [0, 1, 2, 3]
    assert not found[0].finished


def test_on_token_gets_every_token():
    received = []
    (text,) = sample(
        Always(), [[0]], SamplingOptions(max_tokens=5),
        on_token=lambda row, token: received.append((row, token)),
    )  # fmt: skip
    assert received == [(0, token) for token in text.ids]


@torch.no_grad()
def test_padded_prompts_equal_single_ones():
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(n_vocab=17, d_model=16, n_heads=2, d_ff=32, n_layers=2))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model = model.double().eval()
    prompts = [[3, 4, 5, 6], [7], [8, 9]]
    lengths = torch.tensor([4, 1, 2])
    options = SamplingOptions(max_tokens=12, temperature=0.0)
    together = sample(ArraySteps(DecoderStepper(model, lengths)), prompts, options, end_id=1)
    for i, prompt in enumerate(prompts):
        ids = list(prompt)
        for _ in range(12):  # the definition: no cache, no padding, no batch
            token = int(model(torch.tensor([ids]))[0, -1].argmax())
            if token == 1:
                break
            ids.append(token)
        assert together[i].ids == ids[len(prompt) :]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -1.0}, "temperature is -1.0; it must be 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0; it must be 1 or more"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0, up to 1"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"no_repeat": -1}, "no_repeat is -1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0"),
    ],
)
def test_invalid_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        SamplingOptions(**options)
