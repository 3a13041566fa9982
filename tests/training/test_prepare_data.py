"""Prepared data: empty splits are refused, targets have start and end tokens."""

import json
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.training.callbacks import Callback
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe


@pytest.fixture
def made(tmp_path):
    """A function that prepares a recipe for some lines: made(task, lines, **data)."""

    def make(task, lines, *, progress=None, tokenizer=None, **data):
        path = tmp_path / ("lines.txt" if task == "language" else "lines.tsv")
        path.write_text("".join(line + "\n" for line in lines))
        recipe = load_recipe(
            {
                "task": task,
                "data": {"train": str(path), **data},
                "tokenizer": tokenizer or {"kind": "characters"},
                "training": {"steps": 1},
            }
        )
        return prepare(recipe, tmp_path / "run", callback=progress)

    return make


PAIRS = [f"{n}\t{n + 1}" for n in range(10, 50)]
LINES = {
    "translation": PAIRS,
    "classification": [f"{n % 2}\t{n}" for n in range(10, 50)],
    "language": PAIRS,
}
TASKS = pytest.mark.parametrize("task", LINES)


@TASKS
@pytest.mark.parametrize("part", ["validation", "test"])
def test_shares_without_examples_are_refused_by_name(made, task, part):
    given = {"validation": 0.3} | {part: 1e-6}
    with pytest.raises(InputError, match=rf"data\.{part} = 1e-06 holds out too little of these"):
        made(task, LINES[task], **given)


@pytest.mark.parametrize(
    ("share", "advice"),
    [
        (0.01, "a larger share, such as 0.1"),
        (0.1, "a larger share, such as 0.2"),
        (0.6, "more data"),
    ],
)
def test_the_suggested_share_is_larger_than_the_given_one(made, share, advice):
    with pytest.raises(InputError, match=rf"= {share} holds out too little .*: give {advice}, or"):
        made("language", ["a"], validation=share)


@TASKS
def test_validation_data_are_required_and_test_data_are_not(made, task):
    with pytest.raises(InputError, match=r"data\.validation = 0 holds out too little"):
        made(task, LINES[task], validation=0)
    assert set(made(task, LINES[task], validation=0.3, test=0.0).splits) == {"train", "validation"}


def test_errors_about_files_without_examples_name_the_split(made, tmp_path):
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(InputError, match=r"^data\.validation: There is no example .* 0 lines read"):
        made("translation", PAIRS, validation=str(tmp_path / "empty.tsv"))
    (tmp_path / "short.txt").write_text("\n")  # one token: nothing comes before it
    with pytest.raises(InputError, match=r"data\.validation has 1 tokens, but"):
        made("language", PAIRS, validation=str(tmp_path / "short.txt"))


def test_only_training_pairs_are_split(made):
    lines = [f"under {'over ' * number}\tout" for number in range(1, 30)]
    cuts = {"kind": "bpe", "size": 60, "split": 0.5}
    parts = made("translation", lines, tokenizer=cuts, validation=0.5)
    for name, changes in {"train": True, "validation": False}.items():
        make, every = parts.splits[name], range(len(parts.splits[name].lengths[0]))
        seen = [make(every, epoch).source_lengths.tolist() for epoch in (0, 1)]
        assert (seen[0] != seen[1]) == changes


@pytest.mark.parametrize("task", ["translation", "language"])
def test_lines_are_counted_while_they_are_read(made, task):
    counts = []
    callback = Callback()
    callback.on_lines_read = counts.append
    made(task, PAIRS, validation=0.5, progress=callback)
    assert counts
    if task == "language":
        assert counts == [40]
    else:
        assert sum(counts) == 40  # those of training and those of validation


def test_targets_have_start_and_end_tokens_with_any_tokenizer(made, tmp_path):
    tokens = ["<pad>", "<s>", "</s>", "Ġ", *map(str, range(10))]
    (tmp_path / "vocab.json").write_text(json.dumps({one: id for id, one in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    given = {"load": str(tmp_path / "vocab.json")}
    datasets = made("translation", ["1 2\t2 1"] * 9 + PAIRS, validation=0.3, tokenizer=given)
    batch = datasets.splits["train"]([0], 0)
    assert batch.target_ids.tolist() == [[1, 6, 3, 5, 2]]
    assert datasets.tokenizer.encode("3") == [1, 7, 2]


@pytest.mark.parametrize("task", ["translation", "language"])
def test_the_ledger_of_dropped_lines_is_reported(tmp_path, task):
    path, said = tmp_path / "lines.tsv", []
    path.write_bytes("".join(line + "\n" for line in PAIRS).encode() + b"\xff\ta\n")
    data = {"train": str(path), "validation": 0.3, "checks": {"encoding": "drop"}}
    recipe = load_recipe(
        {
            "task": task,
            "data": data,
            "tokenizer": {"kind": "characters"},
            "training": {"steps": 1},
        }
    )
    callback = Callback()
    callback.on_message = said.append
    prepare(recipe, tmp_path / "run", callback=callback)
    (counts,) = [line for line in said if "dropped or changed: " in line]
    ledger = Path(counts.partition("changed: ")[2])
    assert ledger.parent.parent == tmp_path / "run" / "cache"
    assert ledger.read_text().splitlines()[1].split("\t")[2:4] == ["dropped", "encoding"]
