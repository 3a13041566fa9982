"""Memory of a trace of 16,384 tokens compared with Q + K + V, and the time of a tile.

Run: python benchmarks/traces.py [-o docs/benchmarks/traces.md]
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

import regard
from regard.analysis.heads import thumbnails
from regard.bench.timing import describe_machine
from regard.trace.trace import Trace

TOKENS, HEADS, WIDTH, TILE = 16_384, 8, 64, 256


def peak() -> int:
    """Return the peak resident size in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tile_times(trace: Trace) -> list[float]:
    site, taken = trace["attention"], []
    for _ in range(40):
        row, column = (random.randrange(TOKENS - TILE) for _ in range(2))
        head = random.randrange(HEADS)
        start = time.perf_counter()
        site.weights(head, rows=slice(row, row + TILE), columns=slice(column, column + TILE))
        taken.append(time.perf_counter() - start)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    shape = (1, HEADS, TOKENS, WIDTH)
    query, key, value = (torch.randn(shape) for _ in range(3))
    inputs = sum(x.nbytes for x in (query, key, value))
    with torch.no_grad():
        regard.attend(query, key, value, allowed=regard.causal())
        before = peak()
        with regard.watch() as trace:
            regard.attend(query, key, value, allowed=regard.causal())
        traced = peak() - before
        taken = tile_times(trace)
        tiled = peak() - before
        start = time.perf_counter()
        thumbnails(trace["attention"])
        seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "trace.safetensors")
        start = time.perf_counter()
        Trace.load(Path(folder) / "trace.safetensors")
        loading = time.perf_counter() - start
    text = f"""# Traces, measured

{describe_machine()}. {TOKENS:,} tokens × {HEADS} heads × {WIDTH}, causal; Q + K + V take
{inputs / 2**20:.0f} MB.

| what | measured | bar |
| --- | --- | --- |
| peak memory added by tracing | {traced / inputs:.2f} × (Q + K + V) | ≤ 3 |
| … and by serving 40 tiles | {tiled / inputs:.2f} × (Q + K + V) | ≤ 3 |
| a {TILE} × {TILE} tile, median | {1e3 * median(taken):.1f} ms | < 50 ms |
| a {TILE} × {TILE} tile, slowest of 40 | {1e3 * max(taken):.1f} ms | < 50 ms |
| 64 × 64 thumbnails of all heads | {seconds:.2f} s | |
| opening the saved file | {1e3 * loading:.1f} ms | |
"""
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
