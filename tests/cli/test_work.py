import json
import os
import subprocess
import sys

import pytest

from regard.cli.main import run


@pytest.fixture
def regard(monkeypatch, capsys):
    """What the command ends with, prints and complains of; called as from a shell."""

    def called(*words):
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["regard", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        return ended.value.code, *capsys.readouterr()

    return called


def test_the_default_example_is_printed_with_every_matrix(regard):
    code, out, _ = regard("work")
    assert code == 0
    for part in ("X ", "W_Q", "Q = X W_Q", "E = Q Kᵀ", "S = E / √4", "A = softmax(S)", "Y = A V"):
        assert part in out
    assert "0.5502   5.1487        3   1.6506" in out


def test_json_has_every_matrix(regard):
    tables = json.loads(regard("work", "--json")[1])["tables"]
    weights = next(table["values"] for table in tables if table["name"] == "weights")
    assert [round(x, 4) for x in weights[0]] == [0.1004, 0.4498, 0.4498]


def test_terminals_without_unicode_get_ascii_lines():
    done = subprocess.run(
        [sys.executable, "-m", "regard", "work"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "100"},
    )
    assert done.returncode == 0
    assert b"0.4498" in done.stdout
    assert b"+--" in done.stdout


@pytest.mark.parametrize("extension", [".html", ".svg", ".md", ".tex", ".png"])
def test_every_format_is_written(regard, extension, tmp_path):
    code, out, _ = regard("work", "-o", str(tmp_path / f"out{extension}"), "--language", "ko")
    assert (code, out) == (0, "")
    data = (tmp_path / f"out{extension}").read_bytes()
    assert data.startswith(b"\x89PNG") if extension == ".png" else b"0.4498" in data


def test_examples_are_listed_and_used_by_name(regard, tmp_path):
    code, out, _ = regard("work", "--list", "--language", "ko")
    assert code == 0
    assert "masked          인과 셀프 어텐션" in out
    assert len(out.splitlines()) == 9
    assert "0.9526" in regard("work", "masked")[1]
    path = tmp_path / "masked.svg"
    assert regard("work", "masked", "-o", str(path), "--language", "ko")[0] == 0
    assert "0.9526" in path.read_text("utf-8")


def test_a_quiz_ends_with_its_answers(regard):
    out = regard("work", "--quiz")[1]
    asked, _, answers = out.partition("Answers")
    assert "____" in asked
    assert "____" not in answers
    assert "0.4498" in answers


def test_mistakes_exit_with_2_and_one_sentence(regard, tmp_path):
    (tmp_path / "bad.toml").write_text("x = [[1, 2], [3]]")
    for words, sentence in [
        (["work", str(tmp_path / "bad.toml")], "give rows of numbers"),
        (["work", str(tmp_path / "none.toml")], "cannot be read"),
        (["work", "-o", "out.bmp"], "must end in .html"),
        (["work", "--language", "de"], "it can be en or ko"),
    ]:
        code, out, err = regard(*words)
        assert code == 2, words
        assert out == ""
        assert err.startswith("regard: ")
        assert sentence in err
        assert err.count("\n") == 1


def test_the_version_is_printed(regard):
    assert regard("--version")[1].startswith("regard 0.")
