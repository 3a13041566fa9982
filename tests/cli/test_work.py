import json
import os
import subprocess
import sys

import pytest


def regard(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "regard", *words],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


def test_without_a_file_the_built_in_example_is_printed_with_every_matrix():
    done = regard("work")
    assert done.returncode == 0
    for part in ("X ", "W_Q", "Q = X W_Q", "E = Q Kᵀ", "S = E / √4", "A = softmax(S)", "Y = A V"):
        assert part in done.stdout
    assert "0.5502   5.1487        3   1.6506" in done.stdout


def test_json_is_for_other_programs():
    tables = json.loads(regard("work", "--json").stdout)["tables"]
    weights = next(table["values"] for table in tables if table["name"] == "weights")
    assert [round(x, 4) for x in weights[0]] == [0.1004, 0.4498, 0.4498]


def test_a_terminal_without_unicode_gets_ascii_lines():
    done = subprocess.run(
        [sys.executable, "-m", "regard", "work"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii:replace", "COLUMNS": "100"},
    )
    assert done.returncode == 0
    assert b"0.4498" in done.stdout
    assert b"+--" in done.stdout


@pytest.mark.parametrize("ending", [".html", ".svg", ".md", ".tex"])
def test_files_are_written(ending, tmp_path):
    done = regard("work", "-o", str(tmp_path / f"out{ending}"), "--language", "ko")
    assert (done.returncode, done.stdout) == (0, "")
    assert "0.4498" in (tmp_path / f"out{ending}").read_text("utf-8")


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "bad.toml").write_text("x = [[1, 2], [3]]")
    for words, sentence in [
        (["work", str(tmp_path / "bad.toml")], "give rows of numbers"),
        (["work", str(tmp_path / "none.toml")], "cannot be read"),
        (["work", "-o", "out.bmp"], "must end in .html"),
        (["work", "--language", "de"], "it can be en or ko"),
    ]:
        done = regard(*words)
        assert done.returncode == 2, words
        assert done.stdout == ""
        assert done.stderr.startswith("regard: ")
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_version_is_printed():
    assert regard("--version").stdout.startswith("regard 0.")
