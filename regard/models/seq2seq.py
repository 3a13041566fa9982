"""Recurrent sequence-to-sequence models, whose decoder attends to the source.

Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate"; dot
and general attention and input feeding are from Luong et al. 2015. Without attention it is Cho et
al. 2014: the decoder knows only the encoder's last state.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths, Mask
from regard.errors import InputError, check_choice, check_probabilities
from regard.layers.embedding import token_positions
from regard.layers.feed_forward import Dropout
from regard.layers.recurrent import (
    CELLS,
    Bridge,
    EncodedSource,
    RecurrentLayer,
    RecurrentState,
    RNNAttention,
)
from regard.layers.stack import INITIALIZATIONS, InputEmbedding, initialize, without_padding
from regard.models.config import ModelConfig
from regard.models.transformer import EncoderDecoder, SourceIds, TargetIds, check_vocabularies
from regard.tap import tap

ATTENTIONS = ("additive", "dot", "general", "none")


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """Settings of a recurrent sequence-to-sequence model."""

    family: ClassVar[str] = "seq2seq"

    n_vocab: int
    n_source_vocab: int | None = None  # size of a separate source vocabulary
    d_model: int = 256  # width of the decoder's states
    d_embedding: int | None = None
    """Width of token embeddings and of the vectors projected onto them; d_model by default."""
    d_encoder: int | None = None
    """Width of the encoder's states in each direction; together d_model by default."""
    d_attention: int | None = None  # width of additive attention's hidden layer; d_model by default
    n_layers: int = 1
    """Layers of the encoder, and of the decoder, which starts from their last states."""
    cell: str = "lstm"
    bidirectional: bool = True
    attention: str = "additive"
    input_feeding: bool = False  # feed the vector of the last prediction to the decoder as well
    dropout: float = 0.1  # on embeddings, between layers and before the projection
    tie: str = "none"
    """Matrices that are one: source, target and projection; target and projection; or none."""
    initialization: str = "xavier_uniform"
    pad_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("n_layers", "d_model", "d_embedding", "d_encoder", "d_attention")
        check_probabilities(dropout=self.dropout)
        check_choice("cell", self.cell, CELLS)
        check_choice("attention", self.attention, ATTENTIONS)
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        check_vocabularies(self)
        if self.bidirectional and self.d_encoder is None and self.d_model % 2:
            raise InputError(
                f"d_model is {self.d_model}, which two directions cannot share evenly: choose an "
                "even one, or give d_encoder."
            )
        if self.attention == "dot" and self.d_memory != self.d_model:
            raise InputError(
                f"attention 'dot' compares vectors of one width, but the encoder's states are "
                f"{self.d_memory} wide and the decoder's {self.d_model}: choose another d_encoder, "
                "or attention 'general'."
            )

    @property
    def d_direction(self) -> int:
        """Width of the encoder's states in one direction."""
        return self.d_encoder or self.d_model // (2 if self.bidirectional else 1)

    @property
    def d_memory(self) -> int:
        """Width of the encoder's states, with both directions."""
        return self.d_direction * (2 if self.bidirectional else 1)


@dataclass(frozen=True)
class Memory:
    """The encoder's output; `memory[rows]` selects sentences of the batch."""

    states: Float[Tensor, "batch source d_memory"]
    """Keys and values: one vector for each source token."""
    last: tuple[RecurrentState, ...]  # the last state of each layer

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, rows: Int[Tensor, "rows"]) -> "Memory":
        return Memory(self.states[rows], tuple(state.keep(rows) for state in self.last))


@dataclass(eq=False)
class RecurrentCache:
    """The state of a decoder between two steps, and its keys and values of the source."""

    grows: ClassVar[bool] = True
    length: int = 0
    states: tuple[RecurrentState, ...] = ()
    fed: Tensor | None = None  # the vector of the last prediction, for input feeding
    context: Tensor | None = None  # the last encoder state, for decoders without attention
    read: EncodedSource | None = None

    def keep(self, rows: Int[Tensor, "rows"]) -> None:
        """Keep these rows of the batch, in this order, as beams move and finish."""
        self.states = tuple(state.keep(rows) for state in self.states)
        self.fed = None if self.fed is None else self.fed[rows]
        self.context = None if self.context is None else self.context[rows]
        self.read = None if self.read is None else self.read.keep(rows)


class Seq2Seq(EncoderDecoder):
    """The recurrent encoder–decoder.

    source ids ── embed ── encoder ──▶ states, last state
                                         │         └── bridge ──▶ first state of the decoder
    previous state ── align with states ─┴──▶ context
    target ids ── embed ── join context ── cell ──▶ next state ── join context ── project ──▶ logits
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        d_model, d_memory, cell = config.d_model, config.d_memory, config.cell
        d_embedding = config.d_embedding or d_model
        super().__init__(config, d_embedding)
        self.encoder_embedding, self.decoder_embedding = (
            InputEmbedding(d_embedding, dropout=config.dropout, path=path)
            for path in ("encoder", "decoder")
        )
        self.encoder, self.decoder, self.bridges = nn.ModuleList(), nn.ModuleList(), None
        d_read = d_embedding
        d_joined = d_memory + (2 if config.input_feeding else 1) * d_embedding
        for i in range(config.n_layers):
            path, both = f"encoder.layers.{i}", config.bidirectional
            self.encoder.append(
                RecurrentLayer(d_read, config.d_direction, cell=cell, bidirectional=both, path=path)
            )
            path = f"decoder.layers.{i}"
            self.decoder.append(RecurrentLayer(d_joined, d_model, cell=cell, path=path))
            d_read, d_joined = d_memory, d_model
        if config.bidirectional or d_memory != d_model:
            bridges = (Bridge(d_memory, d_model, cell=cell) for _ in range(config.n_layers))
            self.bridges = nn.ModuleList(bridges)
        self.alignment = None
        if config.attention != "none":
            self.alignment = RNNAttention(
                config.attention,
                d_query=d_model,
                d_key=d_memory,
                d_hidden=config.d_attention or d_model,
                path="decoder.cross",
            )
        self.to_output = nn.Linear(d_model + d_memory, d_embedding)
        self.dropout = Dropout(config.dropout)
        self.projection = self.make_projection()
        initialize(self, config.initialization)

    def encode(self, source_ids: SourceIds, source_lengths: Lengths | None = None) -> Memory:
        """Return a vector for each source token, and the last state of each layer."""
        tokens = (self.source_tokens or self.tokens)(source_ids)
        where = token_positions(source_ids.size(1), device=source_ids.device)
        x = self.encoder_embedding(tokens, where)
        lengths = None
        if source_lengths is not None:
            lengths = torch.as_tensor(source_lengths, device=source_ids.device)
        last = []
        for i, layer in enumerate(self.encoder):
            x, state = layer(self.dropout(x) if i else x, lengths)
            last.append(state)
        return Memory(tap("encoder.output", x, "token d_memory"), tuple(last))

    def decode(
        self,
        target_ids: TargetIds,
        memory: Memory,
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,
        cache: dict[str, RecurrentCache] | None = None,
    ) -> Float[Tensor, "batch target d_embedding"]:
        """Return one vector for each token of the decoder's input, which sees no later token.

        With a cache (`new_cache`), `target_ids` are only the tokens that were not read before, and
        `memory` is used in the first call only. `target_lengths` is not needed: padding on the
        right is read last.
        """
        own = (self.new_cache() if cache is None else cache)["decoder"]
        if own.length == 0:
            self._start(own, memory)
        where = token_positions(target_ids.size(1), first=own.length, device=target_ids.device)
        x = self.decoder_embedding(self.tokens(target_ids), where, first=own.length)
        allowed = without_padding(source_lengths)
        return torch.stack([self._step(one, own, allowed) for one in x.unbind(1)], dim=1)

    def new_cache(self) -> dict[str, RecurrentCache]:
        return {"decoder": RecurrentCache()}

    def _start(self, cache: RecurrentCache, memory: Memory) -> None:
        states = memory.last
        if self.bridges is not None:
            states = [bridge(one) for bridge, one in zip(self.bridges, states, strict=True)]
        pairs = zip(self._cells(), states, strict=True)
        cache.states = tuple(layer.tap_first_state(state) for layer, state in pairs)
        if self.config.input_feeding:
            cache.fed = memory.states.new_zeros(len(memory), self.to_output.out_features)
        if self.alignment is None:
            cache.context = memory.last[-1].hidden
        else:
            cache.read = self.alignment.read(memory.states)

    def _step(
        self, x: Float[Tensor, "batch d_embedding"], cache: RecurrentCache, allowed: Mask | None
    ) -> Float[Tensor, "batch d_embedding"]:
        """Read one token and return the vector that predicts the next."""
        step, context = cache.length, cache.context
        if self.alignment is not None and cache.read is not None:
            query = cache.states[-1].hidden
            context = self.alignment(query, cache.read, allowed=allowed, step=step)
        assert context is not None  # set by _start
        x = torch.cat([x, context] if cache.fed is None else [x, context, cache.fed], dim=-1)
        states = []
        for i, (layer, state) in enumerate(zip(self._cells(), cache.states, strict=True)):
            state = layer.step(self.dropout(x) if i else x, state, step=step)
            states.append(state)
            x = state.hidden
        output = self.dropout(torch.tanh(self.to_output(torch.cat([x, context], dim=-1))))
        # "@0" tells listeners from the first step on that more may follow
        output = tap(f"decoder@{step}.output", output.unsqueeze(-2), "token d_embedding")[:, 0]
        cache.states, cache.length = tuple(states), step + 1
        cache.fed = output if self.config.input_feeding else None
        return output

    def _cells(self) -> list[RecurrentLayer]:
        return cast("list[RecurrentLayer]", list(self.decoder))
