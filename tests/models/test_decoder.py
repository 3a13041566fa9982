"""Decoder-only models: by hand, against torch's own, and by the laws they must keep."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError
from regard.models.decoder import Decoder, DecoderConfig, llama_config
from regard.trace.watch import watch
from tests.layers.torch_weights import copy_layer

SMALL = {"n_vocab": 11, "d_model": 8, "n_heads": 2, "d_ff": 12, "n_layers": 2, "max_positions": 16}
LLAMA = {
    "norm_kind": "rms",
    "activation": "swiglu",
    "positions": "rotary",
    "attention_bias": False,
    "feed_forward_bias": False,
    "tie": False,
    "n_kv_heads": 1,
}
VARIANTS = [
    {},
    LLAMA,
    {"positions": "alibi", "norm": "post", "activation": "gelu"},
    {"positions": "sinusoidal", "d_k": 3, "d_v": 5},
    {"positions": "none", "activation": "relu"},
    {"attention": "efficient"},
]
EXACT = [variant for variant in VARIANTS if "attention" not in variant]
IDS = torch.tensor([[3, 5, 7, 2, 1], [4, 6, 1, 9, 8]])


def make(**changes) -> Decoder:
    torch.manual_seed(0)
    config = DecoderConfig(
        **(SMALL | {"dropout": 0.0, "initialization": "xavier_uniform"} | changes)
    )
    return Decoder(config).eval()


def test_one_layer_one_head_by_hand():
    """Width 2, pre-norm, no positions: (1, -1) or (-1, 1) is what each sub-layer reads."""
    model = make(
        n_vocab=3, d_model=2, n_heads=1, d_ff=1, n_layers=1, positions="none", activation="relu"
    )
    model.tokens.weight.data = torch.tensor([[2.0, 0], [0, 4], [2, 6]])
    layer = model.decoder.layers[0]
    attention, inner = layer.self_attention.inner, layer.feed_forward.inner
    matrices = [
        (attention.to_query, torch.zeros(2, 2)),  # all keys it may see weigh the same
        (attention.to_value, torch.eye(2)),
        (attention.to_output, 3 * torch.eye(2)),
        (inner.to_hidden, torch.tensor([[1.0, -1.0]])),
        (inner.to_output, torch.tensor([[0.0], [5.0]])),
    ]
    for linear, matrix in matrices:
        linear.weight.data = matrix
        linear.bias.data.zero_()
    for norm in (layer.self_attention.norm, layer.feed_forward.norm, model.decoder.norm):
        norm.eps = 1e-12
    with watch() as trace:
        logits = model(torch.tensor([[0, 1]]))
    # Reads (2, 0) → (1, -1) and (0, 4) → (-1, 1). The first sees itself: 3 · (1, -1) on top of
    # (2, 0) is (5, -3). The second sees the mean, (0, 0): (0, 4) stays.
    residual = trace.value("decoder.layers.0.self.residual")
    assert_close(residual, torch.tensor([[[5.0, -3], [0, 4]]]), atol=1e-5, rtol=0)
    # Feed-forward reads (1, -1): 5 relu(2) = 10 on the second number, (5, 7); and (-1, 1): nothing
    residual = trace.value("decoder.layers.0.feed_forward.residual")
    assert_close(residual, torch.tensor([[[5.0, 7], [0, 4]]]), atol=1e-5, rtol=0)
    # The last norm makes (-1, 1) of both; times the rows of the embedding
    assert_close(logits, torch.tensor([[[-2.0, 4, 4]] * 2]), atol=1e-5, rtol=0)


def test_a_gpt_equals_torchs_own_layers_under_a_causal_mask():
    model = make(activation="gelu")
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, activation="gelu", batch_first=True, norm_first=True
    )
    theirs = nn.TransformerEncoder(
        layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False
    ).eval()
    theirs.norm.load_state_dict(model.decoder.norm.state_dict())
    for layer, twin in zip(model.decoder.layers, theirs.layers, strict=True):
        copy_layer(layer, twin)
    x = model.tokens.weight[IDS] + model.embedding.positions.weight[:5]
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    with torch.no_grad():
        expected = theirs(x, mask=future) @ model.tokens.weight.T
    assert_close(model(IDS), expected, atol=1e-5, rtol=1e-5)


def test_a_llama_equals_its_formulas_written_out():
    torch.manual_seed(0)
    model = Decoder(llama_config(**(SMALL | {"n_layers": 1, "n_kv_heads": 1}))).double().eval()
    layer = model.decoder.layers[0]
    attention, inner = layer.self_attention.inner, layer.feed_forward.inner

    def rms(x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight

    def turn(x: torch.Tensor) -> torch.Tensor:  # (token, head, 4): two pairs, by 1 and by 1/100
        angles = torch.arange(5)[:, None, None] * torch.tensor([1.0, 0.01]).double()
        a, b = x[..., :2], x[..., 2:]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1
        )

    x = model.tokens.weight[IDS[0]]
    h = rms(x, layer.self_attention.norm)
    query = turn((h @ attention.to_query.weight.T).view(5, 2, 4))
    key = turn((h @ attention.to_key.weight.T).view(5, 1, 4))
    value = (h @ attention.to_value.weight.T).view(5, 4)
    rows = []
    for i in range(5):
        for head in range(2):  # both query heads read the one key/value head
            scores = torch.stack([query[i, head] @ key[j, 0] / 2 for j in range(i + 1)])
            rows.append(scores.softmax(0) @ value[: i + 1])
    x = x + torch.stack(rows).view(5, 8) @ attention.to_output.weight.T
    h = rms(x, layer.feed_forward.norm)
    gate = h @ inner.to_gate.weight.T
    hidden = gate * torch.sigmoid(gate) * (h @ inner.to_hidden.weight.T)
    x = rms(x + hidden @ inner.to_output.weight.T, model.decoder.norm)
    assert_close(model(IDS[:1])[0], x @ model.projection.weight.T)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_later_token_never_changes_an_earlier_output(variant):
    model = make(**variant)
    whole = model(IDS)
    for position in range(1, 5):
        changed = IDS.clone()
        changed[:, position] = 10
        other = model(changed)
        assert_close(other[:, :position], whole[:, :position])
        assert (other[:, position:] - whole[:, position:]).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_padding_on_the_right_never_changes_a_real_position(variant):
    model = make(**variant)
    assert_close(model(IDS, [5, 3])[1:, :3], model(IDS[1:, :3]))
    assert_close(model(IDS)[1:, :3], model(IDS[1:, :3]))  # nor are lengths needed


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_padding_on_the_left_never_changes_a_real_position(variant):
    model = make(**variant)
    assert_close(model(IDS, [5, 3], side="left")[1:, 2:], model(IDS[1:, 2:]))


@pytest.mark.parametrize("variant", EXACT, ids=str)
@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [3, 2]], ids=str)
def test_writing_step_by_step_equals_reading_at_once(variant, steps):
    model = make(**variant)
    cache, parts, first = model.new_cache(), [], 0
    for step in steps:
        parts.append(model(IDS[:, first : first + step], cache=cache))
        first += step
    assert_close(torch.cat(parts, dim=1), model(IDS))


@pytest.mark.parametrize("variant", EXACT, ids=str)
def test_a_batch_of_prompts_padded_on_the_left_is_continued_step_by_step(variant):
    model = make(**variant)
    cache = model.new_cache()
    lengths = torch.tensor([3, 1])
    logits = [model(IDS[:, :3], lengths, cache=cache, side="left")]
    logits += [model(IDS[:, i : i + 1], lengths + i - 2, cache=cache, side="left") for i in (3, 4)]
    together = torch.cat(logits, dim=1)
    assert_close(together[0], model(IDS[:1])[0])
    assert_close(together[1, 2:], model(IDS[1:, 2:])[0])


def test_attention_that_cannot_cache_keys_is_refused_a_cache():
    model = make(attention="efficient")
    assert make().decoder.cacheable
    assert not model.decoder.cacheable
    with pytest.raises(InputError, match="efficient attention cannot use cached keys"):
        model.new_cache()


def test_padding_on_the_right_cannot_be_continued():
    model = make()
    with pytest.raises(InputError, match="pad on the left"):
        model(IDS, [5, 3], cache=model.new_cache())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_without_positions_the_past_is_a_set(variant):
    # the last token sees all others; their order matters only through positions
    model, order = make(n_layers=1, **variant), torch.tensor([2, 0, 3, 1, 4])
    last, turned = model(IDS)[:, -1], model(IDS[:, order])[:, -1]
    if variant.get("positions") == "none":
        assert_close(turned, last)
    else:
        assert (turned - last).abs().max() > 1e-4


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_reach_every_parameter(variant):
    model = make(**variant | {"max_positions": 5}).double()
    logits = model(IDS)
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("to_key.bias"):  # which changes nothing: a softmax does not see it
            assert parameter.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("variant", [{}, LLAMA], ids=["gpt", "llama"])
def test_gradients_are_those_of_finite_differences(variant):
    small = {"n_vocab": 4, "d_model": 4, "d_ff": 3, "n_layers": 1, "max_positions": 3}
    model = make(**variant, **small).double()
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    ids = torch.tensor([[0, 1, 2]])

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), (ids,))

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


@pytest.mark.long
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("variant", VARIANTS[1:3], ids=str)
def test_it_compiles_to_one_graph_with_the_same_results(variant):
    model = make(n_layers=1, **variant)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(IDS), model(IDS))


def test_the_loss_can_be_computed_in_pieces():
    model = make()
    states = model.states(IDS)
    pieces = [model.project(piece) for piece in states.flatten(0, 1).split(3)]
    assert_close(torch.cat(pieces), model(IDS).flatten(0, 1))


@pytest.mark.parametrize("tie", [True, False])
def test_the_embedding_is_the_projection_if_tied(tie):
    model = make(tie=tie)
    wide = [name for name, value in model.state_dict().items() if value.size(0) == 11]
    assert len(wide) == (1 if tie else 2)
    matrix = model.tokens.weight if tie else model.projection.weight
    assert_close(model(IDS), model.states(IDS) @ matrix.T)


def test_more_tokens_than_learned_positions_are_refused_also_step_by_step():
    model = make()
    cache = model.new_cache()
    model(torch.zeros(1, 16, dtype=torch.long), cache=cache)
    with pytest.raises(InputError, match=r"has 17 tokens, but .* only 16"):
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)


def test_sequences_of_padding_alone_stay_finite():
    assert make()(IDS, [5, 0], side="left").isfinite().all()
