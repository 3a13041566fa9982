"""Every example runs, from an empty folder, and shows what it promises."""

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SHOWS = {
    "change_a_head": r"unchanged: 2021-08-12\n +month hidden: 2021-02-12\n.*\n.*\n$",
    "efficient_vs_exact": r"4096 tokens: efficient takes 0\.[0-4].*\nexact: .*\nefficient: ",
    "open_any_model": r"^model\.layers\.0\.self_attn\nmodel\.layers\.1\.self_attn\ntensor\(",
    "open_hugging_face": r"^encoder\.layers\.0\.self\nencoder\.layers\.1\.self\ntensor\(",
    "see_a_head": r"^Der Hund .*\n(.* looks at .*\n)+ +Sofa looks at sofa\n",
    "train_a_model": r"^30 steps in \d+ s, validation loss \d.*\n\d+\n<Trace of 3 sites",
    "watch_pytorch": r"decoder\.layers\.0\.self_attn +causal self\n.*cross\n(.*\n)+without head 2",
    "watch_your_homework": r"sum to .*\n- .*over the queries.*\n- .*√16.*\n- .*0\.1 of the weights",
    "watch_timm": r"blocks\.0\.attn.*\ntensor\(\[.*\]\)\nencoder\.layers\.\d\..*residual\n$",
    "watch_my_layer": r"^tensor\(\[\[\[1\.0000, 0\.0000(.*\n)+rows that changed: \[3\]\n$",
}
LEAVES = {"see_a_head": "head.svg", "train_a_model": "backwards/training/curves.svg"}


def test_every_example_is_run_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_an_example_shows_what_it_promises(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = FOLDER / f"{name}.py"
    if name == "train_a_model":  # train for fewer steps
        path = tmp_path / path.name
        text = (FOLDER / path.name).read_text("utf-8")
        path.write_text(text.replace('"steps": 400', '"steps": 30'), "utf-8")
        assert '"steps": 30' in path.read_text("utf-8")
    runpy.run_path(str(path), run_name="__main__")
    assert re.search(SHOWS[name], capsys.readouterr().out)
    assert (tmp_path / LEAVES.get(name, ".")).exists()
