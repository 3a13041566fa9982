import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from regard.cli.main import app, run
from regard.errors import RegardError


@pytest.fixture(scope="module")
def folder(make_bundle, tmp_path_factory):
    place = tmp_path_factory.mktemp("figure") / "toy"
    make_bundle("transformer").save(place)
    return str(place)


def tooltips_in(path):
    root = ElementTree.fromstring(path.read_text("utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    return [(line.findtext(f"{name}title"), line) for line in root.iter(f"{name}polyline")]


def regard(*words):
    return CliRunner().invoke(app, ["figure", *words])


def test_a_figure_of_a_trace_is_drawn(folder, tmp_path):
    made = tmp_path / "dog.svg"
    words = ["--target", "Ein Hund", "--site", "decoder.layers.0.cross", "--head", "1"]
    done = regard("pattern", folder, "A dog", *words, "--language", "ko", "-o", str(made))
    assert done.exit_code == 0, done.output
    assert "디코더 · 레이어 0 · 크로스 어텐션 · 헤드 1" in made.read_text("utf-8")


def test_two_texts_are_compared(folder, tmp_path):
    made = tmp_path / "two.svg"
    words = ["--other-text", "A dog", "--site", "encoder.layers.0.self", "--other-head", "1"]
    turned = ["--hide-special", "--queries", "columns"]
    done = regard("compare", folder, "A dog", *words, *turned, "-o", str(made))
    assert done.exit_code == 0, done.output
    assert "difference B − A" in made.read_text("utf-8")


def test_concepts_need_no_model(tmp_path):
    made = tmp_path / "masks.png"
    assert regard("masks", "--length", "5", "-o", str(made)).exit_code == 0
    assert made.read_bytes().startswith(b"\x89PNG")


def test_the_schedule_is_that_of_the_paper(tmp_path):
    made = tmp_path / "schedule.svg"
    assert regard("schedule", "--length", "8000", "-o", str(made)).exit_code == 0
    line = next(line for name, line in tooltips_in(made) if name == "d_model 256, warm-up 4,000")
    heights = [float(point.split(",")[1]) for point in line.get("points").split()]
    assert heights.index(min(heights)) == 199  # step 4,000 of 400 points up to 8,000


def test_architectures_of_presets_need_no_weights(tmp_path):
    made = tmp_path / "llama.svg"
    assert regard("architecture", "llama-7b", "-o", str(made)).exit_code == 0
    assert "6,738,415,616 parameters" in made.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["patern", "-o", "a.svg"], "unknown figure 'patern'; the nearest"),
        (["masks"], "no output file was given"),
        (["masks", "-o", "a.jpg"], "must end in .svg, .png, .pdf"),
        (["masks", "en-de", "-o", "a.svg"], "masks does not use model"),
        (["masks", "--target", "Ein Hund", "-o", "a.svg"], "masks does not use target"),
        (["pattern", "-o", "a.svg"], "is a figure of a model"),
        (["pattern", "nowhere", "-o", "a.svg"], "give a text after the model"),
        (["pattern", "{folder}", "A dog", "--length", "5", "-o", "a.svg"], "does not use length"),
        (["pattern", "{folder}", "A dog", "--head", "9", "-o", "a.svg"], "has no head 9"),
        (["architecture", "base", "text", "-o", "a.svg"], "does not use text"),
        (["padding", "--length", "5", "-o", "a.svg"], "padding does not use length"),
        (["pattern", "{folder}", "A dog", "--other-head", "1", "-o", "a.svg"], "only compare"),
        (["masks", "--language", "de", "-o", "a.svg"], "it can be en or ko"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(folder, words, said):
    done = regard(*(word.format(folder=folder) for word in words))
    assert isinstance(done.exception, RegardError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_mistake_exits_with_2_and_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["regard", "figure", "masks", "-o", "a.jpg"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    said = "regard: the file a.jpg must end in .svg, .png, .pdf.\n"
    assert capsys.readouterr().err == said


def test_the_heads_of_a_training_run_are_drawn_step_by_step(tmp_path):
    made = tmp_path / "training.svg"
    site = ["--site", "decoder.layers.1.cross"]
    done = regard("training", "dates-replay", "2019년 3월 1일", *site, "-o", str(made))
    assert done.exit_code == 0, done.output
    text = made.read_text("utf-8")
    assert "step 120 · loss 0.61" in text
    assert "step 1,444 · loss 0.00" in text
    assert "→ 2019-03-01[SEP]" in text
    assert text.count("<image") == 6 * 4 + 1  # steps, heads, and the legend


def test_a_run_without_such_a_text_says_which_it_has(tmp_path):
    done = regard("training", "dates-replay", "1990", "-o", str(tmp_path / "training.svg"))
    assert isinstance(done.exception, RegardError)
    assert "3. Oktober 1990" in str(done.exception)
