"""Edits of residual streams and feed-forward layers of watched models, against forward hooks."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.errors import InputError
from tests.analysis.test_found_stream import MODELS

CASES = {
    "gpt2": [
        ("decoder.embedding.output", "transformer.drop", "out"),
        ("decoder.layers.0.self.joined", "transformer.h.0.attn.c_proj", "in"),
        ("decoder.layers.1.self.output", "transformer.h.1.attn.resid_dropout", "out"),
        ("decoder.layers.0.feed_forward.activation", "transformer.h.0.mlp.c_proj", "in"),
        ("decoder.layers.0.feed_forward.residual", "transformer.h.0", "out"),
        ("decoder.output", "transformer.ln_f", "out"),
    ],
    "llama": [  # its norms convert the stream to the type that it has: the same tensor
        ("decoder.embedding.output", "model.embed_tokens", "out"),
        ("decoder.layers.0.feed_forward.residual", "model.layers.0", "out"),
    ],
    "bert": [  # post-norm: a station is what the norm returns
        (
            "encoder.layers.0.self.residual",
            "bert.encoder.layer.0.attention.output.LayerNorm",
            "out",
        ),
        ("encoder.layers.1.feed_forward.output", "bert.encoder.layer.1.output.dropout", "out"),
    ],
    "bart": [
        (
            "encoder.layers.1.feed_forward.residual",
            "model.encoder.layers.1.final_layer_norm",
            "out",
        ),
        ("decoder.layers.0.cross.output", "model.decoder.layers.0.encoder_attn.out_proj", "out"),
    ],
}


def change(value):
    return 0.5 * value + 0.3


def hooked(model, path, where, run):
    """Change what a module reads or returns with a hook of torch."""

    def after(_, given, output):
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    module = model.get_submodule(path)
    if where == "out":
        hook = module.register_forward_hook(after)
    else:
        hook = module.register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        return run()
    finally:
        hook.remove()


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "path", "module", "where"),
    [(name, *case) for name, cases in CASES.items() for case in cases],
)
def test_an_edit_of_a_stream_does_what_a_hook_does(name, path, module, where):
    tiny = MODELS[name]
    model, example = tiny.build(), tiny.example()
    for weight in model.parameters():
        weight += 0.2 * torch.randn_like(weight)
    with regard.watch(model, edits=[regard.set_value(path, change)]) as trace:
        trace.output = model(**example, use_cache=False)[0]
    expected = hooked(model, module, where, lambda: model(**example, use_cache=False)[0])
    assert_close(trace.output, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(expected, model(**example)[0], atol=1e-3)
    assert path in trace.values
    assert not model._forward_pre_hooks


@torch.no_grad()
def test_a_position_of_another_run_is_patched_into_torchs_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16)  # positions before the batch
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Linear(8, 8), encoder).eval()
    given, other = torch.randn(2, 5, 3, 8)
    path = "encoder.layers.0.feed_forward.residual"
    with regard.watch(model) as source:
        model(other)
    with regard.watch(model, edits=[regard.patch(path, source, position=2)]):
        patched = model(given)

    def put(_, __, output):
        output[2] = source.values[path][:, 2]

    hook = encoder.layers[0].register_forward_hook(put)
    expected = model(given)
    hook.remove()
    assert_close(patched, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_dropout_and_buffers_are_the_same_after_the_rehearsal():
    model = nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(5), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    )
    given, state = torch.randn(3, 5, 8), {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(0)
    with regard.watch(model):
        expected = model(given)
    after = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    torch.manual_seed(0)
    same = regard.set_value("encoder.layers.0.self.residual", lambda value: value + 0)
    with regard.watch(model, edits=[same]):
        assert_close(model(given), expected)
    assert_close(dict(model.state_dict()), after)


@torch.no_grad()
def test_what_cannot_be_replaced_is_refused():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    edit = regard.set_value("encoder.embedding.output", 0.0)  # what the caller gives
    with pytest.raises(InputError, match="change its input"), regard.watch(model, edits=[edit]):
        model(torch.randn(1, 4, 8))
    gpt2 = MODELS["gpt2"].build()
    edit = regard.set_value("decoder.layers.0.self.residual", 0.0)
    with (
        pytest.raises(InputError, match="steps with a cache"),
        regard.watch(gpt2, edits=[edit]),
    ):
        gpt2.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=2, pad_token_id=0)
    assert not gpt2._forward_pre_hooks
