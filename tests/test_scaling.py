"""The tables of docs/scaling.md are what the configurations give."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("scaling")


def test_the_tables_of_the_document_are_those_of_the_configurations(scaling):
    document = (ROOT / "docs/scaling.md").read_text("utf-8")
    rows = [*scaling.memory_rows(), *scaling.traffic_rows(8), *scaling.traffic_rows(64)]
    assert len(rows) == 9
    for row in rows:
        assert f"| {' | '.join(row)} |" in document


def test_memory_and_traffic_by_hand(scaling):
    found = scaling.Weights(1_000)
    assert found.whole == 16_000  # 4 bytes each of weight, gradient and two moments
    assert found.all_reduce(2) == 4_000  # each of two sends half, gets a sum, sends half
    assert found.shard_traffic(4) == 9_000
    assert found.all_reduce(1) == found.shard_traffic(1) == 0


def test_what_a_token_keeps_grows_with_the_layers_and_shrinks_in_half_precision(scaling):
    from regard.models.transformer import TransformerConfig

    config = TransformerConfig(
        n_vocab=50, d_model=16, n_heads=2, d_ff=32, n_encoder_layers=3, n_decoder_layers=3
    )
    shallow, _ = scaling.with_layers(config, 1)
    deep = scaling.bytes_per_token(config, narrow=False)
    assert deep > 2 * scaling.bytes_per_token(shallow, narrow=False)
    assert scaling.bytes_per_token(config, narrow=True) < deep
    # the direct count of the whole model, which the two shallow ones foretell
    kept = [scaling.kept_bytes(config, length, narrow=False) for length in (65, 129)]
    assert deep == pytest.approx((kept[1] - kept[0]) / 64, rel=0.01)
