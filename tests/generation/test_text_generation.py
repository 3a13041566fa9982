import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import InputError
from regard.generation.search import SamplingOptions
from regard.generation.text_generation import ctranslate2_refusal, generate_with_ctranslate2
from regard.model import load
from regard.model_folder import read_description

GREEDY = {"temperature": 0.0, "max_tokens": 40}


def generated(folder, **options):
    parts = []
    generate_with_ctranslate2(folder, "ROMEO:", SamplingOptions(**options), parts.append)
    return "".join(parts)


@pytest.fixture(scope="module")
def folder():
    return load("shakespeare").folder


def test_both_engines_generate_the_same_without_sampling(folder):
    assert generated(folder, **GREEDY) == load(folder).generate("ROMEO:", **GREEDY).written


def test_a_seed_determines_the_text(folder):
    one, two, other = (generated(folder, max_tokens=40, seed=seed) for seed in (1, 1, 2))
    assert one == two != other


def test_only_decoders_with_an_end_token_are_run(folder, toy_folder):
    assert ctranslate2_refusal(read_description(folder)) is None
    assert "not a decoder" in ctranslate2_refusal(read_description(toy_folder))
    with pytest.raises(InputError, match="generate fewer"):
        generated(folder, max_tokens=10**6)


def test_the_command_runs_without_torch_and_prints_log_probabilities_with_it(folder):
    words = ["generate", "shakespeare", "ROMEO:", "--max-tokens", "8", "--temperature", "0"]
    code = (
        "import sys; from regard.cli.main import app;"
        f"app({words!r}, standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert done.stdout == found["text"] + "\n"
    assert found["log_prob"] < 0
    wrong = CliRunner().invoke(app, [*words, "--json", "--engine", "ctranslate2"])
    assert isinstance(wrong.exception, InputError)
