import numpy as np
import pytest
import torch

from regard.bench import training_speed as train
from regard.bench.training_contenders import (
    CONTENDERS,
    TurnResult,
    load_batches,
    main,
    take_turn,
)
from regard.bench.training_speed import (
    TrainingPlan,
    TrainingSpeed,
    installed_peers,
    measure_training,
    ratios,
    report,
    write_batches,
)
from regard.models.transformer import TransformerConfig

TINY = TransformerConfig(
    n_vocab=60, d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1
)


@pytest.fixture
def batches(tmp_path):
    generator = np.random.default_rng(0)
    arrays = {}
    for number in range(2):
        for side, length in (("source", 7), ("target", 9)):
            lengths = np.array([length, length - 3])
            ids = generator.integers(3, 60, (2, length))
            ids[1, length - 3 :] = 0
            arrays |= {f"{side}_ids_{number}": ids, f"{side}_lengths_{number}": lengths}
    np.savez(tmp_path / "b.npz", **arrays)
    return tmp_path / "b.npz"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of x-transformers' import
@pytest.mark.parametrize("kind", ["regard", *installed_peers()])
def test_every_contender_trains_on_the_batches(kind, batches):
    torch.manual_seed(0)
    step, batch = CONTENDERS[kind](TINY), load_batches(batches)[0]
    for _ in range(2):
        step(batch)
    ticks = iter(range(1000))
    found = take_turn(kind, TINY, load_batches(batches), lambda: float(next(ticks)))
    assert (found.seconds, found.targets) == (1.0, 8 + 5)  # one clock tick; padding does not count


def test_a_turn_as_requested_by_the_parent(batches):
    config = {name: value for name, value in TINY.to_dict().items() if name != "family"}
    request = {"name": "regard", "tuned": False, "config": config, "batches": str(batches)}
    threads = torch.get_num_threads()
    found = main(request | {"threads": 1, "cpu_time": True})
    torch.set_num_threads(threads)
    assert found.targets == 13
    assert found.peak > 1e6


def test_batches_keep_to_the_token_limit_and_the_largest_is_last(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "VOCABULARY", 200)
    texts = [f"a b c d {n % 7}" for n in range(50)] + ["a b"] * 50
    monkeypatch.setattr(train, "training_pairs", lambda: (texts, texts))
    plan = TrainingPlan(n_batches=2, batch_tokens=64)
    path, n_vocab = write_batches(tmp_path / "b.npz", plan)
    found = load_batches(path)
    assert len(found) == 3
    assert n_vocab <= 200
    assert all(batch.source_ids.numel() <= 64 for batch in found)
    assert found[-1].target_ids.numel() == max(batch.target_ids.numel() for batch in found)


def test_medians_shares_and_ratios_by_hand(monkeypatch):
    paces = {("regard", True): [30, 60, 90], ("nn.Transformer", False): [20, 40, 20]}
    paces["nn.Transformer", True] = [50, 40, 60]
    order = []

    def run(request):
        key = request["name"], request["tuned"]
        order.append(key)
        return TurnResult(1.0, paces[key].pop(0), 1000.0)

    monkeypatch.setattr(train, "_run_contender", run)
    monkeypatch.setattr(train, "_flops_per_target", lambda config, batches: 5.0)
    monkeypatch.setattr(train, "write_batches", lambda path, plan: (path, 100))
    speeds = measure_training(TrainingPlan(("small",), rounds=3, peers=("nn.Transformer",)))
    assert speeds == [
        TrainingSpeed("small", "regard", True, 60, 60 * 5 / 1000),
        TrainingSpeed("small", "nn.Transformer", False, 20, 0.1),
        TrainingSpeed("small", "nn.Transformer", True, 50, 0.25),
    ]
    assert order[:6] == [*order[:3], *reversed(order[:3])]  # back and forth
    assert [one["ratio"] for one in ratios(speeds)] == [3.0, 1.2]
    assert "| small | nn.Transformer | default | 20 | 10 % | 3.00 |" in report(speeds)
