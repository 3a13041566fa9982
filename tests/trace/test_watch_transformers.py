"""Models of transformers, watched as they are: same outputs, and weights of eager attention.

The other architectures of `tiny_models.py` belong to `make models-matrix`.
"""

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache, StaticCache

import regard
from tests.trace.tiny_models import TINY

QUICK = [
    *("gpt2", "llama", "qwen3", "gemma3", "gpt_neox", "roberta", "modernbert", "bart", "t5"),
    *("dinov2", "beit", "swin"),
]


def eager_weights(tiny, example):
    """Return the attentions that transformers gives, in the order of computation."""
    output = tiny.build("eager")(**example, output_attentions=True)
    if tiny.inputs != "pair":
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(one for pair in pairs for one in pair)]


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", QUICK)
def test_outputs_are_the_same_and_weights_are_those_of_eager_attention(name, attention):
    tiny = TINY[name]
    model, example = tiny.build(attention), tiny.example()
    expected = model(**example)[0]
    with regard.watch(model) as trace:
        found = model(**example)[0]
    assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert trace.unwatched == []
    weights = eager_weights(tiny, example)
    paths = (
        list(trace)[-1:] if name == "swin" else list(trace)
    )  # it returns only the last of a stage
    for path, table in zip(paths, weights, strict=True):
        assert_close(trace[path].all_batches("weights"), table, atol=1e-6, rtol=1e-6)
    kinds = {trace[path].kind for path in trace}
    masked_or_image = tiny.inputs == "image" or "MaskedLM" in tiny.model
    alone = {"self"} if masked_or_image else {"causal self"}
    assert kinds == ({"self", "causal self", "cross"} if tiny.inputs == "pair" else alone)


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gpt_neox", "bart"])
def test_attention_of_regard_in_transformers(name):
    tiny = TINY[name]
    model, example = tiny.build(), tiny.example()
    expected, weights = model(**example)[0], eager_weights(tiny, example)
    model.set_attn_implementation(regard.register_attention())
    assert torch.equal(model(**example)[0], expected)
    with regard.watch() as trace:
        found = model(**example)[0]
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for path, table in zip(trace, weights, strict=True):
        assert_close(trace[path].all_batches("weights"), table, atol=1e-5, rtol=1e-5)
    first = next(iter(trace))
    assert name == "bart" or first == "layers.0"
    with regard.watch(edits=[regard.ablate(first, head=0)]):
        edited = model(**example)[0]
    assert not torch.equal(edited, expected)
    with regard.watch(model) as watched:
        assert torch.equal(model(**example)[0], expected)
    assert len(watched) == len(trace)


@torch.no_grad()
def test_steps_with_a_cache_of_fixed_size_are_joined_without_its_unused_places():
    model, ids = TINY["llama"].build(), torch.randint(0, 40, (2, 8))
    traces = []
    for cache in (DynamicCache(), StaticCache(config=model.config, max_cache_len=16)):
        edits = [regard.forbid("model.layers.0.self_attn", query=6, key=1)]
        with regard.watch(model, edits=edits) as trace:
            model(ids[:, :5], past_key_values=cache)
            for i in (5, 6, 7):
                model(ids[:, i : i + 1], past_key_values=cache)
        traces.append(trace)
    for path in traces[0]:
        grown, fixed = (trace[path].all_batches("weights") for trace in traces)
        assert fixed.shape[-2:] == (8, 8)
        assert_close(fixed, grown)
        assert traces[1][path].kind == "causal self"
