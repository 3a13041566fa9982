"""No model leaves a tensor on the CPU when it runs on another device."""

import subprocess
import sys
from pathlib import Path

from tests.models.device_cases import CASES

ROOT = Path(__file__).resolve().parents[2]


def test_every_family_and_form_of_attention_stays_on_its_device():
    assert len(CASES) > 25
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.device_cases"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("", 0), run.stderr
