"""Recurrent layers equal their formulas, torch's own kernels, and never read padding."""

from math import exp, tanh

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard.errors import InputError, UnknownNameError
from regard.layers.recurrent import CELLS, RecurrentLayer, RecurrentState


def sigmoid(x):
    return 1 / (1 + exp(-x))


def layer(cell, *, bidirectional=False, d_input=3, d_hidden=4, seed=0):
    torch.manual_seed(seed)
    made = RecurrentLayer(d_input, d_hidden, cell=cell, bidirectional=bidirectional, path="rnn")
    for weight in made.parameters():  # biases that are not 0 show more
        nn.init.normal_(weight, std=0.5)
    return made


def test_an_lstm_step_by_hand():
    made = RecurrentLayer(1, 1, cell="lstm")
    with torch.no_grad():
        made.weight_ih_l0.copy_(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
        made.weight_hh_l0.copy_(torch.tensor([[0.5], [0.25], [-1.0], [1.0]]))
        made.bias_ih_l0.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
        made.bias_hh_l0.zero_()
    # gates in torch's order: input, forget, candidate, output; x = 0.5, h = -1, c = 2
    entry, forget = sigmoid(0.5 - 0.5 + 0.1), sigmoid(1.0 - 0.25 + 0.2)
    candidate, output = tanh(1.5 + 1.0 + 0.3), sigmoid(2.0 - 1.0 + 0.4)
    cell = forget * 2 + entry * candidate
    state = RecurrentState(torch.tensor([[-1.0]]), torch.tensor([[2.0]]))
    new = made.step(torch.tensor([[0.5]]), state, step=0)
    assert_close(new.cell, torch.tensor([[cell]]))
    assert_close(new.hidden, torch.tensor([[output * tanh(cell)]]))


def test_a_gru_step_by_hand():
    made = RecurrentLayer(1, 1, cell="gru")
    with torch.no_grad():
        made.weight_ih_l0.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
        made.weight_hh_l0.copy_(torch.tensor([[0.5], [0.25], [-1.0]]))
        made.bias_ih_l0.zero_()
        made.bias_hh_l0.copy_(torch.tensor([0.1, 0.2, 0.3]))
    # x = 0.5, h = -1; the candidate's share of the past is reset after the product
    reset, update = sigmoid(0.5 - 0.5 + 0.1), sigmoid(1.0 - 0.25 + 0.2)
    candidate = tanh(1.5 + reset * (1.0 + 0.3))
    new = made.step(torch.tensor([[0.5]]), RecurrentState(torch.tensor([[-1.0]])), step=0)
    assert_close(new.hidden, torch.tensor([[(1 - update) * candidate - update]]))
    assert new.cell is None


@pytest.mark.parametrize("lengths", [None, [5, 2, 3], [1, 5, 5]])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_the_definition_equals_torchs_kernel_on_the_same_weights(cell, bidirectional, lengths):
    made = layer(cell, bidirectional=bidirectional)
    x = torch.randn(3, 5, 3)
    lengths = None if lengths is None else torch.tensor(lengths)
    states, last = made.definition(x, lengths)
    theirs = (nn.LSTM if cell == "lstm" else nn.GRU)(
        3, 4, batch_first=True, bidirectional=bidirectional
    )
    theirs.load_state_dict(made.state_dict())
    for i in range(3):  # the reference: torch's layer on each sequence alone, without padding
        n = 5 if lengths is None else int(lengths[i])
        expected, final = theirs(x[i : i + 1, :n])
        assert_close(states[i, :n], expected[0])
        assert not states[i, n:].any()
        parts = final if cell == "lstm" else (final,)
        found = (last.hidden, last.cell) if cell == "lstm" else (last.hidden,)
        assert_close([part[i] for part in found], [part[:, 0].flatten() for part in parts])
    fast, fast_last = made(x, lengths)
    assert_close(fast, states)
    assert_close(fast_last.hidden, last.hidden)
    assert cell == "gru" or assert_close(fast_last.cell, last.cell) is None


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_the_contents_of_the_padding_change_nothing(cell, bidirectional):
    made = layer(cell, bidirectional=bidirectional)
    x, lengths = torch.randn(2, 6, 3), torch.tensor([4, 2])
    noisy = x.clone()
    noisy[0, 4:], noisy[1, 2:] = 1e6, -1e6
    for read in (made, made.definition):
        (states, last), (others, other) = read(x, lengths), read(noisy, lengths)
        assert torch.equal(states, others)
        assert torch.equal(last.hidden, other.hidden)
        assert cell == "gru" or torch.equal(last.cell, other.cell)


@pytest.mark.parametrize("cell", CELLS)
def test_an_empty_sequence_keeps_the_zero_state(cell):
    made = layer(cell, bidirectional=True)
    states, last = made(torch.randn(2, 3, 3), torch.tensor([0, 3]))
    assert not states[0].any()
    assert not last.hidden[0].any()
    assert states[1].any()


def test_gates_are_recorded_and_changed_in_the_order_of_reading():
    made = layer("lstm", bidirectional=True)
    x = torch.randn(1, 3, 3)
    with regard.watch() as trace:
        states, _ = made(x)
    assert_close(trace.value("rnn.forward.hidden")[0], states[0, :, :4])
    assert_close(trace.value("rnn.backward.hidden")[0].flip(0), states[0, :, 4:])
    gates = ["input_gate", "forget_gate", "output_gate", "candidate", "cell", "hidden"]
    assert {f"rnn.forward.{gate}" for gate in gates} <= set(trace.values)
    with regard.watch(edits=[regard.set_value("rnn.forward.output_gate", 0.0)]):
        closed, _ = made(x)
    assert not closed[..., :4].any()
    assert_close(closed[..., 4:], states[..., 4:])


def test_the_forget_gate_of_an_lstm_starts_open():
    made = RecurrentLayer(2, 3)
    assert torch.equal(made.bias_ih_l0[3:6], torch.ones(3))
    assert made.bias_ih_l0.sum() == 3
    square = made.weight_hh_l0[:3]
    assert_close(square @ square.T, torch.eye(3))


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_the_definition_are_right(cell):
    made = layer(cell, bidirectional=True, d_input=2, d_hidden=2).double()
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 2])
    assert torch.autograd.gradcheck(lambda x: made.definition(x, lengths)[0], x)
    gradients = []
    for read in (made, made.definition):
        made.zero_grad()
        read(x, lengths)[0].sum().backward()
        gradients.append([weight.grad for weight in made.parameters()])
    assert_close(*gradients)


def test_rows_of_a_state_are_kept_in_the_given_order():
    state = RecurrentState(torch.arange(3.0)[:, None], 10 * torch.arange(3.0)[:, None])
    kept = state.keep(torch.tensor([2, 0, 2]))
    assert kept.hidden.flatten().tolist() == [2, 0, 2]
    assert kept.cell.flatten().tolist() == [20, 0, 20]
    assert RecurrentState(state.hidden).keep(torch.tensor([1])).cell is None


@pytest.mark.usefixtures("no_shape_checks")
def test_an_unknown_cell_and_wrong_lengths_are_refused():
    with pytest.raises(UnknownNameError, match=r"cell is 'ltsm'; choose one of lstm, gru"):
        RecurrentLayer(2, 2, cell="ltsm")
    made = layer("gru")
    with pytest.raises(InputError, match="from 2 to 6, but the padded sequences have 5 tokens"):
        made(torch.randn(2, 5, 3), torch.tensor([2, 6]))
    with pytest.raises(InputError, match=r"shape \(3,\), but there are 2 sequences"):
        made(torch.randn(2, 5, 3), torch.tensor([2, 6, 1]))
