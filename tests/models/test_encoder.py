"""Encoder-only models: by hand, against torch's own, and by the laws they must keep."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError
from regard.models.encoder import Encoder, EncoderConfig
from tests.layers.torch_weights import copy_layer

SMALL = {"n_vocab": 11, "d_model": 8, "n_heads": 2, "d_ff": 12, "n_layers": 2, "max_positions": 16}
VARIANTS = [
    {"n_token_types": 2, "n_classes": 3, "pooler": "tanh"},
    {"n_classes": 3, "pooler": "relu", "positions": "sinusoidal", "norm": "pre"},
    {"n_classes": 2, "pool": "mean", "positions": "none", "embedding_norm": False},
    {"positions": "alibi", "n_kv_heads": 1, "d_k": 3, "d_v": 5},
    {"positions": "rotary", "activation": "swiglu", "norm_kind": "rms", "attention": "efficient"},
]
IDS = torch.tensor([[3, 5, 7, 2, 1], [4, 6, 1, 0, 0]])
LENGTHS = [5, 3]


def make(**changes) -> Encoder:
    torch.manual_seed(0)
    config = EncoderConfig(
        **(SMALL | {"dropout": 0.0, "initialization": "xavier_uniform"} | changes)
    )
    return Encoder(config).eval()


def test_one_layer_one_head_by_hand():
    """Width 2, no positions: a normalized vector of two numbers is (1, -1) or (-1, 1)."""
    model = make(
        n_vocab=3,
        d_model=2,
        n_heads=1,
        d_ff=1,
        n_layers=1,
        n_classes=2,
        positions="none",
        activation="relu",
        pooler="tanh",
        embedding_norm=False,
    )
    one, none = torch.eye(2), torch.zeros(2, 2)
    model.tokens.weight.data = torch.tensor([[2.0, 0], [0, 2], [2, 4]])
    layer = model.encoder.layers[0]
    attention, inner = layer.self_attention.inner, layer.feed_forward.inner
    matrices = [
        (attention.to_query, none),  # all keys weigh the same
        (attention.to_value, one),
        (attention.to_output, one),
        (inner.to_hidden, torch.tensor([[1.0, -1.0]])),
        (inner.to_output, torch.tensor([[0.0], [3.0]])),
        (model.fill.to_hidden, one),
        (model.pooler, torch.tensor([[0.0, 1], [0, 0]])),
        (model.classifier, torch.tensor([[1.0, 0], [0, 1]])),
    ]
    for linear, matrix in matrices:
        linear.weight.data = matrix
        linear.bias.data.zero_()
    model.classifier.bias.data = torch.tensor([0.0, 5.0])
    model.fill.bias.data = torch.tensor([0.0, 0.0, 10.0])
    # Tokens (2, 0), (2, 0), (0, 2), mean (4, 2) / 3: (10, 2) / 3 → (1, -1), twice, and
    # (4, 8) / 3 → (-1, 1). Feed-forward adds (0, 3 relu(2)) to the former: (1, 5) → (-1, 1).
    states = model(torch.tensor([[0, 0, 1]]))
    assert_close(states, torch.tensor([[[-1.0, 1.0]] * 3]))
    # Fill: relu(-1, 1) = (0, 1) → (-1, 1), times the embedding's rows, plus the bias
    assert_close(model.fill_logits(states), torch.tensor([[[-2.0, 2.0, 12.0]] * 3]))
    # Classify: the first state's second number through tanh
    expected = [[torch.tanh(torch.tensor(1.0)).item(), 5.0]]
    assert_close(model.classify(states), torch.tensor(expected))


def test_it_equals_torchs_own_encoder():
    model = make(activation="gelu", n_token_types=2)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(
            8, 2, 12, 0.0, activation="gelu", batch_first=True, layer_norm_eps=1e-12
        ),
        2,
        enable_nested_tensor=False,
    ).eval()
    for layer, twin in zip(model.encoder.layers, theirs.layers, strict=True):
        copy_layer(layer, twin)
    types = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    x = (
        model.tokens.weight[IDS]
        + model.embedding.positions.weight[:5]
        + model.embedding.types.weight[types]
    )
    x = F.layer_norm(x, (8,), eps=1e-12)
    hidden = torch.arange(5) >= torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        expected = theirs(x, src_key_padding_mask=hidden)
    got = model(IDS, LENGTHS, token_types=types)
    assert_close(got[~hidden], expected[~hidden], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_padding_never_changes_a_real_position(variant):
    model = make(**variant)
    alone, padded = model(IDS[1:, :3]), model(IDS, LENGTHS)
    assert_close(padded[1:, :3], alone)
    if model.classifier is not None:
        assert_close(model.classify(padded, LENGTHS)[1:], model.classify(alone))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_without_positions_the_text_is_a_set(variant):
    model, order = make(**variant), torch.tensor([2, 0, 4, 1, 3])
    states, turned = model(IDS[:1]), model(IDS[:1, order])
    if variant.get("positions") == "none":
        assert_close(turned, states[:, order])
    else:
        assert (turned - states[:, order]).abs().max() > 1e-3


def test_every_token_sees_those_before_and_after_it():
    model = make()
    states = model(IDS[:1])
    for position in (0, 4):
        changed = IDS[:1].clone()
        changed[:, position] = 9
        assert ((model(changed) - states).abs().amax(-1) > 1e-4).all()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_reach_every_parameter(variant):
    model = make(**variant).double()
    states = model(IDS, LENGTHS)
    logits = [model.fill_logits(states)]
    if model.classifier is not None:
        logits.append(model.classify(states, LENGTHS))
    sum((one * torch.randn_like(one)).sum() for one in logits).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("to_key.bias"):  # which changes nothing: a softmax does not see it
            assert parameter.grad.abs().max() > 1e-9, name


def test_gradients_are_those_of_finite_differences():
    model = make(n_vocab=4, d_model=4, d_ff=3, n_layers=1, n_classes=2, pooler="tanh").double()
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            states = self.model(ids)
            return self.model.fill_logits(states), self.model.classify(states)

    whole, ids = Whole(), torch.tensor([[0, 1, 2]])

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parameters = {f"model.{name}": t for name, t in zip(names, tensors, strict=True)}
        return torch.func.functional_call(whole, parameters, (ids,))

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


@pytest.mark.long
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("variant", VARIANTS[:1], ids=str)
def test_it_compiles_to_one_graph_with_the_same_results(variant):
    model = make(n_layers=1, **variant)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    lengths = torch.tensor(LENGTHS)
    assert_close(compiled(IDS, lengths), model(IDS, lengths))


def test_the_mean_of_a_text_leaves_padding_out():
    model = make(pool="mean")
    states = torch.tensor([[[1.0] * 8, [3.0] * 8, [100.0] * 8]])
    assert_close(model.pooled(states, [2]), torch.full((1, 8), 2.0))
    assert_close(model.pooled(states[:, :2]), torch.full((1, 8), 2.0))
    assert_close(model.pooled(states, [0]), torch.zeros(1, 8))


def test_filling_uses_the_matrix_that_reads():
    model = make()
    states = model(IDS)
    hidden = model.fill.norm(F.gelu(model.fill.to_hidden(states)))
    assert_close(model.fill_logits(states), hidden @ model.tokens.weight.T + model.fill.bias)
    # also for single states, so that only masked tokens need to be projected
    assert_close(model.fill_logits(states[0, 2]), model.fill_logits(states)[0, 2])


def test_missing_heads_are_refused():
    model = make(fill_head=False)
    states = model(IDS)
    with pytest.raises(InputError, match="built with fill_head=False"):
        model.fill_logits(states)
    with pytest.raises(InputError, match="built without n_classes"):
        model.classify(states)


def test_a_text_longer_than_the_learned_positions_is_refused():
    with pytest.raises(InputError, match="only 16 positions"):
        make()(torch.zeros(1, 17, dtype=torch.long))
