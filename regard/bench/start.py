"""How long the command takes from its start to the first translation."""

import subprocess
import sys
import time
from statistics import median

_LINE = b"The dog is sleeping.\n"


def seconds_to_first_line(model: str = "en-de", *, rounds: int = 5) -> float:
    """The median over some runs, the first of which, that may have to convert, is left out."""
    taken = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "regard", "translate", model]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_LINE)
            process.stdin.close()
            process.stdout.readline()
            taken.append(time.perf_counter() - begun)
    return median(taken[1:])
