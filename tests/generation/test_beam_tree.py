import json

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.errors import InputError
from regard.generation.search import FATES, BeamEvent, SearchOptions, build_tree
from regard.generation.translator import open_translator

pytestmark = pytest.mark.long

NAMES = ["<s>", "</s>", "a", "b"]


def test_a_tree_by_hand():
    events = [
        BeamEvent(1, (3,), -2.0, -2.0, "pruned"),
        BeamEvent(1, (2,), -1.0, -1.0, "kept"),
        BeamEvent(2, (2, 1), -1.5, -0.75, "finished"),
        BeamEvent(2, (2, 3), -4.0, -2.0, "overtaken"),
    ]
    tree = build_tree(events, NAMES)
    assert [(node.parent, node.token, node.fate) for node in tree.nodes] == [
        (None, "a", "kept"),
        (None, "b", "pruned"),
        (0, "</s>", "finished"),
        (0, "b", "overtaken"),
    ]
    assert tree.best == 2
    assert [node.token for node in tree.path(3)] == ["a", "b"]
    assert tree.to_json()[2] == {
        "step": 2,
        "parent": 0,
        "token": "</s>",
        "log_prob": -1.5,
        "score": -0.75,
        "fate": "finished",
    }


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_a_tree_contains_all_hypotheses(make_folder, family):
    model = regard.load(make_folder(family))
    lines = ["one two three", "seven", "ten nine eight seven six"]
    found = model.translate(lines, beam=3, n_best=2, beam_tree=True)
    assert [one.tokens for one in model.translate(lines, beam=3, engine="torch")] == [
        one.tokens for one in found
    ]
    for one in found:
        tree = one.beam_tree
        ends = [i for i, node in enumerate(tree.nodes) if node.fate == "finished"]
        written = {}
        for i in ends:
            ids = [node.id for node in tree.path(i) if node.id != model.tokenizer.end_id]
            written[tuple(ids)] = tree.nodes[i].score
        for hypothesis in (one, *one.alternatives):
            score = written[tuple(hypothesis.parts[0].ids)]
            assert score == pytest.approx(hypothesis.score)
        assert tree.nodes[tree.best].score == pytest.approx(one.score)
        for i, node in enumerate(tree.nodes):
            path = tree.path(i)
            assert len(path) == node.step  # so every one grew out of one that was kept
            assert [step.fate for step in path[:-1]] == ["kept"] * (node.step - 1)
            totals = [step.log_prob for step in path]
            assert totals == sorted(totals, reverse=True)  # a longer text is never likelier
            assert node.fate in FATES


def test_a_tree_must_be_requested(toy_folder):
    (plain,) = regard.load(toy_folder).translate(["one two"])
    with pytest.raises(InputError, match="no beam tree because it was not requested"):
        plain.beam_tree  # noqa: B018
    with pytest.raises(InputError, match="does not support beam tree: use engine torch"):
        open_translator(toy_folder, engine="ctranslate2", torch_feature="beam tree")
    assert open_translator(toy_folder, engine="torch").engine.name == "torch"


def test_every_part_has_a_tree(toy_folder):
    translator = open_translator(toy_folder, engine="torch")
    translator.max_source = 8
    line = "one two three . four five six . seven eight ."
    (done,) = translator.translate([line], SearchOptions(beam=2, beam_tree=True))
    assert all(part.tree is not None for part in done.parts if not part.copied)
    with pytest.raises(InputError, match=r"translated in \d parts: see the `tree`"):
        done.beam_tree  # noqa: B018


def test_the_command_prints_trees_as_json(toy_folder):
    run = CliRunner().invoke
    result = run(app, ["translate", str(toy_folder), "--json", "--beam-tree"], input="one two\n")
    record = json.loads(result.stdout)
    (tree,) = record["beam_trees"]
    best = max((node for node in tree if node["fate"] == "finished"), key=lambda n: n["score"])
    tokens = []
    while best is not None:
        tokens.append(best["token"])
        best = None if best["parent"] is None else tree[best["parent"]]
    assert tokens[:0:-1] == record["tokens"]
    refused = run(app, ["translate", str(toy_folder), "--beam-tree"], input="one two\n")
    assert isinstance(refused.exception, InputError)
    assert "needs --json" in str(refused.exception)
