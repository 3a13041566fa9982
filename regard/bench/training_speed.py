"""Training speed compared with other libraries: target tokens per second on batches of Multi30k.

Every contender trains on the same batches in the same order, in its own process and in turns, with
the default allocator settings and with those of `regard train`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.timing import markdown_table, new_process, take_turns
from regard.bench.training_contenders import CONTENDERS, training_turn
from regard.bench.translation import training_texts
from regard.data.batches import Batches, pad
from regard.errors import RegardError
from regard.models.presets import get_preset
from regard.models.transformer import TransformerConfig
from regard.training.batch import PairBatch

Contender = tuple[str, bool]  # name, and True if it keeps freed memory
OURS = "regard"
PEERS = tuple(name for name in CONTENDERS if name != OURS)
VOCABULARY = 8000
_MODULES = {"transformers": "transformers", "x-transformers": "x_transformers"}


def installed_peers() -> tuple[str, ...]:
    """Return the peers that are installed; `pip install 'regard[bench]'` installs all."""
    return tuple(peer for peer in PEERS if find_spec(_MODULES.get(peer, "torch")) is not None)


class ContenderError(RegardError):
    """A contender's process has failed."""


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of the training benchmark; `n_batches` does not count the one for warming up."""

    models: tuple[str, ...] = ("small", "base")
    rounds: int = 3
    n_batches: int = 4
    batch_tokens: int = 4096
    threads: int = 2
    cpu_time: bool = False
    peers: tuple[str, ...] = PEERS


@dataclass(frozen=True)
class TrainingSpeed:
    """Median speed of a contender."""

    model: str
    name: str
    tuned: bool  # True if it keeps freed memory, as `regard train` does
    tokens_per_second: float
    share: float  # share of the peak rate of matrix products in the same run
    ratio: float  # our speed divided by this one


def measure_training(
    plan: TrainingPlan, log: Callable[[str], None] = lambda text: None
) -> list[TrainingSpeed]:
    """Measure all contenders with all models, ours first, in rounds of alternating order."""
    batches, n_vocab = make_batches(plan)
    models = ((name, get_preset(name, n_vocab=n_vocab).config) for name in plan.models)
    return [x for model in models for x in _measure_model(*model, batches, plan, log)]


def _measure_model(
    model: str,
    config: Any,
    batches: list[PairBatch],
    plan: TrainingPlan,
    log: Callable[[str], None],
) -> Iterator[TrainingSpeed]:
    def run(contender: Contender) -> tuple[float, float]:
        speed, peak = _run_contender(config, batches, plan, contender)
        log(f"{model}, {contender[0]}{' tuned' * contender[1]}: {speed:,.0f} tokens/s")
        return speed, peak

    contenders = [(OURS, True), *((peer, tuned) for tuned in (False, True) for peer in plan.peers)]
    flops = _flops_per_target(config, batches[0])
    turns = take_turns({one: partial(run, one) for one in contenders}, plan.rounds)
    peak = max(peak for many in turns.values() for _, peak in many)
    medians = {one: median(speed for speed, _ in many) for one, many in turns.items()}
    for (name, tuned), speed in medians.items():
        share, ratio = speed * flops / peak, medians[OURS, True] / speed
        yield TrainingSpeed(model, name, tuned, speed, share, ratio)


def _run_contender(
    config: TransformerConfig, batches: list[PairBatch], plan: TrainingPlan, contender: Contender
) -> tuple[float, float]:
    name, tuned = contender
    clock = time.process_time if plan.cpu_time else time.perf_counter
    settings = {"clock": clock, "threads": plan.threads, "tuned": tuned}
    with new_process() as process:
        try:
            return process.submit(training_turn, name, config, batches, **settings).result()
        except Exception as error:
            raise ContenderError(
                f"{name} cannot be measured ({error}): install what it needs with pip install "
                "'regard[bench]', or leave it out."
            ) from error


def _flops_per_target(config: TransformerConfig, batch: PairBatch) -> float:
    torch.manual_seed(1)
    step = CONTENDERS[OURS](config)
    with FlopCounterMode(display=False) as counter:
        step(batch)
    return counter.get_total_flops() / batch.n_targets()


def make_batches(plan: TrainingPlan) -> tuple[list[PairBatch], int]:
    """Return batches of sentences of similar length, the largest last, and the vocabulary size."""
    from regard.text.tokenizer_training import train_tokenizer

    texts = list(training_texts(10_000))
    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=VOCABULARY)
    sides = [tokenizer.encode_batch(side) for side in (texts[::2], texts[1::2])]
    lengths = [np.array([len(ids) for ids in side]) for side in sides]
    every = list(Batches(lengths, tokens=plan.batch_tokens, seed=1).all(0))
    longest = max(every, key=lambda batch: len(batch) * int(lengths[1][batch].max()))
    batches = []
    for batch in [*every[: plan.n_batches], longest]:
        padded = [pad([side[i] for i in batch], tokenizer.pad_id or 0) for side in sides]
        ids, counts = (map(torch.from_numpy, arrays) for arrays in zip(*padded, strict=True))
        batches.append(PairBatch(*ids, *counts))
    return batches, len(tokenizer)


def report(speeds: Sequence[TrainingSpeed]) -> str:
    """Return speeds, shares of the peak rate and ratios as a Markdown table."""
    heads = ["model", "contender", "allocator", "target tokens/s", "of sgemm peak", "ours / theirs"]
    rows = []
    for one in speeds:
        allocator = "keeps freed memory" if one.tuned else "default"
        numbers = [f"{one.tokens_per_second:,.0f}", f"{100 * one.share:.0f} %"]
        ratio = "" if one.name == OURS else f"{one.ratio:.2f}"
        rows.append([one.model, one.name, allocator, *numbers, ratio])
    return markdown_table(heads, rows)
