"""Training throughput beside transformers' Marian, x-transformers and nn.Transformer.

The same as `regard bench train`, with a report for docs/benchmarks/train.md.
"""

import argparse
from pathlib import Path

import torch

from regard.bench.timing import about, load
from regard.bench.training_speed import PEERS, Plan, installed, measure, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="small, base or another preset")
    parser.add_argument("--peer", action="append", choices=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="in one turn")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a machine that is busy")
    parser.add_argument("--quick", action="store_true", help="one round of small, two batches")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    plan = Plan(
        models=tuple(given.model or (["small"] if given.quick else ["small", "base"])),
        rounds=1 if given.quick else given.rounds,
        n_batches=2 if given.quick else given.batches,
        batch_tokens=given.batch_tokens,
        threads=given.threads,
        cpu_time=given.cpu_time,
        peers=tuple(given.peer or installed()),
    )
    torch.set_num_threads(plan.threads)
    figures = measure(plan, lambda text: print(text, flush=True))
    clock = "processor time" if plan.cpu_time else "wall time"
    text = f"""{about()}; load {load():.1f}; {clock}; medians of {plan.rounds} rounds of
{plan.n_batches} batches of {plan.batch_tokens:,} tokens.

{report(figures)}
"""
    print(text)
    if given.output:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
