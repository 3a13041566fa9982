"""Traces and edits do not leave tensors on the CPU when the model is on another device."""

import subprocess
import sys
from pathlib import Path


def test_every_family_is_traced_and_edited_on_its_device():
    run = subprocess.run(
        [sys.executable, "-m", "tests.trace.device_cases"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
