"""The experiments: each runs in a few steps, draws its figure and says its sentence."""

import runpy
import sys

import pytest

from tests.test_documentation import REPOSITORY

FOLDER = REPOSITORY / "examples" / "experiments"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "lab")
SURE = {  # those whose result does not depend on training
    "dropout_left_on": "by 0.00 if it is in a module.",
    "unknown_tokens": "and 0 % to BPE on bytes",
}


def run(name, tmp_path, monkeypatch, *options):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert (tmp_path / f"{name}.svg").read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_ends_in_a_figure_and_a_sentence(name, tmp_path, monkeypatch, capsys):
    run(name, tmp_path, monkeypatch, "--quick")
    sentence, place = capsys.readouterr().out.splitlines()[-2:]
    assert sentence.endswith(".")
    assert SURE.get(name, "") in sentence
    assert place == f"The figure is in {name}.svg."


@pytest.mark.slow
def test_scaling_matters_for_wide_heads_only_without_it(tmp_path, monkeypatch, capsys):
    run("similarity_and_width", tmp_path, monkeypatch)
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[:3]}
    last = {name: float(words[-1]) for name, words in rows.items()}
    assert last["dot"] > 2 * last["scaled_dot"]


def test_the_page_has_a_part_for_every_experiment():
    for page in ("experiments.md", "experiments.ko.md"):
        text = (REPOSITORY / "docs" / "learn" / page).read_text("utf-8")
        assert [name for name in NAMES if f"`{name}.py`" not in text] == []
