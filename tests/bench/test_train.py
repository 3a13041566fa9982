"""The training benchmark: everybody learns from the same batches, and numbers are what they say."""

import json

import numpy as np
import pytest
import torch

from regard.bench import training_speed as train
from regard.bench.training_contenders import KINDS, load_batches, main, take_turn
from regard.bench.training_speed import (
    Figure,
    Plan,
    against,
    installed,
    measure,
    report,
    write_batches,
)
from regard.models.transformer import TransformerConfig

TINY = TransformerConfig(
    n_vocab=60, d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1
)


@pytest.fixture
def batches(tmp_path):
    dice = np.random.default_rng(0)
    arrays = {}
    for number in range(2):
        for side, length in (("source", 7), ("target", 9)):
            lengths = np.array([length, length - 3])
            ids = dice.integers(3, 60, (2, length))
            ids[1, length - 3 :] = 0
            arrays |= {f"{side}_ids_{number}": ids, f"{side}_lengths_{number}": lengths}
    np.savez(tmp_path / "b.npz", **arrays)
    return tmp_path / "b.npz"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of x-transformers' import
@pytest.mark.parametrize("kind", ["regard", *installed()])
def test_every_contender_learns_from_the_batches(kind, batches):
    torch.manual_seed(0)
    step, batch = KINDS[kind](TINY), load_batches(batches)[0]
    for _ in range(2):
        step(batch)
    ticks = iter(range(1000))
    found = take_turn(kind, TINY, load_batches(batches), lambda: float(next(ticks)))
    assert (found.seconds, found.targets) == (1.0, 8 + 5)  # one clock tick; padding is no target


def test_a_turn_answers_in_json(batches):
    config = {name: value for name, value in TINY.to_dict().items() if name != "family"}
    given = {"kind": "regard", "tuned": False, "config": config, "batches": str(batches)}
    threads = torch.get_num_threads()
    found = main(given | {"threads": 1, "cpu_time": True})
    torch.set_num_threads(threads)
    assert json.loads(json.dumps(found))["targets"] == 13
    assert found["peak"] > 1e6


def test_batches_are_as_full_as_they_may_be_and_the_largest_warms_up(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "VOCABULARY", 200)
    texts = [f"a b c d {n % 7}" for n in range(50)] + ["a b"] * 50
    monkeypatch.setattr(train, "_pairs", lambda: (texts, texts))
    plan = Plan(n_batches=2, batch_tokens=64)
    path, n_vocab = write_batches(tmp_path / "b.npz", plan)
    found = load_batches(path)
    assert len(found) == 3
    assert n_vocab <= 200
    assert all(batch.source_ids.numel() <= 64 for batch in found)
    assert found[-1].target_ids.numel() == max(batch.target_ids.numel() for batch in found)


def test_medians_shares_and_ratios_by_hand(monkeypatch, tmp_path):
    paces = {("regard", True): [30, 60, 90], ("nn.Transformer", False): [20, 40, 20]}
    paces["nn.Transformer", True] = [50, 40, 60]
    asked = []

    def ask(given):
        key = given["kind"], given["tuned"]
        asked.append(key)
        return {"targets": paces[key].pop(0), "seconds": 1.0, "peak": 1000.0}

    monkeypatch.setattr(train, "_ask", ask)
    monkeypatch.setattr(train, "_flops", lambda config, batches: 5.0)
    monkeypatch.setattr(train, "write_batches", lambda path, plan: (path, 100))
    monkeypatch.setattr(train, "load_batches", lambda path: [])
    figures = measure(Plan(("small",), rounds=3, peers=("nn.Transformer",)))
    assert figures == [
        Figure("small", "regard", True, 60, 60 * 5 / 1000),
        Figure("small", "nn.Transformer", False, 20, 0.1),
        Figure("small", "nn.Transformer", True, 50, 0.25),
    ]
    assert asked[:6] == [*asked[:3], *reversed(asked[:3])]  # back and forth
    assert [one["ratio"] for one in against(figures)] == [3.0, 1.2]
    assert "| small | nn.Transformer | as it comes | 20 | 10 % | 3.00 |" in report(figures)
