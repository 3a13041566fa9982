"""Search under edits: with kept keys and values it finds what reading everything again finds."""

import pytest

from regard.model import load
from regard.server import edited_search as searching
from regard.server.edited_search import search
from regard.server.jobs import Canceled, Job
from regard.trace.edits import ablate, forbid, set_scores, temperature

CROSS = "decoder.layers.0.cross"
OWN = "decoder.layers.0.self"
EDITS = {
    "none": [],
    "heat": [temperature(CROSS, 0.1, head=0)],
    "cells": [forbid(CROSS, query=1, key=2), set_scores(OWN, 9.0, query=2, key=0, head=1)],
    "encoder": [ablate("encoder.layers.0.self", head=1, to="mean")],
    "off": [ablate(CROSS, head=1)],
}


@pytest.fixture(scope="module", params=["transformer", "seq2seq"])
def model(request, folders):
    return load(folders[request.param]).bundle


@pytest.mark.parametrize("name", EDITS)
def test_going_on_from_what_was_kept_is_reading_all_again(model, monkeypatch, name):
    edits = EDITS[name]
    if model.family == "seq2seq":
        edits = [edit for edit in edits if edit.site == CROSS]
        edits = [type(edit)(**{**vars(edit), "site": "decoder.cross"}) for edit in edits]
        edits = [edit for edit in edits if getattr(edit, "head", None) != 1]
    source = model.tokenizer.encode("the dog is")
    job = Job(lambda job: None)
    found = {}
    for way in (True, False):
        monkeypatch.setattr(searching, "_goes_on", lambda module, edits, way=way: way)
        if way and name == "encoder":
            continue  # the mean needs all queries
        found[way] = search(model, source, beam=3, edits=edits, job=job)
    if True in found:
        assert [one.ids for one in found[True]] == [one.ids for one in found[False]]
        scores = [[one.score for one in found[way]] for way in (True, False)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert len(found[False]) == 3


def test_edits_change_what_is_found(folders):
    model = load(folders["transformer"]).bundle
    source = model.tokenizer.encode("the dog is")
    job = Job(lambda job: None)
    plain, off = (
        search(model, source, beam=2, edits=edits, job=job) for edits in ([], [ablate(CROSS)])
    )
    assert [one.ids for one in plain] != [one.ids for one in off]


def test_a_search_that_nobody_waits_for_ends(folders):
    model = load(folders["transformer"]).bundle
    job = Job(lambda job: None)
    job.cancel()
    with pytest.raises(Canceled):
        search(model, model.tokenizer.encode("the dog"), beam=2, edits=[], job=job)
