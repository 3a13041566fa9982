"""The Transformer: by hand, against torch's own, and by the laws it must keep."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InputError
from regard.models.transformer import Transformer, TransformerConfig, shift_right
from regard.trace.watch import watch
from tests.layers.torch_weights import copy_layer

SMALL = {
    "n_vocab": 11,
    "d_model": 8,
    "n_heads": 2,
    "d_ff": 12,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
}
VARIANTS = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "tie": "none"},
    {"positions": "rotary", "activation": "swiglu", "n_kv_heads": 1, "norm_kind": "rms"},
    {"positions": "alibi", "tie": "target", "n_source_vocab": 9, "logits_bias": True},
    {"positions": "none", "d_k": 3, "d_v": 5, "attention_bias": False, "feed_forward_bias": False},
    {"attention": "efficient", "position_layout": "halves", "activation": "silu"},
]
EXACT = [variant for variant in VARIANTS if "attention" not in variant]
SOURCE = torch.tensor([[3, 5, 7, 2, 1], [4, 6, 1, 0, 0]])
TARGET = torch.tensor([[1, 8, 3, 4, 2], [1, 5, 2, 0, 0]])


def make(**changes) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**(SMALL | {"dropout": 0.0} | changes))).eval()


def set_linear(linear: nn.Linear, weight: list[list[float]]) -> None:
    linear.weight.data = torch.tensor(weight)
    linear.bias.data.zero_()


def test_one_layer_one_head_by_hand():
    """Width 2, no positions: a normalized vector of two numbers is (1, -1) or (-1, 1)."""
    small = {"n_vocab": 3, "d_model": 2, "n_heads": 1, "d_ff": 1, "norm_eps": 1e-12}
    model = make(positions="none", n_encoder_layers=1, n_decoder_layers=1, **small)
    # times sqrt(2): token 0 is (2, 0), token 1 is (0, 2), token 2 is (2, 4)
    model.tokens.weight.data = torch.tensor([[2.0, 0], [0, 2], [2, 4]]) / 2**0.5
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    sites = (encoder.self_attention, decoder.self_attention, decoder.cross_attention)
    for site, factor in zip(sites, (1.0, 1.0, 9.0), strict=True):
        attention = site.inner
        set_linear(attention.to_query, [[0.0, 0], [0, 0]])  # all keys it may see weigh the same
        set_linear(attention.to_value, [[factor, 0], [0, factor]])
        set_linear(attention.to_output, [[1.0, 0], [0, 1]])
    for layer, matrix in ((encoder, [[3.0], [0.0]]), (decoder, [[0.0], [3.0]])):
        set_linear(layer.feed_forward.inner.to_hidden, [[1.0, -1.0]])
        set_linear(layer.feed_forward.inner.to_output, matrix)
    with watch() as trace:
        logits = model(torch.tensor([[0, 0, 1]]), torch.tensor([[2, 0, 1]]))

    def seen(path: str, expected: list[list[float]]) -> None:
        assert_close(trace.value(path), torch.tensor([expected]), msg=path)

    left, right = [1.0, -1.0], [-1.0, 1.0]
    # The encoder reads (2, 0), (2, 0), (0, 2), whose mean is (4, 2) / 3.
    #   added and normalized: (10, 2) / 3 → left, left, (4, 8) / 3 → right
    seen("encoder.layers.0.self.output", [[4 / 3, 2 / 3]] * 3)
    seen("encoder.layers.0.self.residual", [left, left, right])
    #   feed-forward adds 3 relu(1 + 1) to the first number of left, and nothing to right
    seen("encoder.layers.0.feed_forward.activation", [[2.0], [2.0], [0.0]])
    seen("encoder.output", [left, left, right])
    # The decoder reads (2, 4), (2, 0) of the target: the first sees itself, the second (2, 2)
    #   (2, 4) + (2, 4) → right;   (2, 0) + (2, 2) = (4, 2) → left
    seen("decoder.layers.0.self.output", [[2.0, 4], [2, 2]])
    seen("decoder.layers.0.self.residual", [right, left])
    #   both see 9 times the mean of the encoder's output, (1, -1) / 3: (3, -3) on top → left
    seen("decoder.layers.0.cross.output", [[3.0, -3], [3, -3]])
    seen("decoder.layers.0.cross.residual", [left, left])
    #   feed-forward adds 3 · 2 to the second number: (1, 5) → right
    seen("decoder.output", [right, right])
    # right, (-1, 1), times the rows of the embedding
    assert_close(logits, torch.tensor([[[-2.0, 2, 2]] * 2]) / 2**0.5)


def torchs_own(model: Transformer) -> nn.Transformer:
    """Torch's own Transformer with the same weights."""
    theirs = nn.Transformer(8, 2, 2, 2, 12, 0.0, batch_first=True, norm_first=True).eval()
    for ours, other in ((model.encoder, theirs.encoder), (model.decoder, theirs.decoder)):
        other.norm.load_state_dict(ours.norm.state_dict())
        for layer, twin in zip(ours.layers, other.layers, strict=True):
            copy_layer(layer, twin)
    return theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's own remark on norm_first
def test_it_equals_torchs_own_transformer():
    model = make(norm="pre", positions="none", scale_embedding=False)
    theirs = torchs_own(model)
    read = shift_right(TARGET)
    hidden = torch.arange(5) >= torch.tensor([5, 3])[:, None]
    embed = model.tokens.weight
    with torch.no_grad():
        states = theirs(
            embed[SOURCE],
            embed[read],
            tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
    assert_close(model(SOURCE, TARGET, [5, 3]), states @ embed.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_later_token_never_changes_an_earlier_output(variant):
    # slip 3: the caller gives padding only, and the decoder still cannot see the future
    model = make(**variant)
    whole = model(SOURCE, TARGET, [5, 3], [5, 3])
    for position in range(1, TARGET.size(1)):
        changed = TARGET.clone()
        changed[:, position] = 9
        other = model(SOURCE, changed, [5, 3], [5, 3])
        assert_close(other[:, :position], whole[:, :position])
        if position < 3:
            assert (other[:, position:] - whole[:, position:]).abs().max() > 1e-4


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_padding_never_changes_a_real_position(variant):
    model = make(**variant)
    alone = model(SOURCE[1:, :3], TARGET[1:, :3])
    padded = model(SOURCE, TARGET, [5, 3], [5, 3])[1:, :2]
    assert_close(padded, alone)
    other = SOURCE.clone()
    other[1, 3:] = 8  # what the padding holds is of no consequence
    assert_close(model(other, TARGET, [5, 3], [5, 3])[1:, :2], alone)
    assert_close(model(SOURCE, TARGET, [5, 3])[1:, :2], alone)  # nor are target lengths needed


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_without_positions_the_source_is_a_set(variant):
    model, order = make(**variant), torch.tensor([2, 0, 4, 1, 3])
    memory, turned = model.encode(SOURCE[:1]), model.encode(SOURCE[:1, order])
    if variant.get("positions") == "none":
        assert_close(turned, memory[:, order])
        assert_close(model(SOURCE[:1, order], TARGET[:1]), model(SOURCE[:1], TARGET[:1]))
    else:
        assert (turned - memory[:, order]).abs().max() > 1e-3


@pytest.mark.parametrize("variant", EXACT, ids=str)
@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [3, 2]], ids=str)
def test_writing_step_by_step_equals_reading_at_once(variant, steps):
    model = make(**variant)
    memory = model.encode(SOURCE, [5, 3])
    cache, parts, first = model.new_cache(), [], 0
    for step in steps:
        read = TARGET[:, first : first + step]
        parts.append(model.decode(read, memory, [5, 3], cache=cache))
        first += step
    assert_close(torch.cat(parts, dim=1), model.decode(TARGET, memory, [5, 3]))


def test_beams_may_move_while_writing():
    model = make()
    memory, cache = model.encode(SOURCE, [5, 3]), model.new_cache()
    model.decode(TARGET[:, :2], memory, [5, 3], cache=cache)
    rows = torch.tensor([1, 1])
    for site in cache.values():
        site.keep(rows)
    got = model.decode(TARGET[rows, 2:3], memory[rows], [3, 3], cache=cache)
    assert_close(got, model.decode(TARGET[rows, :3], memory[rows], [3, 3])[:, 2:])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_reach_every_parameter(variant):
    model = make(**variant).double()
    logits = model(SOURCE, TARGET, [5, 3], [5, 3])
    weights = torch.randn_like(logits)
    (logits * weights).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if name.endswith("to_key.bias"):
            continue  # the same number added to all scores of a query changes nothing
        assert parameter.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_are_those_of_finite_differences(norm):
    model = make(
        n_vocab=4, d_model=4, n_heads=2, d_ff=3, n_encoder_layers=1, n_decoder_layers=1, norm=norm
    ).double()
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    source, target = torch.tensor([[0, 1, 2]]), torch.tensor([[3, 1, 2]])

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        parameters = dict(zip(names, tensors, strict=True))
        return torch.func.functional_call(model, parameters, (source, target))

    assert torch.autograd.gradcheck(run, values, fast_mode=True)


@pytest.mark.long
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[4]], ids=str)
def test_it_compiles_to_one_graph_with_the_same_results(variant):
    model = make(n_encoder_layers=1, n_decoder_layers=1, **variant)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    lengths = torch.tensor([5, 3])
    assert_close(compiled(SOURCE, TARGET, lengths), model(SOURCE, TARGET, lengths))


def test_what_the_decoder_reads_is_the_target_without_its_last_token():
    assert shift_right(TARGET).tolist() == TARGET[:, :-1].tolist()
    model = make()
    assert model(SOURCE, TARGET).shape == (2, 4, 11)
    memory = model.encode(SOURCE)
    by_steps = model.project(model.decode(TARGET[:, :-1], memory))
    assert_close(model(SOURCE, TARGET), by_steps)
    with pytest.raises(InputError, match="needs its start token and at least one token"):
        model(SOURCE, TARGET[:, :1])


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_matrices_are_shared_as_configured_and_saved_once(tie, matrices):
    model = make(tie=tie)
    wide = [name for name, value in model.state_dict().items() if value.size(0) == 11]
    assert len(wide) == matrices
    assert sum(p.numel() for p in model.parameters()) == sum(
        value.numel() for value in model.state_dict().values()
    )


def test_source_and_target_may_have_separate_vocabularies():
    model = make(tie="target", n_source_vocab=20)
    assert model(torch.tensor([[19, 15]]), TARGET[:1]).shape == (1, 4, 11)
    with pytest.raises(InputError, match="the vocabulary has 11 tokens"):
        model.decode(torch.tensor([[19]]), model.encode(SOURCE[:1]))


def test_dropout_only_while_training():
    model = make(dropout=0.5, attention_dropout=0.5)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    assert not torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))


def test_one_token_and_a_source_of_padding_alone():
    model = make()
    assert model(SOURCE[:1, :1], TARGET[:1, :2]).shape == (1, 1, 11)
    logits = model(SOURCE, TARGET, [5, 0])
    assert logits.isfinite().all()
