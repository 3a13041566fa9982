"""Training speed compared with other libraries: target tokens per second on batches of Multi30k.

Every contender trains on the same batches in the same order, in its own process and in turns, with
the default allocator settings and with those of `regard train`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.timing import markdown_table
from regard.bench.training_contenders import CONTENDERS, TurnResult, load_batches
from regard.bench.translation import training_texts
from regard.data.batches import Batches, pad
from regard.errors import RegardError
from regard.models.presets import get_preset
from regard.models.transformer import TransformerConfig

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
    """Median speed of a contender; `tuned` ones keep freed memory as `regard train` does.

    Args:
        share: share of the peak rate of matrix products in the same run.
    """

    model: str
    name: str
    tuned: bool
    tokens_per_second: float
    share: float


def measure_training(
    plan: TrainingPlan, log: Callable[[str], None] = lambda text: None
) -> list[TrainingSpeed]:
    """Measure all contenders with all models, in rounds of alternating order."""
    speeds: list[TrainingSpeed] = []
    with tempfile.TemporaryDirectory() as folder:
        batches, n_vocab = write_batches(Path(folder) / "batches.npz", plan)
        for model in plan.models:
            config = cast("TransformerConfig", get_preset(model, n_vocab=n_vocab).config)
            flops = _flops_per_target(config, batches)
            turns = _take_turns(config, batches, plan, lambda text, m=model: log(f"{m}, {text}"))
            peak = max(turn.peak for many in turns.values() for turn in many)
            for (name, tuned), many in turns.items():
                speed = median(turn.targets / turn.seconds for turn in many)
                speeds.append(TrainingSpeed(model, name, tuned, speed, speed * flops / peak))
    return speeds


def _take_turns(
    config: TransformerConfig, batches: Path, plan: TrainingPlan, log: Callable[[str], None]
) -> dict[tuple[str, bool], list[TurnResult]]:
    contenders = [(OURS, True), *((peer, tuned) for tuned in (False, True) for peer in plan.peers)]
    turns: dict[tuple[str, bool], list[TurnResult]] = {contender: [] for contender in contenders}
    settings = {key: value for key, value in config.to_dict().items() if key != "family"}
    request = {"config": settings, "batches": str(batches)}
    request |= {"threads": plan.threads, "cpu_time": plan.cpu_time}
    for number in range(plan.rounds):
        for name, tuned in contenders if number % 2 == 0 else list(reversed(contenders)):
            turn = _run_contender(request | {"name": name, "tuned": tuned})
            turns[name, tuned].append(turn)
            speed = f"{turn.targets / turn.seconds:,.0f} tokens/s"
            log(f"{name}{' tuned' if tuned else ''}: {speed}")
    return turns


def _run_contender(request: dict[str, Any]) -> TurnResult:
    command = [sys.executable, "-m", "regard.bench.training_contenders", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise ContenderError(
            f"{request['name']} cannot be measured ({reason}): install what it needs with pip "
            "install 'regard[bench]', or leave it out."
        )
    return TurnResult(**json.loads(done.stdout.splitlines()[-1]))


def _flops_per_target(config: TransformerConfig, batches: Path) -> float:
    torch.manual_seed(1)
    step, batch = CONTENDERS[OURS](config), load_batches(batches)[0]
    with FlopCounterMode(display=False) as counter:
        step(batch)
    return counter.get_total_flops() / batch.n_targets()


def write_batches(path: Path, plan: TrainingPlan) -> tuple[Path, int]:
    """Write batches of sentences of similar length; return the file and the vocabulary size."""
    from regard.text.tokenizer_training import train_tokenizer

    sources, targets = training_pairs()
    texts = chain.from_iterable(zip(sources, targets, strict=True))
    tokenizer = train_tokenizer(islice(texts, 20_000), kind="bpe", vocab_size=VOCABULARY)
    sides = [tokenizer.encode_batch(texts) for texts in (sources, targets)]
    lengths = [np.array([len(ids) for ids in side]) for side in sides]
    every = list(Batches(lengths, tokens=plan.batch_tokens, seed=1).all(0))
    longest = max(every, key=lambda batch: len(batch) * int(lengths[1][batch].max()))
    arrays: dict[str, np.ndarray] = {}
    for number, batch in enumerate([*every[: plan.n_batches], longest]):
        for name, side in zip(("source", "target"), sides, strict=True):
            ids, counts = pad([side[i] for i in batch], tokenizer.pad_id or 0)
            arrays |= {f"{name}_ids_{number}": ids, f"{name}_lengths_{number}": counts}
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path, len(tokenizer)


def training_pairs(count: int = 10_000) -> tuple[list[str], list[str]]:
    """Return sentences for both sides, from Multi30k or generated."""
    texts = list(training_texts(count))
    half = len(texts) // 2
    return texts[:half], texts[half : 2 * half]


def ratios(speeds: Sequence[TrainingSpeed]) -> list[dict[str, Any]]:
    """Return how many times as fast as each peer we are."""
    ours = {speed.model: speed.tokens_per_second for speed in speeds if speed.name == OURS}
    return [
        {"model": one.model, "peer": one.name, "tuned": one.tuned}
        | {"ratio": ours[one.model] / one.tokens_per_second}
        for one in speeds
        if one.name != OURS
    ]


def report(speeds: Sequence[TrainingSpeed]) -> str:
    """Return speeds, shares of the peak rate and ratios as a Markdown table."""
    by_peer = {(x["model"], x["peer"], x["tuned"]): f"{x['ratio']:.2f}" for x in ratios(speeds)}
    rows = []
    for one in speeds:
        allocator = "keeps freed memory" if one.tuned else "default"
        numbers = [f"{one.tokens_per_second:,.0f}", f"{100 * one.share:.0f} %"]
        ratio = by_peer.get((one.model, one.name, one.tuned), "")
        rows.append([one.model, one.name, allocator, *numbers, ratio])
    heads = ["model", "contender", "allocator", "target tokens/s", "of sgemm peak", "ours / theirs"]
    return markdown_table(heads, rows)
