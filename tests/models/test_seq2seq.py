"""Recurrent sequence-to-sequence models: by hand, against torch's cells, by laws, at corners."""

from math import exp, tanh

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.errors import InputError, UnknownNameError
from regard.models.config import build, config_from_dict
from regard.models.seq2seq import ATTENTIONS, Seq2SeqConfig
from tests.models.small_seq2seq import LENGTHS, SITE, SOURCE, TARGET, VARIANTS, seq2seq, variant


@pytest.fixture(params=VARIANTS, ids="-".join)
def model(request):
    return variant(*request.param)


def test_shapes_and_every_parameter_gets_a_gradient(model):
    memory = model.encode(SOURCE, LENGTHS)
    assert memory.states.shape == (3, 5, 6)
    assert len(memory.last) == 2
    logits = model(SOURCE, TARGET, LENGTHS)
    assert logits.shape == (3, 3, 9)
    logits.square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


def test_all_widths_may_differ():
    widths = {"d_embedding": 3, "d_encoder": 5, "d_attention": 7}
    model = seq2seq(n_source_vocab=11, input_feeding=True, tie="target", **widths)
    assert model(SOURCE + 2, TARGET, LENGTHS).shape == (3, 3, 9)
    memory = model.encode(SOURCE)
    assert memory.states.shape == (3, 5, 10)
    assert model.decode(TARGET, memory).shape == (3, 4, 3)


def test_one_step_of_a_minimal_model_by_hand():
    model = seq2seq(n_vocab=2, d_model=1, n_layers=1, cell="gru", bidirectional=False, tie="none")
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.source_tokens.weight.copy_(torch.tensor([[1.0], [2.0]]))
        model.tokens.weight.copy_(torch.tensor([[0.5], [0.0]]))
        model.encoder[0].weight_ih_l0[2] = 1.0  # candidate = tanh(x)
        similarity = model.alignment.similarity
        similarity.to_query.weight.fill_(1.0)
        similarity.to_key.weight.fill_(1.0)
        similarity.to_score.weight.fill_(10.0)
        model.decoder[0].weight_ih_l0[2] = torch.tensor([1.0, 2.0])  # embedding, context
        model.to_output.weight.copy_(torch.tensor([[3.0, 4.0]]))  # state, context
        model.projection.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    # gates are sigmoid(0) = 1/2, so each state is half the candidate plus half the last state
    first = tanh(1.0) / 2
    second = tanh(2.0) / 2 + first / 2
    scores = [10 * tanh(second + first), 10 * tanh(second + second)]  # the query is the last state
    weight = 1 / (1 + exp(scores[0] - scores[1]))
    context = (1 - weight) * first + weight * second
    state = tanh(0.5 + 2 * context) / 2 + second / 2
    output = tanh(3 * state + 4 * context)
    with regard.watch() as trace:
        logits = model(torch.tensor([[0, 1]]), torch.tensor([[0, 1]]))
    site = trace[SITE]
    assert_close(site.scores(head=0), torch.tensor([scores]))
    assert_close(site.weights(head=0), torch.tensor([[1 - weight, weight]]))
    assert_close(trace.value("decoder.layers.0.hidden"), torch.tensor([[[state]]]))
    assert_close(logits, torch.tensor([[[output, -output]]]))


def reference(model, source_ids, target_ids):
    """Logits and weights of one sentence by torch's own layers and cells, step by step."""
    config = model.config
    lstm = config.cell == "lstm"
    x, last = model.source_tokens(source_ids[None]), []
    for layer in model.encoder:
        torch_layer = (nn.LSTM if lstm else nn.GRU)(
            layer.d_input, layer.d_hidden, batch_first=True, bidirectional=config.bidirectional
        )
        torch_layer.load_state_dict(layer.state_dict())
        x, final = torch_layer(x)
        parts = final if lstm else (final,)
        last.append([torch.cat(list(part), dim=-1) for part in parts])
    keys = x[0]
    states = []
    for i, parts in enumerate(last):
        if model.bridges is not None:
            bridge = model.bridges[i]
            parts = [torch.tanh(bridge.to_hidden(parts[0]))] + [
                bridge.to_cell(c) for c in parts[1:]
            ]
        states.append(parts)
    fed = torch.zeros(1, config.d_model)
    logits, patterns = [], []
    for token in target_ids[:-1]:
        query = states[-1][0][0]
        similarity = None if model.alignment is None else model.alignment.similarity
        if config.attention == "none":
            context = last[-1][0]
        else:
            if config.attention == "dot":
                scores = keys @ query
            elif config.attention == "general":
                scores = keys @ (query @ similarity.weight)
            else:
                hidden = torch.tanh(similarity.to_query(query) + similarity.to_key(keys))
                scores = similarity.to_score(hidden)[:, 0]
            patterns.append(scores.softmax(0))
            context = (patterns[-1] @ keys)[None]
        x = torch.cat([model.tokens.weight[token][None], context], dim=-1)
        x = torch.cat([x, fed], dim=-1) if config.input_feeding else x
        for i, layer in enumerate(model.decoder):
            cell = (nn.LSTMCell if lstm else nn.GRUCell)(x.size(1), config.d_model)
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            cell.load_state_dict({n: getattr(layer, f"{n}_l0") for n in names})
            states[i] = list(cell(x, tuple(states[i]))) if lstm else [cell(x, states[i][0])]
            x = states[i][0]
        fed = torch.tanh(model.to_output(torch.cat([x, context], dim=-1)))
        logits.append(model.projection(fed)[0])
    return torch.stack(logits), torch.stack(patterns) if patterns else None


def test_logits_and_recorded_weights_equal_those_of_torchs_own_cells(model):
    with regard.watch() as trace:
        watched = model(SOURCE, TARGET, LENGTHS)
    logits = model(SOURCE, TARGET, LENGTHS)
    for i, n in enumerate(LENGTHS.tolist()):  # the reference reads each sentence without padding
        expected, pattern = reference(model, SOURCE[i, :n], TARGET[i])
        assert_close(logits[i], expected)
        assert_close(watched[i], expected)
        if pattern is None:
            assert list(trace) == []
        else:
            found = trace[SITE].weights(head=0, batch=i)
            assert_close(found[:, :n], pattern)
            assert not found[:, n:].any()


def test_padding_of_source_and_target_changes_no_real_position(model):
    expected = model(SOURCE, TARGET, LENGTHS)
    wider = torch.full((3, 9), 7)
    wider[:, :5] = SOURCE
    wider[torch.arange(9) >= LENGTHS[:, None]] = 7  # the contents of the padding do not matter
    longer = torch.cat([TARGET, torch.full((3, 2), 8)], dim=1)
    padded = model(wider, longer, LENGTHS.tolist(), [4, 3, 4])
    assert_close(padded[:, :3], expected)
    alone = model(SOURCE[1:2, :3], TARGET[1:2])
    assert_close(alone, expected[1:2])


def test_a_later_token_changes_no_earlier_logits(model):
    changed = TARGET.clone()
    changed[:, 2] = (changed[:, 2] + 1) % 9
    before, after = model(SOURCE, TARGET, LENGTHS), model(SOURCE, changed, LENGTHS)
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2], after[:, 2])


@pytest.mark.parametrize(("tie", "n_matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_tied_matrices_are_one(tie, n_matrices):
    model = seq2seq(tie=tie)
    wide = [weight for weight in model.parameters() if weight.shape == (9, 6)]
    assert len(wide) == n_matrices
    states = model.states(SOURCE, TARGET, LENGTHS)
    matrix = model.projection.weight if tie == "none" else model.tokens.weight
    assert_close(model(SOURCE, TARGET, LENGTHS), states @ matrix.T)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradcheck_of_a_tiny_model_in_float64(attention):
    model = seq2seq(n_vocab=3, d_model=2, n_layers=1, attention=attention, input_feeding=True)
    model = model.double()
    names = [name for name, _ in model.named_parameters()]
    source, target = torch.tensor([[0, 2], [1, 0]]), torch.tensor([[0, 1, 2], [2, 1, 0]])

    def logits(*weights):
        given = (source, target, torch.tensor([2, 1]))
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), given)

    weights = [weight.detach().requires_grad_() for weight in model.parameters()]
    assert torch.autograd.gradcheck(logits, weights, fast_mode=True)


@pytest.mark.long
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("changes", [{"cell": "gru", "attention": "dot"}])
def test_a_compiled_model_is_one_graph_with_the_same_result(changes):
    model = seq2seq(n_layers=1, input_feeding=True, **changes)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(SOURCE, TARGET, LENGTHS), model(SOURCE, TARGET, LENGTHS))


def test_weights_and_config_survive_a_round_trip_bit_by_bit():
    model = seq2seq(input_feeding=True)
    again = build(config_from_dict(model.config.to_dict()))
    again.load_state_dict(model.state_dict())
    found = again.eval()(SOURCE, TARGET, LENGTHS)
    assert torch.equal(found, model(SOURCE, TARGET, LENGTHS))


def test_short_targets_wrong_lengths_and_unknown_ids_are_refused():
    model = seq2seq()
    with pytest.raises(InputError, match="needs its start token and at least one token"):
        model(SOURCE, TARGET[:, :1])
    with pytest.raises(InputError, match="lengths range from 1 to 6"):
        model(SOURCE, TARGET, [6, 3, 1])
    with pytest.raises(InputError, match="vocabulary has 9 tokens"):
        model(SOURCE + 5, TARGET)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"cell": "rnn"}, UnknownNameError, "cell is 'rnn'"),
        ({"attention": "cosine"}, UnknownNameError, "choose one of additive, dot, general, none"),
        ({"attention": "dot", "d_encoder": 5}, InputError, "states are 10 wide .* decoder's 8"),
        ({"d_model": 7}, InputError, "two directions cannot share evenly"),
        ({"tie": "all", "n_source_vocab": 5}, InputError, "cannot share one embedding"),
        ({"n_layers": 0}, InputError, "n_layers is 0"),
        ({"dropout": -0.1}, InputError, "dropout is -0.1"),
    ],
)
def test_impossible_configurations_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        Seq2SeqConfig(**({"n_vocab": 9, "d_model": 8} | changes))
