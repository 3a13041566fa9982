"""Names of TransformerLens, and traces as NumPy arrays."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.errors import UnknownNameError
from regard.trace.capture import trace_model
from regard.trace.trace import ALIASES


@pytest.fixture
def trace(make_bundle):
    return trace_model(make_bundle("decoder", settings={"n_layers": 2}), [3, 4, 5, 6])


def test_every_name_is_a_tensor_in_the_layout_of_transformerlens(trace):
    shapes = {alias: trace[alias.replace("N", "1", 1)].shape for alias in ALIASES}
    tables = {"blocks.N.attn.hook_pattern", "blocks.N.attn.hook_attn_scores"}
    heads = {f"blocks.N.attn.hook_{name}" for name in "qkvz"}
    for alias, shape in shapes.items():
        if alias in tables:
            assert shape == (1, 2, 4, 4)
        elif alias in heads:
            assert shape == (1, 4, 2, 4)
        else:
            assert shape == (1, 4, 12 if alias == "blocks.N.mlp.hook_post" else 8)


def test_names_mean_the_same_numbers(trace):
    site = trace["decoder.layers.1.self"]
    assert_close(trace["blocks.1.attn.hook_pattern"][0], site.weights())
    scores = trace["blocks.1.attn.hook_attn_scores"]
    assert_close(scores.softmax(-1), trace["blocks.1.attn.hook_pattern"])
    assert torch.equal(trace["blocks.1.attn.hook_q"][:, :, 1], site.query[:, 1])
    before = trace["blocks.1.hook_resid_pre"]
    assert torch.equal(before, trace["blocks.0.hook_resid_post"])
    total = before + trace["blocks.1.hook_attn_out"] + trace["blocks.1.hook_mlp_out"]
    if torch.allclose(before + trace["blocks.1.hook_attn_out"], trace["blocks.1.hook_resid_mid"]):
        assert_close(total, trace["blocks.1.hook_resid_post"])  # pre-norm
    assert torch.equal(trace["blocks.0.hook_resid_pre"], trace.value("decoder.embedding.output"))


def test_unknown_names_are_refused(trace):
    with pytest.raises(UnknownNameError, match=r"nearest.*blocks\.0\.attn\.hook_pattern"):
        trace["blocks.0.attn.hook_patern"]
    with pytest.raises(UnknownNameError, match="the trace has 2 blocks"):
        trace["blocks.2.attn.hook_pattern"]


def test_the_documentation_lists_every_name():
    text = Path(__file__).parents[2].joinpath("docs", "taps.md").read_text("utf-8")
    assert [alias for alias in ALIASES if f"`{alias}`" not in text] == []


def test_a_trace_as_arrays(trace):
    arrays = trace.to_dict()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    weights, value = arrays["decoder.layers.0.self.weights"], arrays["decoder.layers.0.self.value"]
    assert np.allclose(weights @ value, arrays["decoder.layers.0.self.context"], atol=1e-6)
    assert set(trace.values) <= set(arrays)
