"""What one sees of a run: samples with their alignment, curves, TensorBoard, bar and lines."""

import json
import sys
from pathlib import Path

import pytest

from regard.errors import FileError, InputError, MissingExtraError
from regard.model import Model
from regard.trace.capture import trace_model
from regard.training.validation import align_sample
from tests.backwards import write_recipe
from tests.cli.called import call

pytestmark = pytest.mark.long


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


def test_piped_output_shows_samples_and_alignments_as_plain_lines(trained):
    folder, result = trained
    lines = result.stderr.splitlines()
    first = lines.index(next(one for one in lines if "validation: loss" in one))
    assert [one.split(":")[0].strip() for one in lines[first + 1 : first + 5]] == [
        *("source", "output", "reference", "alignment")
    ]
    assert "←" in lines[first + 4]
    assert lines[first + 5].startswith("    source:")  # only the first sample is aligned
    assert "\x1b" not in result.stderr
    assert f"curves: {folder}/training/curves.svg" in result.stdout


def test_three_samples_are_not_a_score(trained):
    folder, result = trained
    lines = (folder / "training/metrics.jsonl").read_text().splitlines()
    numbers = [one["validation"] for one in map(json.loads, lines) if "validation" in one]
    assert all(set(one) == {"loss", "perplexity"} for one in numbers)
    assert "bleu" not in result.stderr + result.stdout + Model.load(folder).card.score


def test_alignments_are_saved_with_the_metrics(trained):
    folder, _ = trained
    lines = (folder / "training/metrics.jsonl").read_text().splitlines()
    sample = next(one for one in map(json.loads, lines) if "validation" in one)["samples"][0]
    found = sample["alignment"]
    assert "".join("".join(found["target_words"]).split()) == "".join(sample["output"].split())
    per_word = [
        sum(w for _, t, w in found["soft"] if t == i) for i in range(len(found["target_words"]))
    ]
    assert per_word == pytest.approx([1.0] * len(per_word), abs=0.1)  # slight ones are left out


def test_alignment_is_the_mean_of_all_heads_of_the_last_but_one_layer(trained):
    model = Model.load(trained[0])
    found = align_sample(model, {"source": "1 2", "output": "21"})
    site = trace_model(model, "1 2", "21")["decoder.layers.0.cross"]
    mean = (site.weights(0) + site.weights(1)) / 2
    soft = {(source, target): weight for source, target, weight in found["soft"]}
    expected = {(j, i): float(mean[i, j]) for i in range(2) for j in range(mean.size(1))}
    assert soft == pytest.approx(expected, abs=1e-4)


def test_several_words_are_aligned_as_words(trained):
    model = Model.load(trained[0])
    found = align_sample(model, {"source": "1 2 3", "output": "3 2"})
    assert (found["source_words"], found["target_words"]) == (["1", "2", "3"], ["3", "2"])
    assert sum(weight for _, target, weight in found["soft"] if target == 1) == pytest.approx(1)


def test_one_word_is_aligned_by_token_and_empty_text_has_no_alignment(trained):
    model = Model.load(trained[0])
    one = align_sample(model, {"source": "1 2", "output": "21"})
    assert one["target_words"] == ["2", "1"]
    assert len(one["source_words"]) >= 3
    assert align_sample(model, {"source": "1 2", "output": ""}) is None


def test_curves_are_drawn_at_validations_and_by_command(trained, tmp_path):
    folder, _ = trained
    assert "Learning curves · run" in (folder / "training/curves.svg").read_text("utf-8")
    picture = tmp_path / "c.svg"
    result = call("curves", folder, "--language", "ko", "-o", picture)
    assert result.stdout.strip() == str(picture)
    assert "학습 곡선 · run" in picture.read_text("utf-8")
    call("curves", folder / "training/metrics.jsonl", "-o", picture)
    assert "perplexity (logarithmic)" in picture.read_text("utf-8")


def test_curves_refuse_missing_metrics_unknown_languages_and_formats(trained, tmp_path):
    with pytest.raises(FileError, match=r"there is no .*metrics\.jsonl: give a folder"):
        call("curves", tmp_path)
    with pytest.raises(InputError, match="language is 'fr'; it can be en or ko"):
        call("curves", trained[0], "--language", "fr")
    with pytest.raises(InputError, match=r"c\.jpg must end in \.svg"):
        call("curves", trained[0], "-o", tmp_path / "c.jpg")


def test_tensorboard_reads_the_event_file(trained):
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
