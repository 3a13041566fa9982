import pytest
import torch
from torch.testing import assert_close

from regard.bench.attention_kernels import (
    AttentionTimings,
    _torch_cases,
    attention_forms,
    extra_memory,
    report,
)


@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_both_sides_of_a_comparison_compute_the_same(mask):
    calls = _torch_cases(32)["attend", "F.scaled_dot_product_attention", mask]
    assert_close(calls["ours"](), calls["theirs"]())


def test_every_form_has_the_shape_of_the_values():
    inputs = [torch.randn(1, 8, 64, 64) for _ in range(3)]
    for name, form in attention_forms(64).items():
        assert form(*inputs).shape == inputs[2].shape, name
    assert "explicit" not in attention_forms(8192)


def test_extra_memory_is_what_a_call_holds_beyond_inputs_and_result():
    def form(query, key, value):  # 64 MB, a quarter of them in the result
        return torch.ones(4, 2**22).cumsum(0)[0] + 1

    assert 30 < extra_memory(form, [torch.ones(1)] * 3) < 200


def test_ratios_and_tables_by_hand():
    times = {"fused": {"forward": 2.0, "both": 6.0}, "efficient": {"forward": 4.0, "both": 0.5}}
    timings = AttentionTimings(False, {512: times}, {512: {"fused": 1.0, "efficient": 20.4}})
    assert [(x["pass"], x["ratio"]) for x in timings.ratios()] == [("forward", 0.5), ("both", 12.0)]
    text = report(timings)
    for row in ("| efficient | 4.0 (2.00) |", "| efficient | 0.5 (0.083) |", "| efficient | 20 |"):
        assert row in text
