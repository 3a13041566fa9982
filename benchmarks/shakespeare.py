"""Shakespeare, character by character: regard's recipe compared with nanoGPT's CPU configuration.

The reference is written out here from its description: 4 layers, 4 heads, d 128, GELU, learned
positions, no biases, no dropout, 12 windows of 64 characters a step, 2,000 steps of AdamW (lr 1e-3
falling to 1e-4 along a cosine, warm-up 100, betas 0.9 and 0.99, weight decay 0.1, clipping at 1).
It trains first; regard then trains for the same time on the same cores. Both are evaluated by the
mean loss of every character of the last tenth of the text, in windows of 64.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from math import cos, pi
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.bench.timing import describe_machine
from regard.training.data_sources import find_data

WINDOW, WINDOWS, STEPS, WARMUP = 64, 12, 2000, 100


class Block(nn.Module):
    """A pre-norm layer of attention and feed-forward."""

    def __init__(self, d: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.before, self.between = (nn.LayerNorm(d, bias=False) for _ in range(2))
        self.to_qkv, self.to_output = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        batch, length, d = x.shape
        parts = self.to_qkv(self.before(x)).split(d, dim=2)
        query, key, value = (
            part.view(batch, length, self.n_heads, d // self.n_heads).transpose(1, 2)
            for part in parts
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.to_output(mixed.transpose(1, 2).reshape(batch, length, d))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Reference(nn.Module):
    """A small GPT that returns the mean loss of its targets."""

    def __init__(self, n_vocab: int, *, d: int = 128, n_heads: int = 4, n_layers: int = 4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(n_vocab, d), nn.Embedding(WINDOW, d)
        self.blocks = nn.Sequential(*(Block(d, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d, bias=False)
        for name, one in self.named_parameters():
            if one.dim() > 1:
                ends = name.endswith(("to_output.weight", "down.weight"))
                nn.init.normal_(one, std=0.02 / ((2 * n_layers) ** 0.5 if ends else 1.0))

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T  # tied
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def read_text() -> tuple[torch.Tensor, torch.Tensor, int]:
    text = gzip.decompress(find_data("shakespeare/input.txt.gz").read_bytes()).decode()
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    ids = torch.from_numpy(np.array([letters[letter] for letter in text], dtype=np.int64))
    cut = len(ids) - round(0.1 * len(ids))
    return ids[:cut], ids[cut:], len(letters)


def rate(step: int, progress: float) -> float:
    if step < WARMUP:
        return 1e-3 * (step + 1) / (WARMUP + 1)
    return 1e-4 + (1e-3 - 1e-4) * (1 + cos(pi * min(1.0, progress))) / 2


@torch.no_grad()
def evaluate(model: Reference, ids: torch.Tensor) -> float:
    total, count = 0.0, 0
    starts = range(0, len(ids) - 1, WINDOW)
    whole = [first for first in starts if first + WINDOW < len(ids)]
    for first in range(0, len(whole), 64):
        rows = torch.stack([ids[one : one + WINDOW + 1] for one in whole[first : first + 64]])
        total += float(model(rows[:, :-1], rows[:, 1:])) * rows[:, 1:].numel()
        count += rows[:, 1:].numel()
    return total / count


def train_reference(seconds: float | None) -> tuple[float, float, int]:
    """Return loss, seconds and steps of the reference."""
    train, held, n_vocab = read_text()
    torch.manual_seed(1337)
    model = Reference(n_vocab)
    decayed = [one for one in model.parameters() if one.dim() > 1]
    others = [one for one in model.parameters() if one.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    start, step = time.perf_counter(), 0
    while step < STEPS:
        elapsed = time.perf_counter() - start
        progress = max(step / STEPS, elapsed / seconds if seconds else 0.0)
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate(step, progress)
        starts = torch.randint(len(train) - WINDOW, (WINDOWS,))
        rows = torch.stack([train[first : first + WINDOW + 1] for first in starts])
        optimizer.zero_grad(set_to_none=True)
        model(rows[:, :-1], rows[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    taken = time.perf_counter() - start
    return evaluate(model.eval(), held), taken, step


def train_ours(seconds: float, threads: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "regard", "train", "shakespeare", "--json"]
        command += ["-o", str(Path(folder) / "run"), "--minutes", str(seconds / 60)]
        command += ["--set", f"training.threads={threads}", "--set", "training.steps=1000000000"]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="time limit of both")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    limit = None if given.minutes is None else 60 * given.minutes
    loss, seconds, steps = train_reference(limit)
    print(
        f"{describe_machine()}\nreference: loss {loss:.4f} after {steps:,} steps in {seconds:.0f} s"
    )
    ours = train_ours(seconds, given.threads)
    best = ours["validation"]["loss"]
    print(f"regard:    loss {best:.4f} after {ours['steps']:,} steps in {ours['seconds']:.0f} s")
    print(f"regard is {loss - best:.4f} lower" if best < loss else "regard is NOT lower")


if __name__ == "__main__":
    main()
