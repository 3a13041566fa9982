"""Commands load only what they need, so that a translation begins at once."""

import os
import subprocess
import sys

import pytest

from tests.generation.toy import toy

HEAVY = [
    "torch",
    "sacrebleu",
    "rich",
    "numpy",
    "matplotlib",
    "starlette",
    "transformers",
    "ray",
    "pydantic",
]


def loaded(*words, cache):
    """The modules that `regard` with these words has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "regard", *words],
        input="one two\n",
        env={**os.environ, "REGARD_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines())
    return done.stdout, set(modules)


def test_a_translation_loads_no_torch_and_nothing_else_that_is_slow(tmp_path):
    loaded("translate", str(toy()), "-", cache=tmp_path)  # converts the model
    text, modules = loaded("translate", str(toy()), "-", cache=tmp_path)
    assert text == "zwei eins\n"
    assert "ctranslate2" in modules  # so the list is not empty
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("words", [["--version"], ["bench", "--help"]], ids=" ".join)
def test_what_computes_nothing_loads_nothing_that_computes(words, tmp_path):
    _, modules = loaded(*words, cache=tmp_path)
    assert modules.isdisjoint({"torch", "numpy", "ctranslate2", "sacrebleu", "matplotlib"})


def test_writing_loads_numpy_but_no_torch_and_no_pydantic_for_its_numbers(tmp_path):
    short = ["--max-tokens", "1", "--temperature", "0.5"]
    text, modules = loaded("generate", "shakespeare", "First", *short, cache=tmp_path)
    assert text.startswith("First")
    assert "numpy" in modules
    assert modules.isdisjoint(set(HEAVY) - {"numpy"})
