import json
from functools import partial
from itertools import islice

import pytest
from typer.testing import CliRunner

from regard.bench import attention_kernels
from regard.bench.timing import median_times
from regard.cli.main import app


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
    ("words", "message"),
    [
        (["translate", "--precision", "int4"], "int4"),
        (["translate", "--count", "0"], "count is 0; it must be 1 or more"),
        (["train", "--threads", "0"], "threads is 0; it must be 1 or more"),
        (["attention", "--length", "3"], "it must be 16 or more"),
    ],
)
def test_invalid_options_are_refused(words, message):
    assert message in str(bench(*words).exception)
