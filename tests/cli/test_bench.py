import json
from functools import partial
from itertools import islice, product

import pytest
from typer.testing import CliRunner

from regard.bench import attention_kernels, checkpoint_speed
from regard.bench.timing import median_times
from regard.cli.main import app
from regard.errors import InputError

pytestmark = pytest.mark.long


def bench(*words):
    return CliRunner().invoke(app, ["bench", *words])


@pytest.mark.parametrize("kind", ["attention", "complexity"])
def test_ratios_are_printed_as_json(kind, monkeypatch):
    few = dict(islice(attention_kernels.attention_forms(32).items(), 2))
    case = dict(islice(attention_kernels._torch_cases(32).items(), 1))
    monkeypatch.setattr(attention_kernels, "attention_forms", lambda length: few)
    monkeypatch.setattr(attention_kernels, "_torch_cases", lambda length: case)
    monkeypatch.setattr(attention_kernels, "median_times", partial(median_times, seconds=0))
    done = bench(kind, "--quick", "--json", "--length", "32")
    assert done.exit_code == 0, done.output
    ratios = json.loads(done.stdout)["against"]
    assert {one["length"] for one in ratios} == {32}
    assert all(one["peer"] and one["ratio"] > 0 for one in ratios)


@pytest.mark.parametrize(
    ("command", "option", "given", "least"),
    [
        ("translate", "--count", "0", "1"),
        ("train", "--threads", "0", "1"),
        ("attention", "--length", "3", "16"),
    ],
)
def test_numbers_that_are_too_small_are_refused(command, option, given, least):
    done = bench(command, option, given)
    assert done.exit_code == 2
    assert option in done.output
    assert least in done.output


def test_unknown_precisions_are_refused():
    assert "int4" in str(bench("translate", "--precision", "int4").exception)


@pytest.mark.parametrize(
    ("words", "contenders"),
    [
        (["generate", "shakespeare", "--tokens", "4"], {"regard", "CTranslate2 in regard"}),
        (["classify", "digits", "--count", "3"], {"regard", "torch in regard"}),
    ],
)
def test_predictions_are_measured_next_to_other_engines(words, contenders, monkeypatch):
    for module in ("bench.prediction_speed", "generation.graph_engines"):  # no peers
        monkeypatch.setattr(f"regard.{module}.find_spec", lambda name: None)
    done = bench(*words, "--rounds", "1", "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)["figures"]
    assert contenders <= {one["name"] for one in figures}
    assert next(one["ratio"] for one in figures if one["name"] == "regard") == 1.0
    assert all(one["per_second"] > 0 for one in figures)


def test_checkpoints_are_measured_next_to_transformers(monkeypatch):
    # in this process, because a new one imports torch again
    monkeypatch.setattr(checkpoint_speed, "_in_process", lambda call, *given: call(*given))
    done = bench("models", "small", "--rounds", "1", "--cpu-time", "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)["figures"]
    pairs = [(one["task"], one["name"]) for one in figures]
    assert pairs == list(product(["load", "trace", "generate"], ["regard", "transformers"]))
    assert all(one["seconds"] > 0 for one in figures)


def test_an_unknown_checkpoint_is_refused_before_anything_is_measured():
    done = bench("models", "small", "gpt3")
    assert isinstance(done.exception, InputError)
    assert "gpt2" in str(done.exception)
    assert "random weights" not in done.stderr
