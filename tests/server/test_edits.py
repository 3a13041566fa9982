"""Edits as JSON: there and back, one table for both ways, refused in sentences."""

import json
from math import inf

import pytest
import torch

from regard.errors import InputError, UnknownNameError
from regard.server.edit_json import KINDS, PutToken, read_edit, read_edits, write_edit
from regard.trace.edits import Allow, Forbid, SetWeights, Temperature, set_scores, set_value

SITE = "encoder.layers.0.self"
EVERY = [
    {"kind": "temperature", "site": SITE, "value": 0.5, "head": 1},
    {"kind": "temperature", "site": SITE, "value": "inf"},
    {"kind": "unscaled", "site": "encoder.layers.*.self"},
    {"kind": "ablate", "site": SITE, "head": 0, "to": "mean"},
    {"kind": "ablate", "site": SITE, "to": "zero"},
    {"kind": "forbid", "site": SITE, "head": 0, "query": 2, "key": 4},
    {"kind": "forbid", "site": SITE, "key": 4},
    {"kind": "allow", "site": SITE, "head": 0, "query": 2, "key": 4},
    {"kind": "score", "site": SITE, "value": -1.5, "head": 0, "query": 0, "key": 0},
    {"kind": "weight", "site": SITE, "value": 1.0, "query": 0},
    {"kind": "token", "side": "source", "position": 1, "token": "cat"},
    {"kind": "token", "side": "target", "position": 0, "token": 7},
]


def test_an_edit_is_read_by_hand():
    edit = read_edit(EVERY[5])
    assert isinstance(edit, Forbid)
    assert not isinstance(edit, Allow)
    assert (edit.site, edit.head, edit.query, edit.key) == (SITE, 0, 2, 4)
    heat = read_edit(EVERY[1])
    assert isinstance(heat, Temperature)
    assert heat.value == inf
    assert isinstance(read_edit(EVERY[9]), SetWeights)
    assert read_edit(EVERY[11]) == PutToken("target", 0, 7)


@pytest.mark.parametrize("given", EVERY, ids=lambda one: one["kind"])
def test_what_is_read_is_written_again(given):
    assert write_edit(read_edit(json.loads(json.dumps(given)))) == given


def test_every_kind_of_the_table_is_tried_here():
    assert {one["kind"] for one in EVERY} == {*KINDS, "token"}


def test_tokens_are_kept_apart_from_changes_inside_the_model():
    inner, tokens = read_edits(EVERY)
    assert (len(inner), len(tokens)) == (10, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("forbid", "JSON object"),
        ({"kind": "forbit", "site": SITE}, "nearest is forbid"),
        ({"kind": "forbid", "site": SITE}, "who may not see whom"),
        ({"kind": "forbid", "key": 1}, "needs a site"),
        ({"kind": "forbid", "site": SITE, "key": -1}, "counts from 0"),
        ({"kind": "forbid", "site": SITE, "key": True}, "counts from 0"),
        ({"kind": "forbid", "site": SITE, "key": 1, "quary": 2}, "no field 'quary'"),
        ({"kind": "temperature", "site": SITE}, "needs the field 'value'"),
        ({"kind": "temperature", "site": SITE, "value": "hot"}, "must be a number"),
        ({"kind": "temperature", "site": SITE, "value": -1}, "0 or larger"),
        ({"kind": "score", "site": SITE, "value": "inf"}, "must be a number"),
        ({"kind": "ablate", "site": SITE, "to": "one"}, "to='zero' or to='mean'"),
        ({"kind": "token", "side": "left", "position": 0, "token": 1}, "'source' or 'target'"),
        ({"kind": "token", "side": "source", "position": 0, "token": 1.5}, "entry or an id"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(given, said):
    with pytest.raises(InputError, match=said):
        read_edit(given)


@pytest.mark.parametrize(
    "edit", [set_value(f"{SITE}.query", 0.0), set_scores(SITE, torch.zeros(2, 2))]
)
def test_edits_that_hold_more_than_numbers_are_not_written(edit):
    with pytest.raises(InputError, match="cannot be written as JSON"):
        write_edit(edit)


def test_unknown_names_are_unknown_names():
    with pytest.raises(UnknownNameError):
        read_edit({"kind": "nothing"})
