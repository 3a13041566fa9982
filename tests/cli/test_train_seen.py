"""What one sees of a run: samples with their alignment, curves, TensorBoard, bar and lines."""

import io
import json
import sys
import time
from pathlib import Path

import pytest

from regard.cli.output import LinesRead
from regard.errors import FileError, InputError, MissingExtraError
from regard.model import Model
from regard.trace.capture import trace_model
from regard.training.callbacks import ValidationResult
from regard.training.validation import drawn_samples, plain_samples, with_alignment
from tests.backwards import write_recipe
from tests.cli.called import call


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    training = "batch_tokens = 400\nsteps = 20\nvalidate_every = 10"
    folder = tmp_path_factory.mktemp("seen")
    return write_recipe(folder, training=training, evaluate="samples = 2", n_decoder_layers=2)


@pytest.fixture(scope="module")
def trained(recipe):
    """A run that was written for TensorBoard too, and what it said."""
    folder = recipe.parent / "run"
    return folder, call("train", recipe, "-o", folder, "--tensorboard")


def test_a_run_in_a_pipe_says_samples_and_their_alignment_in_plain_lines(trained):
    folder, told = trained
    lines = told.stderr.splitlines()
    first = lines.index(next(one for one in lines if "validation: loss" in one))
    assert [one.split(":")[0].strip() for one in lines[first + 1 : first + 5]] == [
        *("source", "written", "reference", "alignment")
    ]
    assert "←" in lines[first + 4]
    assert lines[first + 5].startswith("    source:")  # only the first sample is aligned
    assert "\x1b" not in told.stderr
    assert f"its curves in {folder}/training/curves.svg" in told.stdout


def test_three_samples_are_no_score(trained):
    folder, told = trained
    lines = (folder / "training/metrics.jsonl").read_text().splitlines()
    numbers = [one["validation"] for one in map(json.loads, lines) if "validation" in one]
    assert all(set(one) == {"loss", "perplexity"} for one in numbers)
    assert "bleu" not in told.stderr + told.stdout + Model.load(folder).card.score


def test_a_terminal_shows_how_many_lines_were_read_and_a_pipe_does_not(trained, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    count = LinesRead()
    count(10)  # too soon after the beginning to be worth a word
    assert shown.getvalue() == ""
    time.sleep(0.25)
    count(4_096)
    assert shown.getvalue() == "\r4,096 lines read\x1b[K\r"
    assert "\r" not in trained[1].stderr


def test_alignments_are_kept_with_the_metrics(trained):
    folder, _ = trained
    lines = (folder / "training/metrics.jsonl").read_text().splitlines()
    sample = next(one for one in map(json.loads, lines) if "validation" in one)["samples"][0]
    found = sample["alignment"]
    assert "".join("".join(found["target_words"]).split()) == "".join(sample["written"].split())
    per_word = [
        sum(w for _, t, w in found["soft"] if t == i) for i in range(len(found["target_words"]))
    ]
    assert per_word == pytest.approx([1.0] * len(per_word), abs=0.1)  # slight ones are left out


def test_alignment_is_the_mean_of_all_heads_of_the_last_but_one_layer(trained):
    model = Model.load(trained[0])
    evaluation = ValidationResult(samples=[{"source": "1 2", "written": "21"}])
    (found,) = with_alignment(model, evaluation).samples
    site = trace_model(model, "1 2", "21")["decoder.layers.0.cross"]
    mean = (site.weights(0) + site.weights(1)) / 2
    soft = {(source, target): weight for source, target, weight in found["alignment"]["soft"]}
    expected = {(j, i): float(mean[i, j]) for i in range(2) for j in range(mean.size(1))}
    assert soft == pytest.approx(expected, abs=1e-4)


def test_words_are_aligned_where_there_are_several(trained):
    model = Model.load(trained[0])
    evaluation = ValidationResult(samples=[{"source": "1 2 3", "written": "3 2"}])
    found = with_alignment(model, evaluation).samples[0]["alignment"]
    assert (found["source_words"], found["target_words"]) == (["1", "2", "3"], ["3", "2"])
    assert sum(weight for _, target, weight in found["soft"] if target == 1) == pytest.approx(1)


def test_one_word_is_aligned_token_by_token_and_nothing_is_aligned_to_nothing(trained):
    model = Model.load(trained[0])
    one = with_alignment(model, ValidationResult(samples=[{"source": "1 2", "written": "21"}]))
    assert one.samples[0]["alignment"]["target_words"] == ["2", "1"]
    assert len(one.samples[0]["alignment"]["source_words"]) >= 3
    empty = ValidationResult(samples=[{"source": "1 2", "written": ""}])
    assert with_alignment(model, empty) == empty


def test_a_terminal_draws_the_alignment_unless_it_is_too_narrow():
    alignment = {
        "source_words": ["a", "dog"],
        "target_words": ["ein", "Hund"],
        "hard": "0-0 1-1",
        "soft": [[0, 0, 1.0], [0, 1, 0.25], [1, 1, 0.75]],
    }
    evaluation = ValidationResult(samples=[{"written": "ein Hund", "alignment": alignment}])
    wide = drawn_samples(80)(evaluation)
    assert wide[0] == "    written: ein Hund"
    assert wide[3].split() == ["ein", "██", "1.00", "a"]
    assert wide[4].split() == ["Hund", "··", "▓▓", "0.75", "dog"]
    plain = ["    written: ein Hund", "    alignment: ein←a Hund←dog"]
    assert drawn_samples(12)(evaluation) == plain == plain_samples(evaluation)


def test_curves_are_drawn_at_validations_and_by_command(trained, tmp_path):
    folder, _ = trained
    assert "Learning curves · run" in (folder / "training/curves.svg").read_text("utf-8")
    picture = tmp_path / "c.svg"
    told = call("curves", folder, "--language", "ko", "-o", picture)
    assert told.stdout.strip() == str(picture)
    assert "학습 곡선 · run" in picture.read_text("utf-8")
    call("curves", folder / "training/metrics.jsonl", "-o", picture)
    assert "perplexity (logarithmic)" in picture.read_text("utf-8")


def test_curves_of_nothing_in_no_language_or_in_another_format_are_refused(trained, tmp_path):
    with pytest.raises(FileError, match=r"there is no .*metrics\.jsonl: give the folder"):
        call("curves", tmp_path)
    with pytest.raises(InputError, match="language is 'fr'; it can be en or ko"):
        call("curves", trained[0], "--language", "fr")
    with pytest.raises(InputError, match=r"c\.jpg must end in \.svg"):
        call("curves", trained[0], "-o", tmp_path / "c.jpg")


def test_tensorboard_reads_what_was_written_for_it(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = trained
    board = EventAccumulator(str(folder / "training/tensorboard")).Reload()
    lines = [json.loads(x) for x in (folder / "training/metrics.jsonl").read_text().splitlines()]
    steps = [one for one in lines if "loss" in one]
    assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [
        (one["step"], pytest.approx(one["loss"], rel=1e-5)) for one in steps
    ]
    assert [e.step for e in board.Scalars("train/lr")] == [10, 20]
    checks = [one["validation"] for one in lines if "validation" in one]
    assert [e.value for e in board.Scalars("validation/perplexity")] == [
        pytest.approx(one["perplexity"], rel=1e-5) for one in checks
    ]
    assert "sample/0/text_summary" in board.Tags()["tensors"]


def test_without_tensorboard_the_switch_says_what_to_install(recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'regard\[tensorboard\]'"):
        call("train", recipe, "-o", tmp_path / "m", "--set", "training.tensorboard=true")
