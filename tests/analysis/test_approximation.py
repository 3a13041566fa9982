from math import e

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.measurements import approximation
from regard.attention.efficient import efficient_attention
from regard.attention.longformer import LongformerMask
from regard.attention.performer import orthogonal_features
from regard.errors import InputError
from tests.attention.forms import (
    linformer_attention,
    longformer_attention,
    performer_attention,
    reformer_attention,
)


def watched(form, n=6, **options):
    torch.manual_seed(1)
    vectors = torch.randn(3, 1, 2, n, 4)
    with regard.watch() as trace:
        form(*vectors, site="s", **options)
    return trace["s"], vectors


def test_the_error_by_hand():
    # a window of radius 0: each token sees itself, so its weight is 1 in place of e / (e + 1)
    with regard.watch() as trace:
        longformer_attention(
            torch.eye(2)[None, None] * 2**0.5,
            torch.eye(2)[None, None],
            torch.eye(2)[None, None],
            reach=LongformerMask(0),
            site="s",
        )
    found = approximation(trace["s"], 0)
    wrong = 1 / (e + 1)
    assert_close(found.exact[0], torch.tensor([1 - wrong, wrong]).double())
    assert found.largest == pytest.approx(wrong)
    assert found.mean == pytest.approx(wrong)
    assert_close(found.variation, torch.full((2,), wrong).double())


FORMS = {
    "efficient": (efficient_attention, {}),
    "linformer": (
        linformer_attention,
        {"key_projection": torch.rand(3, 6), "value_projection": torch.rand(3, 6)},
    ),
    "performer": (performer_attention, {"features": orthogonal_features(8, 4)}),
    "longformer": (longformer_attention, {"reach": LongformerMask(1)}),
}


@pytest.mark.parametrize("name", FORMS)
def test_exact_weights_equal_the_definition(name):
    form, options = FORMS[name]
    site, vectors = watched(form, **options)
    with regard.watch() as trace:
        regard.attend(*vectors, site="s")
    for head in (0, 1):
        found = approximation(site, head)
        assert_close(found.exact.float(), trace["s"].weights(head))
        assert_close(found.weights.float(), site.weights(head).float())
        assert 0 < found.mean < found.largest
        assert found.variation.shape == (6,)


def test_exact_weights_are_masked():
    site, vectors = watched(longformer_attention, reach=LongformerMask(1), allowed=regard.causal())
    with regard.watch() as trace:
        regard.attend(*vectors, allowed=regard.causal(), site="s")
    assert_close(approximation(site, 1).exact.float(), trace["s"].weights(1))


def test_a_window_or_bucket_of_everything_is_exact():
    site, _ = watched(longformer_attention, reach=LongformerMask(6))
    assert approximation(site, 0).largest == 0
    site, _ = watched(reformer_attention, rotations=torch.zeros(1, 4, 0), chunk=6)
    assert approximation(site, 0).largest == 0


def test_the_error_of_a_reformer_is_what_hashing_misses():
    torch.manual_seed(0)
    site, _ = watched(reformer_attention, n=16, rotations=torch.randn(1, 4, 2), chunk=4)
    found = approximation(site, 0)
    missed = (found.weights == 0) & ~torch.eye(16, dtype=torch.bool)
    assert missed.any()
    assert_close(found.variation, (found.exact * missed).sum(-1), atol=1e-6, rtol=0)


def test_exact_attention_is_refused():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 1, 2, 2), site="s")
    with pytest.raises(InputError, match="s is exact attention"):
        approximation(trace["s"], 0)
