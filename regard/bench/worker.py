"""A contender in a process of its own, so that each has its own memory and nobody's threads.

It reads one JSON object to a line: first who it is, then what to do; and answers each by one.
Run by `regard.bench.translate`, never by hand.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.bench.contender import Bare, Contender, HuggingFace, Ours, Setting
from regard.bench.timing import forget_peak, memory
from regard.errors import InputError


@dataclass(frozen=True)
class Run:
    """What one run of a contender took."""

    wall: float
    cpu: float
    """Seconds of all its threads together."""
    tokens: int
    peak: float
    """Megabytes of its process at most."""


class Worker:
    """A contender's process, as its parent sees it."""

    def __init__(self, kind: str, folder: Path, **options: Any) -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ask({"kind": kind, "folder": str(folder), **options})

    def run(self, lines: Sequence[str], setting: Setting) -> Run:
        """Let it translate these lines."""
        return Run(**self._ask({"lines": list(lines), "setting": asdict(setting)}))

    def close(self) -> None:
        """End its process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise InputError(f"{self.kind} could not be measured; its own words stand above.")
        return json.loads(answer)


def made(kind: str, folder: Path, **options: Any) -> Contender:
    """The contender of this kind."""
    if kind == "ours":
        return Ours(folder, **options)
    return Bare(folder, **options) if kind == "bare" else HuggingFace(folder, **options)


def timed(contender: Contender, lines: Sequence[str], setting: Setting) -> Run:
    """One run, measured."""
    forget_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    written = contender.run(lines, setting)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Run(wall, cpu, sum(map(len, written)), memory())


def main() -> None:
    """Answer questions until there are no more."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    first = json.loads(sys.stdin.readline())
    contender = made(first.pop("kind"), Path(first.pop("folder")), **first)
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run = timed(contender, asked["lines"], Setting(**asked["setting"]))
        print(json.dumps(asdict(run)), file=answers, flush=True)


if __name__ == "__main__":
    main()
