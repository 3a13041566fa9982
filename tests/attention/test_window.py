"""Attention in a sliding window: its mask, the definition, and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import regard
from regard.attention.longformer import windowed_attention
from regard.attention.mask import as_mask
from regard.errors import InputError
from tests.attention.forms import drawn, reach


def window(query, key, value, *, reach, allowed=None):
    return windowed_attention(query, key, value, reach=reach, mask=as_mask(allowed), dropout=0.0)


def test_the_mask_by_hand():
    picture = """
● · ● · · ●
· ● · ● · ●
● · ● · ● ●
· ● · ● · ●
· · ● · ● ●
● ● ● ● ● ●
""".strip()
    assert reach(1, dilation=2, global_tokens=[5]).draw(6) == picture


def test_the_mask_prints_its_settings():
    assert repr(reach(3)) == "longformer(3)"
    assert repr(reach(3, dilation=2, global_tokens=(4, 0, 4))) == (
        "longformer(3, dilation=2, global_tokens=[0, 4])"
    )


PAIRS = torch.rand(2, 3, 230, 230, generator=torch.Generator().manual_seed(0)) > 0.4


def masks(n, lengths):
    pairs = PAIRS[..., :n, :n]
    return {
        "causal": regard.causal(),
        "padding": regard.padding(lengths),
        "left padding": regard.padding(lengths, side="left"),
        "window": regard.window(2),
        "edges": regard.edges([(0, 0), (n - 1, 0), (n // 2, n // 2)]),
        "pairs": as_mask(pairs),
        "pairs of all heads": as_mask(pairs[0, 0]),
        "keys": as_mask(pairs[:, :1, :1]),
        "heads": as_mask(pairs[:1, :, :1, :1]),
    }


NAMES = sorted(masks(1, [0, 0]))


@st.composite
def cases(draw):
    n = draw(st.integers(1, 230))
    return {
        "n": n,
        "radius": draw(st.sampled_from([0, 1, 3, 17, 40, 300])),
        "dilation": draw(st.sampled_from([1, 1, 2, 3, 7])),
        "tokens": draw(st.lists(st.integers(0, n - 1), max_size=3)),
        "lengths": draw(st.lists(st.integers(0, n), min_size=2, max_size=2)),
        "chosen": draw(st.lists(st.sampled_from(NAMES), max_size=2)),
    }


@given(cases())
def test_it_is_exact_attention_under_its_mask(case):
    n, chosen = case["n"], case["chosen"]
    some = reach(case["radius"], dilation=case["dilation"], global_tokens=case["tokens"])
    query, key, value = drawn(2, 3, n, 4)
    allowed = as_mask(None)
    for name in chosen:
        allowed = allowed & masks(n, case["lengths"])[name]
    wanted = regard.attend(query, key, value, allowed=some & allowed)
    others = [i for i in range(n) if i not in some.global_tokens]
    found = window(query, key, value, reach=some, allowed=allowed)
    assert_close(found[..., others, :], wanted[..., others, :])


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)])
@pytest.mark.parametrize("allowed", [None, "padding", "pairs"])
def test_any_number_of_leading_axes_works(lead, allowed):
    query, key, value = drawn(*lead, 300, 4)
    if allowed == "padding":
        allowed = regard.padding([300, 100, 0][: lead[0]]) if lead else None
    elif allowed == "pairs":
        allowed = as_mask(torch.rand(*lead, 300, 300) > 0.3)
    mask = reach(5) if allowed is None else reach(5) & allowed
    wanted = regard.attend(query, key, value, allowed=mask)
    assert_close(window(query, key, value, reach=reach(5), allowed=allowed), wanted)


def test_gradients_are_those_of_the_definition():
    some = reach(40, dilation=2, global_tokens=[0, 3])
    mask = regard.padding([500, 300]) & regard.causal()

    def gradients(function):
        inputs = [x.requires_grad_() for x in drawn(2, 1, 500, 4)]
        context = function(*inputs)
        context[..., 4:, :].pow(2).sum().backward()
        return [x.grad for x in inputs]

    ours = gradients(lambda *x: window(*x, reach=some, allowed=mask))
    wanted = gradients(lambda *x: regard.attend(*x, allowed=some & mask))
    for one, other in zip(ours, wanted, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"radius": -1}, "radius is an integer of at least 0, not -1"),
        ({"radius": 1.5}, "radius is an integer of at least 0, not 1.5"),
        ({"radius": True}, "radius is an integer of at least 0, not True"),
        ({"radius": 2, "dilation": 0}, "dilation is an integer of at least 1, not 0"),
        ({"radius": 2, "global_tokens": [0, -1]}, r"counted from 0, not \[0, -1\]"),
    ],
)
def test_bad_settings_are_refused(options, words, no_shape_checks):
    with pytest.raises(InputError, match=words):
        reach(**options)
