import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import InputError
from regard.generation.text_generation import write_fast, writes_fast
from regard.model import load
from regard.model_folder import read_description

GREEDY = {"temperature": 0.0, "max_tokens": 40}


def told(folder, prompt, **options):
    parts = []
    write_fast(folder, prompt, on_text=parts.append, **options)
    return "".join(parts)


@pytest.fixture(scope="module")
def folder():
    return load("shakespeare").folder


def test_both_engines_go_on_alike_where_nothing_is_drawn(folder):
    assert told(folder, "ROMEO:", **GREEDY) == load(folder).generate("ROMEO:", **GREEDY).written


def test_the_same_seed_writes_the_same_and_another_one_something_else(folder):
    one, two, other = (told(folder, "ROMEO:", max_tokens=40, seed=seed) for seed in (1, 1, 2))
    assert one == two != other


def test_only_decoders_that_know_their_end_are_fast(folder, toy_folder):
    assert writes_fast(read_description(folder))
    assert not writes_fast(read_description(toy_folder))


def test_more_than_there_is_room_for_is_refused(folder):
    with pytest.raises(InputError, match="ask for fewer"):
        told(folder, "a", max_tokens=10**6)


def test_the_command_writes_without_torch_and_tells_probabilities_with_it(folder):
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
