import sys

import pytest
from typer.testing import CliRunner

from regard.cli.main import app, run
from regard.errors import RegardError


@pytest.fixture(scope="module")
def folder(make_bundle, tmp_path_factory):
    place = tmp_path_factory.mktemp("figure") / "toy"
    make_bundle("transformer").save(place)
    return str(place)


def regard(*words):
    return CliRunner().invoke(app, ["figure", *words])


def test_a_picture_of_a_model_at_work_is_drawn(folder, tmp_path):
    made = tmp_path / "dog.svg"
    words = ["--target", "Ein Hund", "--site", "decoder.layers.0.cross", "--head", "1"]
    done = regard("pattern", folder, "A dog", *words, "--language", "ko", "-o", str(made))
    assert done.exit_code == 0, done.output
    assert "decoder.layers.0.cross · 헤드 1" in made.read_text("utf-8")


def test_pictures_that_need_no_model_need_none(tmp_path):
    made = tmp_path / "masks.png"
    assert regard("masks", "--length", "5", "-o", str(made)).exit_code == 0
    assert made.read_bytes().startswith(b"\x89PNG")


def test_a_preset_has_a_plan_without_being_built(tmp_path):
    made = tmp_path / "llama.svg"
    assert regard("architecture", "llama-7b", "-o", str(made)).exit_code == 0
    assert "6,738,415,616 parameters" in made.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["patern", "-o", "a.svg"], "there is no picture 'patern'; the nearest"),
        (["masks"], "say where to draw to"),
        (["masks", "-o", "a.jpg"], "must end in .svg, .png, .pdf"),
        (["masks", "en-de", "-o", "a.svg"], "masks has no use for model"),
        (["masks", "--target", "Ein Hund", "-o", "a.svg"], "masks has no use for target"),
        (["pattern", "-o", "a.svg"], "is a picture of a model"),
        (["pattern", "nowhere", "-o", "a.svg"], "give a text after the model"),
        (["pattern", "{folder}", "A dog", "--length", "5", "-o", "a.svg"], "no use for length"),
        (["pattern", "{folder}", "A dog", "--head", "9", "-o", "a.svg"], "has no head 9"),
        (["architecture", "base", "text", "-o", "a.svg"], "no use for text"),
        (["masks", "--language", "de", "-o", "a.svg"], "it can be en or ko"),
    ],
)
def test_mistakes_are_told_in_one_sentence(folder, words, said):
    done = regard(*(word.format(folder=folder) for word in words))
    assert isinstance(done.exception, RegardError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_mistake_ends_with_2_and_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "figure", "masks", "-o", "a.jpg"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    said = "regard: a.jpg must end in .svg, .png, .pdf: the ending says what to write.\n"
    assert capsys.readouterr().err == said
