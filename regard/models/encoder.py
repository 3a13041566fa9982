"""Encoder-only models (BERT-like): every token sees every other; masked tokens are filled in.

Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers".
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Lengths, length_mask
from regard.errors import InputError, check_choice
from regard.layers.embedding import TokenEmbedding, token_positions
from regard.layers.feed_forward import Dropout, activation_function
from regard.layers.stack import InputEmbedding, Stack, initialize, without_padding
from regard.models.config import POOLERS, StackConfig, check_pad
from regard.models.summary import summarize
from regard.tap import tap

States: TypeAlias = Float[Tensor, "batch token d_model"]
POOLS = ("first", "mean", "max", "sqrt_length", "last")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """Settings of an encoder-only model; the defaults are those of BERT base."""

    family: ClassVar[str] = "encoder"

    n_vocab: int
    n_layers: int = 12
    d_model: int = 768
    n_heads: int = 12
    d_ff: int = 3072
    norm_eps: float = 1e-12
    activation: str = "gelu"
    positions: str = "learned"
    initialization: str = "normal"
    n_token_types: int = 0
    """Number of token types: 2 in BERT, for the first and the second sentence."""
    embedding_norm: bool = True
    fill_head: bool = True  # add the head that fills in masked tokens
    pool: str = "first"
    """The vector of the whole text: that of its first or last token, the mean or the maximum of
    all, or their sum divided by the square root of their number ("sqrt_length")."""
    pooler: str = "none"
    """A linear layer on that vector with tanh (BERT) or relu (DistilBERT), or "none"."""
    n_classes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("n_vocab", "n_layers", "n_classes")
        check_pad(self.pad_id, self.n_vocab)
        check_choice("pool", self.pool, POOLS)
        check_choice("pooler", self.pooler, POOLERS)
        if self.n_token_types < 0:
            raise InputError(f"n_token_types is {self.n_token_types}; it must be 0 or more.")


class FillHead(nn.Module):
    """The head that predicts masked tokens: a linear layer, the activation and a norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.to_hidden = nn.Linear(config.d_model, config.d_model)
        self.activation_fn = activation_function(config.activation)
        self.norm = config.make_norm()
        self.bias = nn.Parameter(torch.zeros(config.n_vocab))

    def forward(
        self, states: Float[Tensor, "*batch d_model"], tokens: TokenEmbedding
    ) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of each token, projected onto the model's embeddings."""
        hidden = self.norm(self.activation_fn(self.to_hidden(states)))
        hidden = tap("output.hidden", hidden, "token d_model")
        return tap("output.logits", tokens.project(hidden) + self.bias, "token vocab")


class Encoder(nn.Module):
    """The encoder-only Transformer.

    ids ── embed ── encoder ──▶ states ──┬── fill_logits ──▶ one row of logits for each token
                                         └── classify ─────▶ one row of logits for each text
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.n_vocab, config.d_model)
        self.embedding = InputEmbedding(
            config.d_model,
            positions=config.make_positions(),
            norm=config.make_norm() if config.embedding_norm else None,
            n_types=config.n_token_types,
            dropout=config.dropout,
        )
        self.encoder = Stack(config, config.n_layers, path="encoder")
        self.rotary = config.make_rotary()
        self.fill = FillHead(config) if config.fill_head else None
        self.dropout = Dropout(config.dropout)
        self.pooler = self.classifier = None
        if config.pooler != "none":
            self.pooler = nn.Linear(config.d_model, config.d_model)
        if config.n_classes is not None:
            self.classifier = nn.Linear(config.d_model, config.n_classes)
        initialize(self, config.initialization)

    def forward(
        self,
        ids: Int[Tensor, "batch token"],
        lengths: Lengths | None = None,
        *,
        token_types: Int[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token d_model"]:
        """Return one vector for each token, which depends on all tokens."""
        tokens = self.tokens(ids)
        where = token_positions(ids.size(1), device=ids.device)
        return self.encoder(
            self.embedding(tokens, where, types=token_types),
            allowed=without_padding(lengths),
            rotate=None if self.rotary is None else self.rotary.at(where, tokens),
        )

    def fill_logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Return the logits of the token at each position."""
        if self.fill is None:
            raise InputError("this model was built with fill_head=False: it cannot fill in tokens.")
        return self.fill(states, self.tokens)

    def pooled(
        self, states: States, lengths: Lengths | None = None
    ) -> Float[Tensor, "batch d_model"]:
        vector = pool_states(states, lengths, self.config.pool)
        if self.pooler is not None:
            vector = activation_function(self.config.pooler)(self.pooler(vector))
        return tap("output.pooled", vector, "d_pooled")

    def classify(
        self, states: States, lengths: Lengths | None = None
    ) -> Float[Tensor, "batch class"]:
        if self.classifier is None:
            raise InputError("this model cannot classify because it was built without n_classes.")
        logits = self.classifier(self.dropout(self.pooled(states, lengths)))
        return tap("output.classes", logits, "class")

    def __repr__(self) -> str:
        return str(summarize(self))


def pool_states(
    states: States, lengths: Lengths | None, pool: str
) -> Float[Tensor, "batch d_model"]:
    """Return one vector for each text, by one of POOLS."""
    if pool == "first":
        return states[:, 0]
    n_token = states.size(1)
    if lengths is None:
        count = torch.full((len(states),), n_token, device=states.device)
    else:
        count = torch.as_tensor(lengths, device=states.device)
    if pool == "last":
        return states[torch.arange(len(states), device=states.device), count - 1]
    columns = torch.arange(n_token, device=states.device)
    real = length_mask(count, columns, n_token)[..., None]
    if pool == "max":
        return states.masked_fill(~real, -torch.inf).amax(dim=1)
    n_real = count[:, None].clamp(min=1)
    divisor = n_real if pool == "mean" else n_real.to(states.dtype).sqrt()
    return (states * real).sum(dim=1) / divisor
