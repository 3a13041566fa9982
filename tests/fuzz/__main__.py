"""Damaged input of every kind: each case is accepted, or refused in one sentence.

Run `make fuzz COUNT=100000`. It prints a table and ends with 1 if anything else happened: another
error than regard's, a sentence of several lines, a case of many seconds, an answer of 5xx. Runs
with other seeds try other cases, so their counts add up; `--seed` repeats a run.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic, process_time

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from regard.errors import RegardError
from tests.fuzz.cases import CLASSES
from tests.fuzz.mutate import seeds

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory: a disk takes longer for a folder than most cases."""
SLOWEST = 20.0
"""Seconds of a processor for one case."""


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Results:
    """Counts of one class, and one example of each kind of failure."""

    def __init__(self, name, run, until):
        self.name, self.run, self.until = name, run, until
        self.counts, self.failures, self.slowest, self.seconds = Counter(), {}, 0.0, 0.0

    def case(self, seed):
        if monotonic() > self.until:
            return
        start, busy = monotonic(), process_time()
        self.counts["cases"] += 1
        folder = Path(tempfile.mkdtemp())
        try:
            self.run(seed, folder)
            self.counts["accepted"] += 1
        except RegardError as error:
            self.counts["refused"] += 1
            if "\n" in str(error).strip():
                self.fail("several lines", seed, str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            lines = traceback.format_exception(error)
            at = traceback.extract_tb(error.__traceback__)[-1]
            self.fail(
                f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}", seed, lines[-1]
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            took = process_time() - busy  # the same on a busy machine
            self.seconds += monotonic() - start
            self.slowest = max(self.slowest, took)
            if took > SLOWEST:
                self.fail("slow", seed, f"{took:.1f} s")

    def fail(self, kind, seed, text):
        self.counts["failed"] += 1
        self.failures.setdefault(kind, (seed, text.strip()[:300]))


def fuzz(count, minutes, names, *, seed):
    """Run `count` cases in all, within so many minutes; return the results of each class.

    A seed of None gives the same cases in every run.
    """
    found, each, used = [], max(count // len(names), 1), 0.0
    for number, name in enumerate(names):
        warm_up(CLASSES[name])
        share = (60 * minutes - used) / (len(names) - number)  # of what the others left
        results = Results(name, CLASSES[name], monotonic() + share)
        options = settings(
            max_examples=each,
            derandomize=seed is None,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        cases = options(given(seeds)(results.case))
        (cases if seed is None else seeded(seed)(cases))()
        found.append(results)
        used += results.seconds
        say(line_of(results))
        for kind, (case, text) in results.failures.items():
            say(f"    {kind}, seed {case}: {text}")
    return found


def warm_up(run):
    """Load models, start the server and import libraries before the time of a class begins."""
    for seed in range(12):  # as many as a class has kinds
        with suppress(Exception), tempfile.TemporaryDirectory() as folder:
            run(seed, Path(folder))


def line_of(results):
    counts = [results.counts[name] for name in ("accepted", "refused", "failed")]
    numbers = " | ".join(f"{count:8,}" for count in counts)
    return f"| {results.name:13} | {numbers} | {results.seconds:7.1f} | {results.slowest:7.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", choices=CLASSES, nargs="*", default=list(CLASSES))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--fixed", action="store_true", help="the same cases in every run")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30,) * 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if not options.fixed:
        say(f"seed {options.seed}")
    say("| class         | accepted |  refused |   failed | seconds | slowest |")
    say("|---------------|---------:|---------:|---------:|--------:|--------:|")
    seed = None if options.fixed else options.seed
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        tempfile.tempdir = folder
        found = fuzz(options.count, options.minutes, options.only, seed=seed)
    cases, failed = (sum(one.counts[name] for one in found) for name in ("cases", "failed"))
    say(f"{cases:,} cases, {failed} failed")
    say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
    sys.exit(any(one.failures for one in found))


if __name__ == "__main__":
    main()
