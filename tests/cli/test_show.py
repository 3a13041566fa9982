import io
import json
import sys

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.cli.show import show_command
from regard.errors import InputError
from regard.figures.captions import text_pattern
from regard.model import load


@pytest.fixture(scope="module")
def folder(make_bundle, tmp_path_factory):
    place = tmp_path_factory.mktemp("show") / "toy"
    make_bundle("transformer").save(place)
    return str(place)


def regard(*words):
    return CliRunner().invoke(app, ["show", *words])


def test_a_translation_has_a_row_for_each_target_token(folder):
    done = regard(folder, "A dog", "--target", "Ein Hund")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("A dog → Ein Hund\n")
    assert "rows are queries (tokens that are written), columns are keys" in done.output
    trace = load(folder).trace("A dog", "Ein Hund")
    rows = done.output.split("\n\n")[2].splitlines()[1:]
    assert len(rows) == len(trace.tokens["output"])
    assert rows[0].split()[0] == trace.tokens["output"][0]


def test_json_has_the_weights_of_the_trace(folder):
    words = ["--target", "Ein Hund", "--site", "encoder.layers.0.self", "--head", "1", "--json"]
    found = json.loads(regard(folder, "A dog", *words).output)
    trace = load(folder).trace("A dog", "Ein Hund")
    assert found["weights"] == trace["encoder.layers.0.self"].weights(1).tolist()
    assert found["queries"] == found["keys"] == trace.tokens["source"]


def test_ascii_terminals_get_ascii(folder, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    defaults = dict.fromkeys(("site", "head", "source_language", "target_language"))
    texts = {"text": "A dog läuft", "target": "Ein Hund läuft"}
    show_command(model=folder, **texts, **defaults, as_json=False)
    screen.flush()
    shown = screen.buffer.getvalue().decode("ascii")
    assert "A dog l?uft -> Ein Hund l?uft" in shown
    assert "_do" in shown
    assert ">= 0.1" in shown


def test_keys_that_do_not_fit_the_terminal_follow_below():
    weights = [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]
    found = text_pattern(weights, ["one", "two"], ["first", "second", "third"], width=24).lines
    assert all(len(line) <= 24 for line in found)
    expected = "first one ·· two ██ second one ·· two third one ▓▓ 0.70 third two 1.00 first"
    assert " ".join(" ".join(found).split()) == expected


def test_an_image_for_a_model_of_texts_is_refused(folder, tmp_path):
    image = tmp_path / "dog.png"
    image.write_bytes(b"")
    done = regard(folder, str(image))
    assert isinstance(done.exception, InputError)
    assert f"{folder} reads text, and {image} is an image file" in str(done.exception)
