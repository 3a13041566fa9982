"""Recurrent sequence-to-sequence models, whose decoder aligns itself with the source.

Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate";
dot and general alignment and input feeding are from Luong et al. 2015. Without attention it is
Cho et al. 2014: the last state of the encoder is all that the decoder knows of the source.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Mask
from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.layers.embedding import TokenEmbedding
from regard.layers.initialize import INITIALIZATIONS, initialize
from regard.layers.position import token_positions
from regard.layers.recurrent import CELLS, Bridge, RecurrentLayer, RecurrentState
from regard.layers.rnn_attention import EncodedSource, RNNAttention
from regard.layers.stack import InputEmbedding, Lengths, without_padding
from regard.models.config import ModelConfig, check_choice, check_counts, check_probabilities
from regard.models.summary import summarize
from regard.models.transformer import TIES, check_tie, shift_right
from regard.tap import path_at, tap

ATTENTIONS = ("additive", "dot", "general", "none")


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """What a recurrent sequence-to-sequence model is made of."""

    family: ClassVar[str] = "seq2seq"

    n_vocab: int
    n_source_vocab: int | None = None
    """Where the source has a vocabulary of its own."""
    d_model: int = 256
    """Width of the decoder's states."""
    d_embedding: int | None = None
    """Width of token embeddings and of what is projected onto them; d_model unless given."""
    d_encoder: int | None = None
    """Width of the encoder's states in each direction; together d_model unless given."""
    d_attention: int | None = None
    """Width of additive attention's hidden layer; d_model unless given."""
    n_layers: int = 1
    """Of the encoder, and of the decoder, which takes over their states layer by layer."""
    cell: str = "lstm"
    bidirectional: bool = True
    attention: str = "additive"
    input_feeding: bool = False
    """Whether the decoder also reads what it made its last prediction from."""
    dropout: float = 0.1
    """On embeddings, between layers and on what is projected."""
    tie: str = "none"
    """Which matrices are one: source, target and projection; target and projection; or none."""
    initialization: str = "xavier_uniform"
    pad_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "n_vocab", "n_source_vocab", "n_layers", "d_model", "d_embedding")
        check_counts(self, "d_encoder", "d_attention")
        check_probabilities(self, "dropout")
        check_choice(self, "cell", CELLS)
        check_choice(self, "attention", ATTENTIONS)
        check_choice(self, "tie", TIES)
        check_choice(self, "initialization", INITIALIZATIONS)
        check_tie(self.tie, self.n_vocab, self.n_source_vocab)
        if self.bidirectional and self.d_encoder is None and self.d_model % 2:
            raise InputError(
                f"d_model is {self.d_model}, which two directions cannot share evenly; choose an "
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
        """Width of the encoder's states, directions side by side."""
        return self.d_direction * (2 if self.bidirectional else 1)


@dataclass(frozen=True)
class Memory:
    """What the encoder leaves for the decoder; `memory[rows]` is that of some sentences."""

    states: Float[Tensor, "batch source d_memory"]
    """Keys and values: one vector for each token of the source."""
    last: tuple[RecurrentState, ...]
    """The state in which each layer ended."""

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, rows: Int[Tensor, "rows"]) -> "Memory":
        return Memory(self.states[rows], tuple(state.keep(rows) for state in self.last))


class RecurrentCache:
    """The state of a decoder between two steps, and the source as it reads it."""

    grows = True

    def __init__(self) -> None:
        self.length = 0
        self.states: tuple[RecurrentState, ...] = ()
        self.fed: Tensor | None = None
        """What the last prediction was made from, for decoders that read it (input feeding)."""
        self.context: Tensor | None = None
        """All that a decoder without attention knows of the source."""
        self.read: EncodedSource | None = None

    def keep(self, rows: Int[Tensor, "rows"]) -> None:
        """Go on with these rows of the batch, in this order: beams move, finished ones leave."""
        self.states = tuple(state.keep(rows) for state in self.states)
        self.fed = None if self.fed is None else self.fed[rows]
        self.context = None if self.context is None else self.context[rows]
        self.read = None if self.read is None else self.read.keep(rows)


class Seq2Seq(nn.Module):
    """source ids ── embed ── encoder ──▶ states, last state
                                            │          ╰── bridge ──▶ first state of the decoder
    previous state ── align with states ────┴──▶ context
    target ids ── embed ── join context ── cell ──▶ next state ── join context ── project ──▶ logits
    """  # noqa: D205, D415  a picture

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        d_model, d_memory, cell = config.d_model, config.d_memory, config.cell
        d_embedding = config.d_embedding or d_model
        self.tokens = TokenEmbedding(config.n_vocab, d_embedding)
        self.source_tokens = None
        if config.tie != "all":
            n_source = config.n_source_vocab or config.n_vocab
            self.source_tokens = TokenEmbedding(n_source, d_embedding)
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
        self.projection = None
        if config.tie == "none":
            self.projection = nn.Linear(d_embedding, config.n_vocab, bias=False)
        initialize(self, config.initialization)

    @property
    def tied(self) -> bool:
        """Whether the target's embedding is also the projection onto the vocabulary."""
        return self.projection is None

    def forward(
        self,
        source_ids: Int[Tensor, "batch source"],
        target_ids: Int[Tensor, "batch target"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 vocab"]:
        """Logits of target tokens 1, 2, … given those before each.

        `target_ids` is the whole target, from its start token to its end token: what the decoder
        reads is cut out of it here, so that it cannot see what it shall predict.
        """
        states = self.states(source_ids, target_ids, source_lengths, target_lengths)
        return self.project(states)

    def states(
        self,
        source_ids: Int[Tensor, "batch source"],
        target_ids: Int[Tensor, "batch target"],
        source_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Float[Tensor, "batch target-1 d_embedding"]:
        """What `forward` projects onto the vocabulary, for losses that do so piece by piece."""
        memory = self.encode(source_ids, source_lengths)
        return self.decode(
            shift_right(target_ids), memory, source_lengths, target_lengths=target_lengths
        )

    def encode(
        self, source_ids: Int[Tensor, "batch source"], source_lengths: Lengths | None = None
    ) -> Memory:
        """The source as the decoder reads it: a vector for each token, and the last state."""
        tokens = (self.source_tokens or self.tokens)(source_ids)
        x = self.encoder_embedding(
            tokens, token_positions(source_ids.size(1), device=source_ids.device)
        )
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
        target_ids: Int[Tensor, "batch target"],
        memory: Memory,
        source_lengths: Lengths | None = None,
        *,
        target_lengths: Lengths | None = None,
        cache: dict[str, RecurrentCache] | None = None,
    ) -> Float[Tensor, "batch target d_embedding"]:
        """One vector for each token of the decoder's input, which knows itself and those before.

        With a cache (`new_cache`), `target_ids` are only the tokens that were not read before, and
        `memory` is looked at in the first call only. `target_lengths` changes nothing: a decoder
        that reads forwards comes to padding on the right when all else is done.
        """
        del target_lengths
        own = (self.new_cache() if cache is None else cache)["decoder"]
        if own.length == 0:
            self._begin(own, memory)
        where = token_positions(target_ids.size(1), first=own.length, device=target_ids.device)
        x = self.decoder_embedding(self.tokens(target_ids), where, first=own.length)
        allowed = without_padding(source_lengths)
        return torch.stack([self._step(one, own, allowed) for one in x.unbind(1)], dim=1)

    def project(
        self, states: Float[Tensor, "*batch d_embedding"], *, first: int = 0
    ) -> Float[Tensor, "*batch vocab"]:
        """How well each token of the vocabulary would come next: the logits of a softmax."""
        logits = (self.projection or self.tokens.project)(states)
        return tap(f"{path_at('output', first)}.logits", logits, "token vocab")

    def new_cache(self) -> dict[str, RecurrentCache]:
        """Room for the decoder's state between two calls of `decode`."""
        return {"decoder": RecurrentCache()}

    def _begin(self, cache: RecurrentCache, memory: Memory) -> None:
        """Hand the encoder's states over."""
        states = list(memory.last)
        if self.bridges is not None:
            states = [bridge(one) for bridge, one in zip(self.bridges, states, strict=True)]
        pairs = zip(self._cells(), states, strict=True)
        cache.states = tuple(layer.see_first(state) for layer, state in pairs)
        if self.config.input_feeding:
            cache.fed = memory.states.new_zeros(len(memory), self.to_output.out_features)
        if self.alignment is None:
            cache.context = memory.last[-1].hidden
        else:
            cache.read = self.alignment.read(memory.states)

    def _step(
        self, x: Float[Tensor, "batch d_embedding"], cache: RecurrentCache, allowed: Mask | None
    ) -> Float[Tensor, "batch d_embedding"]:
        """What the next token is predicted from, after reading one more."""
        step, context = cache.length, cache.context
        if self.alignment is not None and cache.read is not None:
            query = cache.states[-1].hidden
            context = self.alignment(query, cache.read, allowed=allowed, step=step)
        assert context is not None  # _begin has made it so
        x = torch.cat([x, context] if cache.fed is None else [x, context, cache.fed], dim=-1)
        states = []
        for i, (layer, state) in enumerate(zip(self._cells(), cache.states, strict=True)):
            state = layer.step(self.dropout(x) if i else x, state, step=step)
            states.append(state)
            x = state.hidden
        output = self.dropout(torch.tanh(self.to_output(torch.cat([x, context], dim=-1))))
        # from the first step on listeners must know that more may follow, hence @0
        seen = tap(f"decoder@{step}.output", output.unsqueeze(-2), "token d_embedding")
        output = seen.squeeze(-2)
        cache.states, cache.length = tuple(states), step + 1
        cache.fed = output if self.config.input_feeding else None
        return output

    def _cells(self) -> list[RecurrentLayer]:
        return cast("list[RecurrentLayer]", list(self.decoder))

    def __repr__(self) -> str:
        return str(summarize(self))
