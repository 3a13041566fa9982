"""Terminals and memory that are smaller than a command expects."""

import os
import subprocess
import sys

import pytest
import torch

from regard.errors import is_out_of_memory


@pytest.mark.processes
def test_a_text_is_read_as_utf8_in_a_terminal_without_it():
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "regard", "translate", "dates", "2019년 3월 1일"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, "2019-03-01\n"), done.stderr


def test_errors_of_python_and_torch_without_memory_are_known():
    for work in (lambda: bytearray(2**60), lambda: torch.empty(2**58)):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            work()
        assert is_out_of_memory(caught.value)
    panic = "not initialized: ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock"
    assert is_out_of_memory(BaseException(panic))  # of tokenizers
    assert not is_out_of_memory(ValueError("another"))
