from math import inf

import pytest

from regard.bench.translation import agreement, missed_by
from regard.generation.beam_tree import BeamEvent, build_tree
from regard.generation.search import SearchOptions
from regard.generation.translator import TranslatedPart, Translation, open_translator
from tests.generation.toy import pairs, toy

END = 1
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


def written(ids, tree=None):
    return Translation(
        "", 0.0, [str(id) for id in ids], [], parts=(TranslatedPart("", "", [], ids, tree=tree),)
    )


@pytest.mark.parametrize(
    ("ids", "lacked"), [([2], 0.0), ([3], 0.2), ([4], 1e-5), ([5], inf), ([2, 2], inf)], ids=str
)
def test_what_a_sequence_lacked_by_hand(ids, lacked):
    assert missed_by(TREE, ids, END) == pytest.approx(lacked)


def test_only_ties_explain_a_difference():
    searched = [written([2], TREE)] * 3
    found = agreement([written([2]), written([4]), written([3])], searched, END)
    assert (found.lines, found.same, found.ties, found.unexplained) == (3, 1, 1, 1)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_engines_agree_but_for_ties(beam, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
    lines = sorted({source for source, _ in pairs(300, seed=-11)})
    fast, plain = open_translator(toy()), open_translator(toy(), engine="torch")
    given = list(fast.translate(lines, SearchOptions(beam=beam)))
    searched = list(plain.translate(lines, SearchOptions(beam=beam, beam_tree=True)))
    found = agreement(given, searched, plain.tokenizer.end_id)
    assert found.lines > 200
    assert found.same >= 0.995 * found.lines
    assert found.unexplained == 0
