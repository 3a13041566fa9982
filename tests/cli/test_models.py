"""`regard models`: tables for people, JSON for programs, one sentence for mistakes."""

import json
import os
import subprocess
import sys

import pytest

from regard.errors import FileError, InputError, UnknownNameError
from regard.interop import model_names as zoo
from regard.models.presets import PRESETS, Preset
from tests.cli.called import call


def run(*words):
    """What the command prints; errors come out as they are raised."""
    result = call("models", *words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """Imported models of packages are listed, too."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(make_bundle, tmp_path):
    make_bundle("transformer").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def shelf(make_bundle, tmp_path, monkeypatch):
    make_bundle("transformer").save(tmp_path / "zoo" / "en-de")
    make_bundle("vision").save(tmp_path / "zoo" / "animals")
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")


def test_every_preset_is_listed_with_its_size(monkeypatch):
    monkeypatch.setattr(Preset, "count_parameters", lambda self: 1000 * self.config.d_model)
    found = {row["name"]: row for row in json.loads(run("--presets", "--json"))}
    assert set(found) == set(PRESETS)
    assert {"base", "big", "A-h1", "E", "tiny", "small", "bert-base", "gpt2"} <= set(found)
    assert (found["gpt2"]["parameters"], found["gpt2"]["memory"]) == (768_000, 3_072_000)
    lines = run("--presets").splitlines()
    assert lines[0].split() == ["name", "family", "parameters", "memory", "PPL", "BLEU", "about"]
    big = next(line for line in lines if line.startswith("big "))
    assert big.split()[5:7] == ["4.33", "26.4"]  # the last row of the paper's table 3
    assert "vocabulary of 39,000" in lines[-1]
    (line,) = (line for line in lines if line.startswith("gpt2 "))
    assert "768,000" in line
    assert "3.1 MB" in line


def test_a_folder_is_shown_as_a_table_with_its_card(folder, make_bundle):
    printed = run(folder)
    assert "encoder.layers.0.self" in printed
    count = sum(weight.numel() for weight in make_bundle("transformer").module.parameters())
    assert f"{count:,}" in printed
    assert "FLOPs/token" in printed
    assert "data: two sentences" in printed
    assert "license: CC0" in printed
    plain = json.loads(run(folder, "--json"))
    assert plain["parameters"] == count == sum(part["parameters"] for part in plain["parts"])
    assert plain["card"]["license"] == "CC0"


def test_a_preset_is_shown_by_its_name():
    assert json.loads(run("tiny", "--json"))["parameters"] == 2_349_568
    assert run("tiny").startswith("Transformer")


def test_bundled_models_are_listed_with_their_cards(shelf):
    found = json.loads(run("--json"))
    assert [row["name"] for row in found] == ["animals", "en-de"]
    assert [row["task"] for row in found] == ["classification", "translation"]
    lines = run().splitlines()
    assert lines[0].split()[:3] == ["name", "task", "family"]
    assert "two sentences" in lines[2]
    assert run("en-de").startswith("Transformer")


def test_without_bundled_models_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "nowhere")
    assert "no bundled models" in run()
    assert json.loads(run("--json")) == []


def test_mistakes_get_one_sentence(shelf, tmp_path):
    with pytest.raises(UnknownNameError, match=r"'en-dd' is neither .* the nearest .*en-de"):
        run("en-dd")
    with pytest.raises(InputError, match="one at a time"):
        run("tiny", "--presets")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"has no config\.json"):
        run(tmp_path / "empty")


def test_the_command_itself_exits_with_2_and_one_line(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "regard", "models", "tinny"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "tiny" in result.stderr


def test_families_are_listed_with_what_each_can_do():
    table = run("--families").splitlines()
    assert table[0].split()[:4] == ["family", "look", "edit", "lens"]
    rows = json.loads(run("--families", "--json"))
    assert len(rows) == len(table) - 1
    assert rows[1]["export"] == "huggingface, onnx, ctranslate2, gguf"
    with pytest.raises(InputError, match="one at a time"):
        run("--families", "--presets")
