"""Edits that name what is not there, or make no sense, are refused in a sentence."""

from math import nan

import pytest
import torch

from regard.attention.attend import attend
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import InputError, UnknownNameError
from regard.trace.edits import (
    Edit,
    ablate,
    forbid,
    set_scores,
    set_value,
    set_weights,
    temperature,
    unscaled,
)
from regard.trace.trace import watch
from tests.trace.attentions import Two, by_steps


def run(*edits: Edit) -> torch.Tensor:
    """An attention of two heads, two queries and two keys under the edits."""
    with watch(edits=edits):
        return attend(torch.ones(2, 2, 3), torch.ones(2, 2, 3), torch.ones(2, 2, 1))


@pytest.mark.parametrize(
    "edit",
    [
        set_weights("decoder.self", 1.0, query=9),
        set_scores("decoder.self", 1.0, key=9),
        forbid("decoder.self", query=9),
        forbid("decoder.self", key=9),
    ],
    ids=repr,
)
def test_a_position_that_never_comes_is_refused_at_the_end(edit):
    model, x = MultiHeadAttention(4, 2, path="decoder.self"), torch.randn(1, 3, 4)
    which = "query" if getattr(edit, "query", None) is not None else "key"
    with pytest.raises(UnknownNameError, match=rf"{which}=9\) names a {which} that never came\.$"):
        by_steps(model, x, edit)


@pytest.mark.parametrize(
    "edit",
    [
        forbid("attention", query=2),
        forbid("attention", query=0, key=2),
        set_scores("attention", 1.0, key=2),
        set_weights("attention", 1.0, query=2),
    ],
    ids=repr,
)
def test_a_position_that_is_not_there_is_refused(edit):
    which = "key" if getattr(edit, "key", None) == 2 else "query"
    with pytest.raises(UnknownNameError) as caught:
        run(edit)
    assert str(caught.value) == f"{edit!r} names a {which} that is not there; there are 2."


@pytest.mark.parametrize(
    "edit",
    [ablate("*", head=2), forbid("*", key=0, head=2), temperature("*", 1.0, head=5),
     set_scores("*", 0.0, head=2), set_weights("*", 0.0, head=2)],
    ids=repr,
)  # fmt: skip
def test_a_head_that_is_not_there_is_refused_with_those_that_are(edit):
    with pytest.raises(UnknownNameError, match=r"^attention has no head [25]; it has 2, 0 to 1\.$"):
        run(edit)


@pytest.mark.parametrize("make", [ablate, unscaled, lambda s: forbid(s, key=0)])
def test_a_site_that_is_not_there_is_refused_with_the_nearest(make):
    edit = make("encoder.layer.1.self")
    with pytest.raises(UnknownNameError) as caught, watch(edits=[edit]):
        Two()(torch.randn(1, 3, 4))
    name = edit.path().rpartition(".")[2]
    assert str(caught.value).startswith(
        f"{edit!r} met nothing: no value 'encoder.layer.1.self.{name}' was computed; the nearest "
        f"are encoder.layers.1.self.{name}, "
    )


def test_a_value_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"attention\.wieghts.*nearest are attention\.weigh"):
        run(set_value("attention.wieghts", 0.0), set_weights("attention", 0.5))


def test_the_first_of_several_edits_that_met_nothing_is_named():
    with pytest.raises(UnknownNameError, match=r"^ablate\('nowhere', to='zero'\) met nothing"):
        run(temperature("attention", 2.0), ablate("nowhere"), ablate("nobody"))


@pytest.mark.parametrize(
    ("edit", "shapes"),
    [
        (set_weights("attention", torch.ones(3, 3)), r"\(3, 3\); the place .* shape \(2, 2, 2\)"),
        (set_scores("attention", torch.ones(3), query=0), r"\(3,\); the place .* shape \(2, 2\)"),
        (set_weights("attention", torch.ones(2, 2), head=0, key=1), r"\(2, 2\); .* shape \(2,\)"),
        (set_value("attention.value", torch.ones(5, 5)), r"\(5, 5\); the one .* shape \(2, 2, 1\)"),
    ],
    ids=repr,
)
def test_values_of_the_wrong_shape_are_refused_with_both_shapes(edit, shapes):
    with pytest.raises(InputError, match=rf"^set_\w+\('attention.*gives .* of shape {shapes}\.$"):
        run(edit)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ablate("x", to="median"),
         "a head can be ablated to='zero' or to='mean', not 'median'."),
        (lambda: ablate("x", head=-1), "head is -1; they are counted from 0."),
        (lambda: forbid("x"), "forbid needs a query, a key or both: who may not see whom?"),
        (lambda: forbid("x", head=1), "forbid needs a query, a key or both: who may not see whom?"),
        (lambda: forbid("x", query=-2), "query is -2; they are counted from 0."),
        (lambda: set_scores("x", 1.0, key=-1), "key is -1; they are counted from 0."),
        (lambda: temperature("x", -1.0), "temperature is -1.0; it must be 0 or larger."),
        (lambda: temperature("x", nan), "temperature is nan; it must be 0 or larger."),
        (lambda: set_value("query", 1.0),
         "'query' is not the path of a value: write the site and the value's name, such as "
         "'encoder.layers.0.self.query'."),
    ],
)  # fmt: skip
def test_edits_that_make_no_sense_are_refused_when_they_are_made(make, sentence):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == sentence
