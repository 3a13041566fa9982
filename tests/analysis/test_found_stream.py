"""Residual streams found in models of transformers and torch, against the same by hooks."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.analysis.flow import sides
from regard.analysis.hidden_units import hidden_units
from regard.errors import InputError
from tests.trace.tiny_models import IMAGE, TEXT, TINY, Tiny

VIT = {**IMAGE, "num_labels": 4}
MODELS = {
    **{
        name: TINY[name]
        for name in ("gpt2", "llama", "gemma3", "gpt_neox", "roberta", "bart", "t5")
    },
    "bert": Tiny("BertForMaskedLM", "BertConfig", TEXT),
    "vit": Tiny("ViTForImageClassification", "ViTConfig", VIT, "image"),
}
BLOCKS = {
    "gpt2": ("transformer.h", "transformer.ln_f", "lm_head"),
    "llama": ("model.layers", "model.norm", "lm_head"),
    "gemma3": ("model.layers", "model.norm", "lm_head"),
    "gpt_neox": ("gpt_neox.layers", "gpt_neox.final_layer_norm", "lm_head"),
    "bert": ("bert.encoder.layer", None, "cls"),
}


@torch.no_grad()
def watched(name):
    tiny = MODELS[name]
    model, example = tiny.build(), tiny.example()
    for weight in model.parameters():
        weight += 0.2 * torch.randn_like(weight)  # biases and norms that matter
    with regard.watch(model) as trace:
        trace.output = model(**example)[0]
    return model, example, trace


@torch.no_grad()
@pytest.mark.parametrize("name", BLOCKS)
def test_the_lens_reads_each_block_with_the_models_own_norm_and_head(name):
    model, example, trace = watched(name)
    blocks, norm, head = (x and model.get_submodule(x) for x in BLOCKS[name])
    outputs = []
    hooks = [
        one.register_forward_hook(
            lambda _, given, out: outputs.append(out[0] if isinstance(out, tuple) else out)
        )
        for one in blocks
    ]
    model(**example)
    for hook in hooks:
        hook.remove()
    found = trace.lens(batch=1, count=3)
    ends = [i for i, path in enumerate(found.stations) if path.endswith("feed_forward.residual")]
    assert len(ends) == len(outputs) == 2
    for index, states in zip(ends, outputs, strict=True):
        assert_close(trace.value(found.stations[index]), states)
        table = head(norm(states) if norm is not None else states)[1].softmax(-1)
        assert_close(found.probabilities[index], table.topk(3).values, atol=1e-5, rtol=0)
    best = trace.output[1].softmax(-1).topk(3)
    assert_close(found.probabilities[-1], best.values, atol=1e-5, rtol=0)
    assert torch.equal(found.ids[-1], best.indices)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_the_parts_of_an_attribution_sum_to_the_logit(name):
    _, _, trace = watched(name)
    for batch in (0, 1):
        classes = trace.output.dim() == 2
        place = 0 if classes else 3
        row = trace.output[batch] if classes else trace.output[batch, place]
        for token in (0, 3):
            found = trace.attribution(token, position=place, batch=batch)
            assert found.logit == pytest.approx(float(row[token]), abs=1e-4)
            total = sum(part.value for part in found.parts)
            assert total + found.bias == pytest.approx(found.logit, abs=1e-4)
        heads = [part for part in found.parts if part.kind == "head"]
        assert len(heads) == 4 * len({part.path for part in heads}) >= 8


@torch.no_grad()
def test_a_head_and_a_hidden_unit_by_hand():
    model, _, trace = watched("gpt2")
    block, norm = model.transformer.h[1], model.transformer.ln_f
    end = trace.value("decoder.layers.1.feed_forward.residual")[0, 3]
    gain = norm.weight / (end.var(correction=0) + norm.eps).sqrt()

    def effect(vector):
        return float(((vector - vector.mean()) * gain) @ model.lm_head.weight[5])

    context = trace["transformer.h.1.attn"].context(2, batch=0)[3]
    written = context @ block.attn.c_proj.weight[8:12]
    parts = trace.attribution(5, position=3, batch=0).parts
    (head,) = [x for x in parts if (x.path, x.head) == ("decoder.layers.1.self.output", 2)]
    assert head.value == pytest.approx(effect(written), abs=1e-5)
    units = hidden_units(trace, "decoder.layers.1.feed_forward", 3)
    best = units.units[0]
    vector = best.activation * block.mlp.c_proj.weight[best.index]
    assert best.norm == pytest.approx(float(vector.norm()), rel=1e-4)
    amounts = {int(entry.name): entry.amount for entry in best.written}
    own = {
        token: float(((vector - vector.mean()) * gain) @ row)
        for token, row in enumerate(model.lm_head.weight)
    }
    assert max(own, key=own.get) in amounts
    assert amounts == pytest.approx({token: own[token] for token in amounts}, abs=1e-4)


def test_the_flow_has_stations_with_sites_and_parallel_layers_have_one():
    _, _, trace = watched("gpt_neox")
    (side,) = sides(trace)
    assert [(one.kind, one.site) for one in side.stations] == [
        ("embedding", None),
        ("feed_forward", "gpt_neox.layers.0.attention"),
        ("feed_forward", "gpt_neox.layers.1.attention"),
        ("output", None),
    ]
    last = side.stations[2]
    assert last.added == ("decoder.layers.1.self.output", "decoder.layers.1.feed_forward.output")
    assert not last.normalized
    bart = {side.name: side for side in sides(watched("bart")[2])}
    kinds = [one.kind for one in bart["decoder"].stations]
    assert kinds[1:4] == ["self", "cross", "feed_forward"]
    assert bart["encoder"].stations[1].normalized  # post-norm
    alias = watched("gpt2")[2]
    post = alias.value("decoder.layers.1.feed_forward.residual")
    assert torch.equal(alias["blocks.1.hook_resid_post"], post)


@torch.no_grad()
def test_a_transformer_of_torch_whose_positions_come_first():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
    )
    model = nn.Sequential(encoder, nn.Linear(8, 5)).eval()
    x = torch.randn(4, 3, 8)  # four positions, three sequences
    with regard.watch(model) as trace:
        trace.output = model(x)
    found = trace.lens(batch=2, count=5)
    assert found.norm == "none"
    expected = model[1](encoder.layers[0](x))[:, 2].softmax(-1).topk(5).values
    assert_close(found.probabilities[2], expected, atol=1e-5, rtol=0)
    split = trace.attribution(1, position=3, batch=2)
    total = sum(part.value for part in split.parts) + split.bias
    assert total == pytest.approx(float(model(x)[3, 2, 1]), abs=1e-5)
    assert {part.kind for part in split.parts} >= {"head", "bias", "norm"}


@torch.no_grad()
def test_what_has_no_stream_says_why():
    class NoSum(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = nn.Linear(8, 5)

        def forward(self, x):
            return self.head(self.attention(x, x, x)[0])

    model = NoSum().eval()
    with regard.watch(model) as trace:
        model(torch.randn(1, 3, 8))
    with pytest.raises(InputError, match="nothing that attention computes is added"):
        trace.lens()
    stages = Tiny(
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        "image",
    )
    model = stages.build()
    with regard.watch(model) as trace:
        model(**stages.example())
    with pytest.raises(InputError, match="residual stream: it has 2 streams of the kind encoder"):
        trace.attribution()
    assert sides(trace) == ()
