"""Wrong arguments in Python: one sentence that says what was given, never a bare TypeError.

The calls run in a process of their own, because the types of arguments are checked in tests.
"""

import json
import re
import subprocess
import sys

import pytest

CALLS = {
    "dates.translate(3)": "texts must be a string or a list .* a int was given",
    "dates.translate([b'a'])": "a bytes was given",
    "dates.translate(None)": "a NoneType was given",
    "dates.translate('a', beam='4')": "beam is '4'; it must be an integer",
    "dates.translate('a', alpha=float('nan'))": "alpha is nan; it must be a number",
    "dates.translate('a', must=[1])": "must must be a string or a list of strings",
    "dates.translate('a', extra=10**30)": "extra is 10+; it must be an integer",
    "dates.translate('a', penalty=3)": "penalty is 3; it must be a string",
    "dates.trace(['a', 'b'])": "a list was given: give one text or a list of token ids",
    "dates.trace(None)": "a NoneType was given",
    "dates.trace(b'ab')": "a bytes was given",
    "dates.trace([10**9])": "1000000000 is not an id",
    "dates.trace([1] * 5000)": "the source has 5,000 tokens; this model reads 1 to",
    "dates.trace('a', edits=regard.ablate('*'))": r"a list of edits, and ablate\('\*'",
    "dates.trace('a', edits=['x'])": "a list of edits, and 'x' was given",
    "dates.trace('a', edits=3)": "a list of edits, and 3 was given",
    "regard.load('digits').classify(3)": "3 is not an image",
    "shakespeare.generate(3)": "prompts must be a string",
    "shakespeare.generate('a', seed=2**64)": "seed is 18446744073709551616; it must be an integer",
    "shakespeare.generate('a', temperature=float('inf'))": "temperature is inf",
    "shakespeare.generate('a', top_k=True)": "top_k is True; it must be an integer or absent",
    "shakespeare.generate('a', stop=3)": "stop is 3; it must be a list of texts",
    "regard.import_checkpoint(3)": "a int is not a checkpoint",
    "regard.build(3)": "a int is not a configuration",
    "regard.build(sizes | {'n_layers': 10**6})": "n_layers is 1000000; it must be at most 1,024",
    "regard.build(sizes | {'n_vocab': 10**12})": "n_vocab is 1000000000000; it must be at most",
    "regard.build(sizes | {'d_ff': 10**30})": "d_ff is 10+; in a decoder model it must be an int",
}
_RUN = """
import json, sys, regard
dates, shakespeare = regard.load("dates"), regard.load("shakespeare")
sizes = {"family": "decoder", "n_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
found = {}
for call in json.load(sys.stdin):
    try:
        found[call] = "gave " + repr(eval(call))
    except regard.RegardError as error:
        found[call] = str(error)
    except BaseException as error:
        found[call] = f"raised {type(error).__name__}: {error}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    run = [sys.executable, "-c", _RUN]
    given = json.dumps(list(CALLS))
    done = subprocess.run(run, input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.processes
@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments_are_refused_in_one_sentence(found, call):
    assert re.search(CALLS[call], found[call])
    assert "\n" not in found[call]
    assert not found[call].startswith("raised")
