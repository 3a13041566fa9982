"""Standard input as data of a recipe: saved once, then read like a file."""

import gzip
import io
import sys

import pytest

from regard.errors import InputError
from regard.training.data_sources import TextSources
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe
from regard.training.run_folder import save_standard_input, with_standard_input


def recipe(task="translation", **data):
    return load_recipe({"task": task, "data": data, "training": {"steps": 1}})


@pytest.fixture
def give(monkeypatch):
    def given(data: bytes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return given


@pytest.mark.parametrize(
    ("task", "data", "given", "name", "read"),
    [
        ("translation", {"train": "-"}, "a\tb\n", "tsv", ("a", "b")),
        ("translation", {"train": "-", "swap": True}, "a\tb\n", "tsv", ("b", "a")),
        (
            *("translation", {"train": "-", "keys": ["x", "y"]}),
            *('{"x": "a", "y": "b"}\n', "jsonl", ("a", "b")),
        ),
        ("translation", {"train": ["-"]}, "a\tb\n", "tsv", ("a", "b")),
        ("translation", {"train": {"source": "-", "target": "FILE"}}, "a\n", "txt", ("a", "f")),
        ("translation", {"train": {"source": "FILE", "target": "-"}}, "a\n", "txt", ("f", "a")),
        ("classification", {"train": "-"}, "a\tb\n", "tsv", ("a", "b")),
        ("masked", {"train": "-"}, "a\tb\n", "txt", ("a\tb",)),
    ],
)
def test_standard_input_is_saved_once_and_read_repeatedly(
    tmp_path, give, task, data, given, name, read
):
    (tmp_path / "f").write_text("f\n")
    if isinstance(data["train"], dict):
        files = {
            side: path.replace("FILE", str(tmp_path / "f")) for side, path in data["train"].items()
        }
        data = data | {"train": files}
    asked = recipe(task, validation=0.0, **data)
    give(gzip.compress(given.encode()))
    save_standard_input(asked, tmp_path / "training")
    give(b"something else\n")
    save_standard_input(asked, tmp_path / "training")
    assert (tmp_path / "training" / f"standard-input.{name}").read_text() == given
    sources = TextSources(with_standard_input(asked, tmp_path / "training"))
    assert sources.examples("train") == sources.examples("train") == [read]


def test_data_are_prepared_again_without_standard_input(tmp_path, give):
    asked = recipe(train="-", validation=0.3)
    give(b"".join(b"%d\t%d\n" % (n, n + 1) for n in range(10, 50)))
    first = prepare(asked, tmp_path)
    give(b"")
    again = prepare(asked, tmp_path)
    counts = [len(made.splits["train"].lengths[0]) for made in (first, again)]
    assert counts[0] == counts[1] > 20


def test_standard_input_as_validation_data(tmp_path, give):
    (tmp_path / "t.tsv").write_text("a\tb\n")
    asked = recipe(train=str(tmp_path / "t.tsv"), validation="-")
    give(b"c\td\n")
    save_standard_input(asked, tmp_path)
    assert TextSources(with_standard_input(asked, tmp_path)).examples("validation") == [("c", "d")]


def test_other_recipes_do_not_read_standard_input(tmp_path, give):
    asked = recipe(generate="dates")
    give(b"not to be read\n")
    save_standard_input(asked, tmp_path)
    assert with_standard_input(asked, tmp_path) is asked
    assert list(tmp_path.iterdir()) == []
    assert sys.stdin.read() == "not to be read\n"


def test_empty_standard_input_is_refused(tmp_path, give):
    give(b"")
    with pytest.raises(InputError, match=r"standard input \('-'\), which is empty: pipe"):
        save_standard_input(recipe(train="-"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_standard_input_can_be_given_only_once():
    with pytest.raises(InputError, match=r"standard input\) is given 2 times but can be read only"):
        recipe(train={"source": "-", "target": "-"})
    with pytest.raises(InputError, match="given 3 times"):
        recipe(train=["-", "-"], test="-")
