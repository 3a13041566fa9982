"""The fixed part of `make fuzz`, in a separate process because tests check argument types."""

import subprocess
import sys

import pytest


@pytest.mark.processes
def test_damaged_input_of_every_kind_is_accepted_or_refused_in_a_sentence():
    command = [sys.executable, "-m", "tests.fuzz", "--fixed", "--count", "135", "--minutes", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("\n") == 2 + 9 + 2  # the table's head, nine classes, the sum, memory
