import pytest
import torch

from regard.bench import training_speed as train
from regard.bench.training_speed import (
    CONTENDERS,
    ContenderError,
    TrainingPlan,
    TrainingSpeed,
    installed_peers,
    make_batches,
    marian_loss,
    marian_model,
    measure_training,
    report,
    training_turn,
)
from regard.models.transformer import TransformerConfig
from regard.training.loader import PairBatch

TINY = TransformerConfig(
    n_vocab=60, d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1
)


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(2):
        source, target = (torch.randint(3, 60, (2, n), generator=generator) for n in (7, 9))
        source[1, 4:] = target[1, 6:] = 0
        found.append(PairBatch(source, target, torch.tensor([7, 4]), torch.tensor([9, 6])))
    return found


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of x-transformers' import
@pytest.mark.parametrize("kind", ["regard", *installed_peers()])
def test_every_contender_trains_on_the_batches(kind, batches):
    torch.manual_seed(0)
    step, batch = CONTENDERS[kind](TINY), batches[0]
    for _ in range(2):
        step(batch)
    ticks = iter(range(1000))
    settings = {"threads": torch.get_num_threads(), "tuned": False}
    speed, _ = training_turn(kind, TINY, batches, clock=lambda: float(next(ticks)), **settings)
    assert speed == 8 + 5  # one clock tick; padding does not count


@pytest.mark.processes
def test_a_turn_in_its_own_process(batches):
    plan = TrainingPlan(threads=1, cpu_time=True)
    speed, peak = train._run_contender(TINY, batches, plan, ("regard", True))
    assert speed > 0
    assert peak > 1e6


@pytest.mark.processes
def test_a_contender_that_fails_is_named(batches):
    with pytest.raises(ContenderError, match="fairseq cannot be measured"):
        train._run_contender(TINY, batches, TrainingPlan(threads=1), ("fairseq", False))


def test_batches_keep_to_the_token_limit_and_the_largest_is_last(monkeypatch):
    monkeypatch.setattr(train, "VOCABULARY", 200)
    texts = [f"a b c d {n % 7}" for n in range(100)] + ["a b"] * 100
    monkeypatch.setattr(train, "training_texts", lambda count: texts)
    found, n_vocab = make_batches(TrainingPlan(n_batches=2, batch_tokens=64))
    assert len(found) == 3
    assert n_vocab <= 200
    assert all(batch.source_ids.numel() <= 64 for batch in found)
    assert found[-1].target_ids.numel() == max(batch.target_ids.numel() for batch in found)


def test_medians_shares_and_ratios_by_hand(monkeypatch):
    paces = {("regard", True): [30, 60, 90], ("nn.Transformer", False): [20, 40, 20]}
    paces["nn.Transformer", True] = [50, 40, 60]
    order = []

    def run(config, batches, plan, contender):
        order.append(contender)
        return paces[contender].pop(0), 1000.0

    monkeypatch.setattr(train, "_run_contender", run)
    monkeypatch.setattr(train, "_flops_per_target", lambda config, batch: 5.0)
    monkeypatch.setattr(train, "make_batches", lambda plan: ([None], 100))
    speeds = measure_training(TrainingPlan(("small",), rounds=3, peers=("nn.Transformer",)))
    assert speeds == [
        TrainingSpeed("small", "regard", True, 60, 60 * 5 / 1000, 1.0),
        TrainingSpeed("small", "nn.Transformer", False, 20, 0.1, 3.0),
        TrainingSpeed("small", "nn.Transformer", True, 50, 0.25, 1.2),
    ]
    assert order[:6] == [*order[:3], *reversed(order[:3])]  # back and forth
    assert "| small | nn.Transformer | default | 20 | 10 % | 3.00 |" in report(speeds)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_loss_of_the_peer_with_smoothing_by_hand(batches):
    model = marian_model(TINY, start=1, end=2).eval()
    batch = batches[0]
    plain, smooth = marian_loss(model, batch), marian_loss(model, batch, smoothing=0.5)
    logits = model(
        input_ids=batch.source_ids,
        attention_mask=(batch.source_ids > 0).long(),
        decoder_input_ids=batch.target_ids[:, :-1],
    ).logits.log_softmax(-1)
    kept = [logits[0], logits[1, :5]]  # targets of 8 and 5 tokens
    spread = -torch.cat(kept).mean()  # half of the target is spread over the vocabulary
    torch.testing.assert_close(smooth, 0.5 * plain + 0.5 * spread)
