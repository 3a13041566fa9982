"""Training beside the peers: non-padding target tokens per second on batches of Multi30k.

Every contender gets the same batches in the same order, takes its turns one after another in a
process of its own, and appears as it comes and with the allocator's settings that regard makes.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.bench.timing import table
from regard.bench.training_contenders import KINDS, load_batches, ours
from regard.bench.translation import texts_to_learn_from
from regard.data.batches import Batches, pad
from regard.errors import RegardError
from regard.models.transformer import TransformerConfig

OURS = "regard"
PEERS = tuple(kind for kind in KINDS if kind != OURS)
VOCABULARY = 8000


_MODULES = {"transformers": "transformers", "x-transformers": "x_transformers"}


def installed() -> tuple[str, ...]:
    """The peers that can be measured here; `pip install 'regard[bench]'` brings all of them."""
    return tuple(peer for peer in PEERS if find_spec(_MODULES.get(peer, "torch")) is not None)


class ContenderError(RegardError):
    """A contender's process has failed."""


@dataclass(frozen=True)
class Plan:
    """What is measured, and how."""

    models: tuple[str, ...] = ("small", "base")
    rounds: int = 3
    n_batches: int = 4
    """In one turn, beside one to warm up with."""
    batch_tokens: int = 4096
    threads: int = 2
    cpu_time: bool = False
    """Count processor time, for a machine that is busy with other work."""
    peers: tuple[str, ...] = PEERS


@dataclass(frozen=True)
class Figure:
    """One contender with one model: the median of its turns."""

    model: str
    name: str
    tuned: bool
    """Whether its process keeps freed memory, as regard's does."""
    tokens_per_second: float
    share: float
    """Of the peak of matrix products in the same run, by the operations that our model needs."""


def measure(plan: Plan, say: Callable[[str], None] = lambda text: None) -> list[Figure]:
    """All contenders with all models, in rounds that go through them back and forth."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        batches, n_vocab = write_batches(Path(folder) / "batches.npz", plan)
        for model in plan.models:
            config = _config(model, n_vocab)
            flops = _flops(config, load_batches(batches))
            turns = _turns(config, batches, plan, lambda text, m=model: say(f"{m}, {text}"))
            peak = max(one["peak"] for many in turns.values() for one in many)
            for (name, tuned), many in turns.items():
                pace = median(one["targets"] / one["seconds"] for one in many)
                figures.append(Figure(model, name, tuned, pace, pace * flops / peak))
    return figures


def _config(model: str, n_vocab: int) -> TransformerConfig:
    from regard.models.presets import get_preset

    config: Any = get_preset(model, n_vocab=n_vocab).config
    return config


def _turns(
    config: TransformerConfig, batches: Path, plan: Plan, say: Callable[[str], None]
) -> dict[tuple[str, bool], list[Mapping[str, float]]]:
    contenders = [(OURS, True), *((peer, tuned) for tuned in (False, True) for peer in plan.peers)]
    turns: dict[tuple[str, bool], list[Mapping[str, float]]] = {one: [] for one in contenders}
    shown = {k: v for k, v in config.to_dict().items() if k != "family"}
    for number in range(plan.rounds):
        for kind, tuned in contenders if number % 2 == 0 else list(reversed(contenders)):
            given = {"kind": kind, "tuned": tuned, "config": shown, "batches": str(batches)}
            given |= {"threads": plan.threads, "cpu_time": plan.cpu_time}
            found = _ask(given)
            turns[kind, tuned].append(found)
            pace = found["targets"] / found["seconds"]
            say(f"{kind}{' tuned' if tuned else ''}: {pace:,.0f} tokens/s")
    return turns


def _ask(given: Mapping[str, Any]) -> Mapping[str, float]:
    """One turn of a contender, in a fresh process."""
    command = [sys.executable, "-m", "regard.bench.training_contenders", json.dumps(given)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        reason = (found.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ContenderError(
            f"{given['kind']} cannot be measured ({reason}): install what it needs with pip "
            "install 'regard[bench]', or leave it out."
        )
    return json.loads(found.stdout.splitlines()[-1])


def _flops(config: TransformerConfig, batches: Sequence[Any]) -> float:
    """Operations in matrix products for one target, in our model."""
    torch.manual_seed(1)
    step = ours(config)
    with FlopCounterMode(display=False) as counter:
        step(batches[0])
    return counter.get_total_flops() / batches[0].n_targets()


def write_batches(path: Path, plan: Plan) -> tuple[Path, int]:
    """Batches of sentences alike in length, as training has them; where, and the vocabulary."""
    from regard.text.tokenizer_training import train_tokenizer

    sources, targets = _pairs()
    tokenizer = train_tokenizer(
        islice(_both(sources, targets), 20_000), kind="bpe", vocab_size=VOCABULARY
    )
    sides = [tokenizer.encode_batch(texts) for texts in (sources, targets)]
    lengths = [np.array([len(ids) for ids in side]) for side in sides]
    every = list(Batches(lengths, tokens=plan.batch_tokens, seed=1).all(0))
    longest = max(every, key=lambda batch: len(batch) * int(lengths[1][batch].max()))
    chosen = [*every[: plan.n_batches], longest]
    arrays: dict[str, np.ndarray] = {}
    for number, batch in enumerate(chosen):
        for name, side in zip(("source", "target"), sides, strict=True):
            ids, counts = pad([side[i] for i in batch], tokenizer.pad_id or 0)
            arrays |= {f"{name}_ids_{number}": ids, f"{name}_lengths_{number}": counts}
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path, len(tokenizer)


def _both(sources: Sequence[str], targets: Sequence[str]) -> Any:
    return (text for pair in zip(sources, targets, strict=True) for text in pair)


def _pairs(count: int = 10_000) -> tuple[list[str], list[str]]:
    """Captions in English and German, or made-up sentences where there is no Multi30k."""
    texts = list(texts_to_learn_from(count))
    half = len(texts) // 2
    return texts[:half], texts[half : 2 * half]


def against(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """How many times as fast as each peer we are."""
    paces = {one.model: one.tokens_per_second for one in figures if one.name == OURS}
    return [
        {
            "model": one.model,
            "peer": one.name,
            "tuned": one.tuned,
            "ratio": paces[one.model] / one.tokens_per_second,
        }
        for one in figures
        if one.name != OURS
    ]


def report(figures: Sequence[Figure]) -> str:
    """Tokens per second, share of peak and our ratio to each, as Markdown."""
    ratios = {(one["model"], one["peer"], one["tuned"]): one["ratio"] for one in against(figures)}
    rows = []
    for one in figures:
        ratio = ratios.get((one.model, one.name, one.tuned))
        how = "keeps freed memory" if one.tuned else "as it comes"
        rows.append(
            [
                one.model,
                one.name,
                how if one.name != OURS else "as it comes, which keeps freed memory",
                f"{one.tokens_per_second:,.0f}",
                f"{100 * one.share:.0f} %",
                "" if ratio is None else f"{ratio:.2f}",
            ]
        )
    heads = ["model", "contender", "allocator", "target tokens/s", "of sgemm peak", "ours / theirs"]
    return table(heads, rows)
