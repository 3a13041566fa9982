"""Recurrent layers (LSTM and GRU), and the attention of a recurrent decoder to the source.

The definition computes each step by its formulas, and every gate is tapped. When nothing is
recorded, torch's kernel reads the sequence and skips its padding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.attention.attend import attend
from regard.attention.mask import Mask, length_mask
from regard.attention.similarity import Additive, Similarity, make_similarity
from regard.errors import InputError, check_choice
from regard.tap import listening, tap


class EncodedSource(NamedTuple):
    """Keys and values of the source, and the similarity of queries to these keys."""

    key: Tensor
    value: Tensor
    similarity: Similarity

    def keep(self, rows: Tensor) -> "EncodedSource":
        """Return the same for these rows of the batch, in this order."""
        return EncodedSource(self.key[rows], self.value[rows], self.similarity)


class RNNAttention(nn.Module):
    """Attention of a decoder's state to an encoder's states: one site, one head.

    `similarity` is "additive" (Bahdanau et al. 2015), with a hidden layer of width `d_hidden`,
    "dot" or "general" (Luong et al. 2015). The encoder's states are both keys and values.
    """

    def __init__(
        self, similarity: str, *, d_query: int, d_key: int, d_hidden: int, path: str = "cross"
    ) -> None:
        super().__init__()
        self.similarity = make_similarity(similarity, d_q=d_query, d_k=d_key, d_hidden=d_hidden)
        self.path = path

    def read(self, states: Float[Tensor, "batch source d_key"]) -> EncodedSource:
        """Prepare the encoder's states for all steps of the decoder.

        Without listeners, additive attention projects the keys here, once.
        """
        keys = states.unsqueeze(1)
        if isinstance(self.similarity, Additive) and not listening():
            return EncodedSource(self.similarity.to_key(keys), keys, ProjectedKeys(self.similarity))
        return EncodedSource(keys, keys, self.similarity)

    def forward(
        self,
        query: Float[Tensor, "batch d_query"],
        read: EncodedSource,
        *,
        allowed: Mask | None = None,
        step: int = 0,
    ) -> Float[Tensor, "batch d_key"]:
        """Return the context of this step."""
        context = attend(
            query[:, None, None],
            read.key,
            read.value,
            allowed=allowed,
            similarity=read.similarity,
            site=f"{self.path}@{step}",
        )
        return context[:, 0, 0]


class ProjectedKeys(Similarity):
    """Additive similarity to keys that are already projected: v · tanh(W_q q + k)."""

    name = "additive to projected keys"

    def __init__(self, additive: Additive) -> None:
        self.additive = additive

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.additive.compare_projected(query, key)

    def check(self, d_q: int, d_k: int) -> None:
        """Accept the widths, which RNNAttention has chosen."""


Gates: TypeAlias = Float[Tensor, "batch d_gates"]
Sequences: TypeAlias = Float[Tensor, "batch token d_input"]
States: TypeAlias = Float[Tensor, "batch token d_output"]


@dataclass(frozen=True)
class RecurrentState:
    """The state of a recurrent layer between two steps."""

    hidden: Float[Tensor, "batch d_hidden"]
    cell: Float[Tensor, "batch d_hidden"] | None = None  # the cell of an LSTM; a GRU has none

    def keep(self, rows: Int[Tensor, "rows"]) -> "RecurrentState":
        """Return the state of these rows of the batch, in this order."""
        return self.map(lambda x: x[rows])

    def map(self, function: Callable[..., Tensor], *others: "RecurrentState") -> "RecurrentState":
        """Apply `function` to every part of this state and of the others."""
        hidden = function(self.hidden, *(other.hidden for other in others))
        if self.cell is None:
            return RecurrentState(hidden)
        return RecurrentState(hidden, function(self.cell, *(other.cell for other in others)))


def lstm_step(inputs: Gates, memory: Gates, state: RecurrentState, *, site: str) -> RecurrentState:
    """Return the next state of an LSTM (Hochreiter & Schmidhuber 1997, with forget gate).

    `inputs` and `memory` are the gates' sums of the input and of the previous hidden state.
    """
    entry, forget, candidate, output = (inputs + memory).chunk(4, dim=-1)
    entry = _tap_step(site, "input_gate", entry.sigmoid())
    forget = _tap_step(site, "forget_gate", forget.sigmoid())
    candidate = _tap_step(site, "candidate", candidate.tanh())
    output = _tap_step(site, "output_gate", output.sigmoid())
    assert state.cell is not None  # an LSTM has one
    cell = _tap_step(site, "cell", forget * state.cell + entry * candidate)
    return RecurrentState(_tap_step(site, "hidden", output * cell.tanh()), cell)


def gru_step(inputs: Gates, memory: Gates, state: RecurrentState, *, site: str) -> RecurrentState:
    """Return the next state of a GRU (Cho et al. 2014, reset after the product)."""
    reset, update, candidate = inputs.chunk(3, dim=-1)
    reset_memory, update_memory, candidate_memory = memory.chunk(3, dim=-1)
    reset = _tap_step(site, "reset_gate", (reset + reset_memory).sigmoid())
    update = _tap_step(site, "update_gate", (update + update_memory).sigmoid())
    candidate = _tap_step(site, "candidate", (candidate + reset * candidate_memory).tanh())
    return RecurrentState(
        _tap_step(site, "hidden", (1 - update) * candidate + update * state.hidden)
    )


_STEPS = {"lstm": (4, lstm_step), "gru": (3, gru_step)}
"""The number of gates (including the candidate) and the step function of each cell."""
CELLS = tuple(_STEPS)
_ENDINGS = ("l0", "l0_reverse")
_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RecurrentLayer(nn.Module):
    """One LSTM or GRU layer, read forwards or in both directions.

    Padding is skipped: it does not change a sequence's state, and its outputs are 0. Names and
    layout of the weights are those of torch's layers.

    Args:
        d_hidden: width of the state, in each direction.
        bidirectional: also read from the end to the start, with a second set of weights.
        path: the layer's name in traces; the directions are `path.forward` and `path.backward`,
            and steps are counted in the order of reading.
    """

    def __init__(
        self,
        d_input: int,
        d_hidden: int,
        *,
        cell: str = "lstm",
        bidirectional: bool = False,
        path: str = "recurrent",
    ) -> None:
        super().__init__()
        check_choice("cell", cell, _STEPS)
        n_gates, self._step = _STEPS[cell]
        self.d_input, self.d_hidden, self.cell = d_input, d_hidden, cell
        self.n_directions, self.path = 2 if bidirectional else 1, path
        n = n_gates * d_hidden
        for ending in _ENDINGS[: self.n_directions]:
            for part, shape in zip(_PARTS, ((n, d_input), (n, d_hidden), (n,), (n,)), strict=True):
                self.register_parameter(f"{part}_{ending}", nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize: Xavier for inputs, orthogonal for states, an LSTM's forget bias at 1."""
        for direction in range(self.n_directions):
            input_weight, hidden_weight, input_bias, hidden_bias = self.weights(direction)
            for gate in input_weight.split(self.d_hidden):
                nn.init.xavier_uniform_(gate)
            for gate in hidden_weight.split(self.d_hidden):
                nn.init.orthogonal_(gate)
            nn.init.zeros_(input_bias)
            nn.init.zeros_(hidden_bias)
            if self.cell == "lstm":
                input_bias.chunk(4)[1].fill_(1.0)

    def weights(self, direction: int = 0) -> list[Tensor]:
        """Return weights of inputs and states, and their biases, forward (0) or backward (1)."""
        return [getattr(self, f"{part}_{_ENDINGS[direction]}") for part in _PARTS]

    def forward(
        self, x: Sequences, lengths: Int[Tensor, "batch"] | None = None
    ) -> tuple[States, RecurrentState]:
        """Return the hidden state after each token, and the state after the last one.

        Both directions are concatenated; the backward one's last token is the first.
        """
        check_lengths(lengths, x)
        x = tap(f"{self.path}.input", x, "token d_input")
        if listening() or torch.compiler.is_compiling():
            states, last = self.definition(x, lengths)
        else:
            states, last = self._fast(x, lengths)
        return tap(f"{self.path}.output", states, "token d_output"), last

    def definition(
        self, x: Sequences, lengths: Int[Tensor, "batch"] | None = None
    ) -> tuple[States, RecurrentState]:
        """Compute the same step by step, as in the formulas."""
        columns = torch.arange(x.size(1), device=x.device)
        real = None if lengths is None else length_mask(lengths, columns, x.size(1))
        states, last = self._read(x, real, 0)
        if self.n_directions == 1:
            return states, last
        back, first = self._read(x.flip(1), None if real is None else real.flip(1), 1)
        both = last.map(lambda *directions: torch.cat(directions, dim=-1), first)
        return torch.cat([states, back.flip(1)], dim=-1), both

    def tap_first_state(self, state: RecurrentState) -> RecurrentState:
        """Tap the state before the first step."""
        hidden = tap(f"{self.path}.first_hidden", state.hidden, "d_hidden")
        if state.cell is None:
            return RecurrentState(hidden)
        return RecurrentState(hidden, tap(f"{self.path}.first_cell", state.cell, "d_hidden"))

    def step(
        self, x: Float[Tensor, "batch d_input"], state: RecurrentState, *, step: int
    ) -> RecurrentState:
        """Return the state after reading `x` as input number `step`, in the forward direction."""
        site = f"{self.path}@{step}"
        input_weight, hidden_weight, input_bias, hidden_bias = self.weights()
        inputs = F.linear(_tap_step(site, "input", x), input_weight, input_bias)
        memory = F.linear(state.hidden, hidden_weight, hidden_bias)
        return self._step(inputs, memory, state, site=site)

    def _fast(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, RecurrentState]:
        """Compute the same by torch's kernel, which skips the padding of packed sequences."""
        zeros: Any = x.new_zeros(self.n_directions, x.size(0), self.d_hidden)
        zeros = (zeros, zeros) if self.cell == "lstm" else zeros
        if lengths is None:
            return self._kernel(x, zeros, batch_first=True)
        if int(lengths.min()) == 0:  # the kernel refuses empty sequences
            return self.definition(x, lengths)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        data, sizes, order, back = packed
        states, last = self._kernel(data, sizes, zeros)
        states, _ = pad_packed_sequence(
            PackedSequence(states, sizes, order, back), batch_first=True, total_length=x.size(1)
        )
        assert back is not None  # pack_padded_sequence has sorted the batch
        return states, last.keep(back)

    def _kernel(self, *inputs: Any, **options: Any) -> tuple[Tensor, RecurrentState]:
        weights = [weight for i in range(self.n_directions) for weight in self.weights(i)]
        kernel: Any = torch.lstm if self.cell == "lstm" else torch.gru
        both = self.n_directions == 2
        states, *last = kernel(*inputs, weights, True, 1, 0.0, self.training, both, **options)
        return states, RecurrentState(*(torch.cat(part.unbind(0), dim=-1) for part in last))

    def extra_repr(self) -> str:
        both = "2 × " if self.n_directions == 2 else ""
        return f"{self.cell}, {self.d_input} → {both}{self.d_hidden}"

    def _read(
        self, x: Tensor, real: Tensor | None, direction: int
    ) -> tuple[Tensor, RecurrentState]:
        input_weight, hidden_weight, input_bias, hidden_bias = self.weights(direction)
        inputs = F.linear(x, input_weight, input_bias)  # of all steps, because it needs no state
        site = f"{self.path}.{('forward', 'backward')[direction]}"
        zeros = x.new_zeros(x.size(0), self.d_hidden)
        state, states = RecurrentState(zeros, zeros if self.cell == "lstm" else None), []
        for i in range(x.size(1)):
            memory = F.linear(state.hidden, hidden_weight, hidden_bias)
            new = self._step(inputs[:, i], memory, state, site=f"{site}@{i}")
            if real is not None:  # finished sequences keep their state
                new = new.map(partial(torch.where, real[:, i, None]), state)
            state = new
            states.append(state.hidden)
        hidden = torch.stack(states, dim=1)
        return (hidden if real is None else hidden * real[..., None]), state


class Bridge(nn.Module):
    """Maps the last state of a layer to the first state of a layer of another width."""

    def __init__(self, d_input: int, d_hidden: int, *, cell: str = "lstm") -> None:
        super().__init__()
        self.to_hidden = nn.Linear(d_input, d_hidden)
        self.to_cell = nn.Linear(d_input, d_hidden) if cell == "lstm" else None

    def forward(self, state: RecurrentState) -> RecurrentState:
        """Return the new state; hidden states lie between -1 and 1, cells are unbounded."""
        hidden = torch.tanh(self.to_hidden(state.hidden))
        if self.to_cell is None or state.cell is None:
            return RecurrentState(hidden)
        return RecurrentState(hidden, self.to_cell(state.cell))


def check_lengths(
    lengths: Int[Tensor, "batch"] | None, x: Float[Tensor, "batch token *rest"]
) -> None:
    """Refuse lengths that do not fit the sequences in `x`."""
    if lengths is None or torch.compiler.is_compiling():
        return
    if lengths.dim() != 1 or len(lengths) != x.size(0):
        raise InputError(
            f"lengths have shape {tuple(lengths.shape)}, but there are {x.size(0)} sequences: give "
            "one length for each."
        )
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0 or high > x.size(1):
        raise InputError(
            f"lengths range from {low} to {high}, but the padded sequences have {x.size(1)} "
            f"tokens: each length must be from 0 to {x.size(1)}."
        )


def _tap_step(site: str, name: str, value: Tensor) -> Tensor:
    """Tap a value of one step, with a token axis along which listeners join steps."""
    if not listening():
        return value
    return tap(f"{site}.{name}", value.unsqueeze(-2), "token d_hidden").squeeze(-2)
