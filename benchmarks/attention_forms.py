"""Every form of attention beside the fused kernel: time and memory as the length grows.

Run: python benchmarks/attention_forms.py [--quick] [--json] [-o docs/benchmarks/attention_forms.md]
On a machine that is busy with other work add --cpu-time: one thread, and only its own seconds.
The same is measured by `regard bench complexity`.
"""

import argparse
import json
import sys
from pathlib import Path

from regard.bench.attention_kernels import measure, report
from regard.bench.timing import about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine: one thread")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    lengths, rounds = (options.lengths[:2], 3) if options.quick else (options.lengths, 5)
    found = None
    for found in measure(lengths, rounds=rounds, cpu_time=options.cpu_time):
        print(f"{list(found.times)[-1]} done", file=sys.stderr, flush=True)
        if options.output:  # after each length, so that a run that is stopped leaves something
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(report(found))
    assert found is not None, "there is a length"
    if options.json:
        told = {"about": about(), "times": found.times, "memory": found.memory}
        print(json.dumps({**told, "against": found.against()}, indent=1))
    else:
        print(report(found))


if __name__ == "__main__":
    main()
