"""Engines agree on all lines, except where two sequences tie but for rounding."""

from math import inf

import pytest

from regard.generation.search import BeamEvent, SearchOptions, build_tree
from regard.generation.translator import open_translator
from tests.generation.toy import pairs, toy

pytestmark = pytest.mark.long

END, TIE = 1, 1e-4
TREE = build_tree(
    [
        BeamEvent(1, (2,), -1.0, -1.0, "kept"),
        BeamEvent(1, (3,), -1.5, -1.5, "kept"),
        BeamEvent(1, (4,), -1.50001, -1.50001, "pruned"),
        BeamEvent(2, (2, END), -1.2, -0.6, "finished"),
        BeamEvent(2, (3, END), -1.6, -0.8, "finished"),
    ],
    ["<s>", "</s>", "a", "b", "c"],
)


def margin(tree, ids, end_id):
    """Return how much a sequence lacked at the step where the search dropped it."""
    parent = None
    for id in (*ids, end_id):
        found = [i for i, n in enumerate(tree.nodes) if n.parent == parent and n.id == id]
        if not found:
            return inf
        parent, node = found[0], tree.nodes[found[0]]
        if node.fate == "finished":
            return tree.nodes[tree.best].score - node.score
        if node.fate != "kept":
            kept = [n.log_prob for n in tree.nodes if n.step == node.step and n.fate != "pruned"]
            return min(kept) - node.log_prob
    return inf


@pytest.mark.parametrize(
    ("ids", "expected"), [([2], 0.0), ([3], 0.2), ([4], 1e-5), ([5], inf), ([2, 2], inf)], ids=str
)
def test_margins_by_hand(ids, expected):
    assert margin(TREE, ids, END) == pytest.approx(expected)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_engines_differ_only_by_ties(beam, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
    lines = sorted({source for source, _ in pairs(250, seed=-11)})
    fast, exact = open_translator(toy()), open_translator(toy(), engine="torch")
    found = list(fast.translate(lines, SearchOptions(beam=beam)))
    searched = list(exact.translate(lines, SearchOptions(beam=beam, beam_tree=True)))
    different = [
        (one, two)
        for ours, theirs in zip(found, searched, strict=True)
        for one, two in zip(ours.parts, theirs.parts, strict=True)
        if one.ids != two.ids
    ]
    assert len(lines) > 150
    assert len(different) <= 0.005 * len(lines)
    for one, two in different:
        assert margin(two.tree, one.ids, exact.tokenizer.end_id) <= TIE
