"""Time to quality: how good a translator is after the same time as a peer, and after less.

Both learn the 29,000 pairs of Multi30k on the same cores and translate the test captions with beam
5. The peer is a MarianMTModel of transformers of the same size, trained with Adam, the schedule of
the paper, label smoothing and the mean of its last weights.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.bench.timing import markdown_table, new_process
from regard.bench.training_speed import (
    OURS,
    ContenderError,
    marian_loss,
    marian_model,
    within_lengths,
)
from regard.bench.translation import training_pairs
from regard.data.batches import Batches, pad
from regard.errors import InputError
from regard.evaluation.scores import score_texts
from regard.files import read_lines
from regard.models.presets import get_preset
from regard.training.data_sources import find_data
from regard.training.loader import PairBatch

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

PEER = "transformers Marian"
RECIPE = "multi30k-tiny"
_PAIRS, _VOCABULARY, _BATCH_TOKENS, _BEAM = 29_000, 8000, 4096, 5
_DROPOUT, _SMOOTHING, _WARMUP = 0.3, 0.1, 2000
_AVERAGED = 0.3
"""Share of the time, at its end, whose weights are averaged."""
_TEST = "multi30k/test_2016_flickr.{}.gz"
_OVERRIDES = {  # what the recipe's head names for half an hour and less
    "model.dropout": 0.2,
    "training.ema": 0.996,
    "training.validate_every": 1000,
}


@dataclass(frozen=True)
class QualityPlan:
    """Minutes of the peer, and the shares of them that regard trains for."""

    minutes: float = 30.0
    shares: tuple[float, ...] = (0.4, 1.0)
    threads: int = 2


@dataclass(frozen=True)
class Quality:
    """The BLEU (sacreBLEU, cased) that a contender has after some minutes."""

    name: str
    minutes: float
    steps: int
    bleu: float


def measure_quality(
    plan: QualityPlan, log: Callable[[str], None] = lambda text: None
) -> list[Quality]:
    """Train the peer, then regard for each share of its time, one after the other."""
    if not training_pairs(1):
        raise InputError(
            "this measurement needs Multi30k: put its files into a folder multi30k and set "
            "$REGARD_DATA to the folder around it."
        )
    found = []
    with new_process() as process:
        found.append(process.submit(train_peer, plan.minutes, plan.threads).result())
    log(f"{PEER}: BLEU {found[0].bleu:.2f} after {plan.minutes:g} minutes")
    for share in plan.shares:
        found.append(train_ours(plan.minutes * share, plan.threads))
        log(f"{OURS}: BLEU {found[-1].bleu:.2f} after {found[-1].minutes:g} minutes")
    return found


def train_ours(minutes: float, threads: int) -> Quality:
    """Train the recipe with the command that its head names, one process for each thread."""
    with TemporaryDirectory() as folder:
        start = [sys.executable, "-m"]
        if threads > 1:
            start += ["torch.distributed.run", f"--nproc-per-node={threads}", "-m"]
        words = ["regard", "train", RECIPE, "--minutes", f"{minutes:g}", "-o", folder]
        for key, value in {**_OVERRIDES, "training.threads": 1}.items():
            words += ["--set", f"{key}={value}"]
        if status := subprocess.run([*start, *words], check=False, stdout=sys.stderr).returncode:
            raise ContenderError(f"regard train {RECIPE} ended with status {status}: see above.")
        result = json.loads(Path(folder, "training", "result.json").read_text("utf-8"))
    return Quality(OURS, minutes, result["steps"], result["test"]["bleu"])


def train_peer(minutes: float, threads: int) -> Quality:
    """Train the peer for this long, average its last weights and translate the test captions."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    tokenizer, batches = _data()
    preset: Any = get_preset("tiny", n_vocab=len(tokenizer)).config
    config = replace(preset, dropout=_DROPOUT)
    model = marian_model(config, start=tokenizer.start_id, end=tokenizer.end_id).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    start, mean = time.perf_counter(), _MeanWeights(model)
    step, part = 0, 0.0
    while part < 1:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = config.d_model**-0.5 * min(step**-0.5, step * _WARMUP**-1.5)
        marian_loss(model, next(batches), smoothing=_SMOOTHING).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        part = (time.perf_counter() - start) / (60 * minutes)
        if part >= 1 - _AVERAGED and step % 10 == 0:
            mean.add()
    mean.use()
    sources, references = ([*_lines(_TEST.format(side))] for side in ("en", "de"))
    bleu = score_texts(_translate(model.eval(), tokenizer, sources), references)["bleu"]
    return Quality(PEER, minutes, step, bleu)


class _MeanWeights:
    """The mean of a model's weights at several steps."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.count = model, 0
        self.sums = [torch.zeros_like(one) for one in model.parameters()]

    @torch.no_grad()
    def add(self) -> None:
        """Add the current weights."""
        self.count += 1
        for total, one in zip(self.sums, self.model.parameters(), strict=True):
            total += one

    @torch.no_grad()
    def use(self) -> None:
        """Give the model the mean, if weights were added."""
        for total, one in zip(self.sums, self.model.parameters(), strict=True):
            if self.count:
                one.copy_(total / self.count)


def _data() -> tuple["Tokenizer", Iterator[PairBatch]]:
    """Return a joint tokenizer of the pairs, and their batches, epoch after epoch."""
    from regard.text.tokenizer_training import train_tokenizer

    pairs = training_pairs(_PAIRS)
    tokenizer = train_tokenizer([x for pair in pairs for x in pair], vocab_size=_VOCABULARY)
    sides = [tokenizer.encode_batch(list(side)) for side in zip(*pairs, strict=True)]
    lengths = [np.array([len(ids) for ids in side]) for side in sides]
    every = Batches(lengths, tokens=_BATCH_TOKENS, seed=1)
    chosen = (batch for epoch in count() for batch in every.all(epoch))
    return tokenizer, (_batch(sides, batch, tokenizer.pad_id or 0) for batch in chosen)


def _batch(sides: Sequence[Sequence[list[int]]], examples: Sequence[int], pad_id: int) -> PairBatch:
    padded = [pad([side[i] for i in examples], pad_id) for side in sides]
    ids, counts = (map(torch.from_numpy, arrays) for arrays in zip(*padded, strict=True))
    return PairBatch(*ids, *counts)


@torch.inference_mode()
def _translate(model: Any, tokenizer: "Tokenizer", texts: Sequence[str]) -> list[str]:
    """Translate texts with the peer's own beam search, in batches of similar length."""
    ids = tokenizer.encode_batch(list(texts))
    pad_id = tokenizer.pad_id or 0
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found: dict[int, str] = {}
    for chosen in (order[first : first + 50] for first in range(0, len(order), 50)):
        padded, lengths = map(torch.from_numpy, pad([ids[i] for i in chosen], pad_id))
        mask = within_lengths(padded, lengths).long()
        limits = {"num_beams": _BEAM, "max_new_tokens": 80}
        written = model.generate(input_ids=padded, attention_mask=mask, **limits)
        found |= zip(chosen, map(tokenizer.decode, written.tolist()), strict=True)
    return [found[i] for i in range(len(ids))]


def _lines(name: str) -> Iterator[str]:
    return (line.decode() for line in read_lines(str(find_data(name))))


def report(found: Sequence[Quality]) -> str:
    """Return minutes, steps and BLEU as a Markdown table."""
    rows = [[x.name, f"{x.minutes:g}", f"{x.steps:,}", f"{x.bleu:.2f}"] for x in found]
    return markdown_table(["contender", "minutes", "steps", "BLEU"], rows)
