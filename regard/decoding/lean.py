"""A Transformer's decoder without taps: the same numbers with as few operations as possible.

Written token by token, a small model spends more time between its products than in them. So this
keeps all keys and values in one store, lets the sequences of one sentence read its source
together, and goes through plain lists of weights. `regard.models.transformer` is the definition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.product import Dense, Product, make_product
from regard.decoding.stepper import Stepper
from regard.models.transformer import Transformer

_ROOM = 32
"""Positions that the store holds at first; it doubles when full."""


def can_be_lean(model: object) -> bool:
    """Whether a model is of the kind that this file writes down once more."""
    if not isinstance(model, Transformer):
        return False
    config = model.config
    return (
        config.attention == "exact"
        and config.positions in ("sinusoidal", "learned", "none")
        and config.n_kv_heads in (None, config.n_heads)
        and config.d_v in (None, config.d_k)
    )


class _Norm:
    """A norm's weights and its function."""

    def __init__(self, module: Any) -> None:
        self.shape, self.eps = tuple(module.normalized_shape), module.eps
        self.weight = module.weight.detach()
        bias = getattr(module, "bias", None)
        self.bias = None if bias is None else bias.detach()
        self.root = isinstance(module, torch.nn.RMSNorm)

    def __call__(self, x: Tensor) -> Tensor:
        if self.root:
            return F.rms_norm(x, self.shape, self.weight, self.eps)
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class _Attention:
    """What one attention of a layer computes with."""

    norm: _Norm
    query: Product
    key: Product
    value: Product
    output: Product
    joined: Product | None = None
    """All three in one, where the weights are copies anyway."""

    def three(self, x: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value of the same rows."""
        if self.joined is None:
            return self.query(x), self.key(x), self.value(x)
        return self.joined(x).chunk(3, dim=-1)


class _Layer:
    """One decoder layer's weights."""

    def __init__(self, layer: Any, *, int8: bool) -> None:
        def product(module: Any) -> Product:
            return make_product(module.weight, module.bias, int8=int8)

        self.own, self.cross = (
            _Attention(
                _Norm(part.norm),
                *(
                    product(getattr(part.inner, f"to_{name}"))
                    for name in ("query", "key", "value", "output")
                ),
            )
            for part in (layer.self_attention, layer.cross_attention)
        )
        if int8:
            self.own = replace(self.own, joined=_joined(layer.self_attention.inner))
        inner = layer.feed_forward.inner
        self.norm, self.bend = _Norm(layer.feed_forward.norm), inner.bend
        self.hidden, self.last = product(inner.to_hidden), product(inner.to_output)
        self.gate = None if inner.to_gate is None else product(inner.to_gate)

    def feed_forward(self, x: Tensor) -> Tensor:
        bent = self.bend((self.gate or self.hidden)(x))
        return self.last(bent if self.gate is None else bent * self.hidden(x))


def _joined(attention: Any) -> Product:
    """One product for a self-attention's queries, keys and values."""
    parts = [getattr(attention, f"to_{name}") for name in ("query", "key", "value")]
    biases = [part.bias for part in parts]
    bias = None if biases[0] is None else torch.cat(biases)
    return make_product(torch.cat([part.weight for part in parts]), bias, int8=True)


class LeanDecoder:
    """The weights of a decoder in the order of use; those of the model itself, unless int8.

    Args:
        never: tokens that are never written; the others share their probability.
    """

    def __init__(self, model: Transformer, *, never: Sequence[int] = (), int8: bool = False):
        self.model, config = model, model.config
        self.n_heads, self.d_k = config.n_heads, config.d_k or config.d_model // config.n_heads
        self.first = config.norm == "pre"
        self.layers = [_Layer(layer, int8=int8) for layer in model.decoder.layers]
        self.norm = None if model.decoder.norm is None else _Norm(model.decoder.norm)
        matrix = (model.projection or model.tokens).weight.detach()
        bias = matrix.new_zeros(len(matrix)) if model.logits_bias is None else model.logits_bias
        self.bias = bias.detach().clone()
        self.bias[list(never)] = -inf
        self.matrix, self.int8 = matrix, int8
        # fbgemm keeps biases as they are, so -inf stays what it is in int8, too.
        self.project = make_product(matrix, self.bias, int8=int8)

    def narrow(self, candidates: Tensor) -> Product:
        """The last product onto these tokens only."""
        return Dense(self.matrix[candidates], self.bias[candidates])


class LeanStepper(Stepper):
    """Rows of unfinished translations, by a LeanDecoder.

    Args:
        candidates: the only tokens that can be written, in order; all if None.
        end_id: impossible until `shortest` tokens are written.
    """

    def __init__(
        self,
        decoder: LeanDecoder,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        *,
        end_id: int,
        shortest: int = 1,
        candidates: Int[Tensor, "candidate"] | None = None,
    ) -> None:
        self.decoder, self.candidates = decoder, candidates
        self.end_id, self.shortest = end_id, shortest
        self.project = decoder.project if candidates is None else decoder.narrow(candidates)
        self.n_rows, self.device = len(source_ids), source_ids.device
        self.width, self.length = decoder.n_heads * decoder.d_k, 0
        memory = decoder.model.encode(source_ids, source_lengths)
        self.memory = [
            (self._split(layer.cross.key(memory)), self._split(layer.cross.value(memory)))
            for layer in decoder.layers
        ]
        self.hidden = _hidden(source_lengths, source_ids.size(1), decoder.n_heads, memory)
        self.owners = torch.arange(self.n_rows, device=self.device)
        self.store = memory.new_empty(_ROOM, len(decoder.layers), 2, self.n_rows, self.width)

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        state = ids.new_empty(0)
        for tokens in ids.unbind(1):
            state = self._read(tokens)
        logits = self.project(state)
        if self.candidates is not None:
            wide = logits.new_full((len(ids), len(self.decoder.matrix)), -inf)
            logits = wide.index_copy_(1, self.candidates, logits)
        if self.length - 1 < self.shortest:  # without the start token
            logits[:, self.end_id] = -inf
        return torch.log_softmax(logits, dim=-1)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        before = self.store
        self.store = before.new_empty(*before.shape[:3], len(rows), self.width)
        torch.index_select(before[: self.length], 3, rows, out=self.store[: self.length])
        self.n_rows = len(rows)
        owners = self.owners[rows]
        if len(owners) == len(self.owners) and torch.equal(owners, self.owners):
            return
        sources, counts = owners.unique_consecutive(return_counts=True)
        if int(counts.min()) != int(counts.max()):  # then every row has its source for itself
            sources = owners
        self.memory = [(key[sources], value[sources]) for key, value in self.memory]
        self.hidden = None if self.hidden is None else self.hidden[sources]
        self.owners = torch.arange(len(sources), device=self.device)
        self.owners = self.owners.repeat_interleave(len(rows) // len(sources))

    def _read(self, tokens: Int[Tensor, "rows"]) -> Float[Tensor, "rows d_model"]:
        """The decoder's last state after one more token of each row."""
        if self.length == len(self.store):
            self.store = torch.cat([self.store, torch.empty_like(self.store)])
        first, x = self.decoder.first, self._embedded(tokens)
        for number, layer in enumerate(self.decoder.layers):
            for part, attend in ((layer.own, self._attend_own), (layer.cross, self._attend_source)):
                given = part.norm(x) if first else x
                x = x + part.output(attend(part, given, number))
                x = x if first else part.norm(x)
            x = x + layer.feed_forward(layer.norm(x) if first else x)
            x = x if first else layer.norm(x)
        self.length += 1
        return x if self.decoder.norm is None else self.decoder.norm(x)

    def _embedded(self, tokens: Tensor) -> Tensor:
        table, positions = self.decoder.model.tokens, self.decoder.model.decoder_embedding.positions
        x = F.embedding(tokens, table.weight) * table.scale
        if positions is None:
            return x
        where = torch.full((1, 1), self.length, device=self.device)
        return x + positions(where, x, stop=self.length + 1)[0]

    def _attend_own(self, part: _Attention, x: Tensor, layer: int) -> Tensor:
        room = self.store[self.length, layer]
        query, room[0], room[1] = part.three(x)
        past = self.store[: self.length + 1, layer]
        size = (len(past), self.n_rows * self.decoder.n_heads, self.decoder.d_k)
        key, value = past[:, 0].view(size).transpose(0, 1), past[:, 1].view(size).transpose(0, 1)
        query = query.reshape(size[1], 1, size[2])
        return _weighed(query, key, value, None).view(self.n_rows, -1)

    def _attend_source(self, part: _Attention, x: Tensor, layer: int) -> Tensor:
        """The sequences of one sentence are queries to the same keys."""
        key, value = self.memory[layer]
        n_sources, n_heads = key.shape[:2]
        query = part.query(x).view(n_sources, -1, n_heads, self.decoder.d_k).transpose(1, 2)
        hidden = None if self.hidden is None else self.hidden.flatten(0, 1)
        given, key, value = (one.flatten(0, 1) for one in (query, key, value))
        context = _weighed(given, key, value, hidden).view(query.shape)
        return context.transpose(1, 2).reshape(self.n_rows, -1)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.decoder.n_heads, -1)).transpose(1, 2).contiguous()


def _weighed(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    """Scaled dot-product attention of many small problems; `hidden` is added to the scores."""
    given, kept = (query.new_empty(()), 0) if hidden is None else (hidden, 1)
    scale = query.size(-1) ** -0.5
    scores = torch.baddbmm(given, query, key.transpose(1, 2), beta=kept, alpha=scale)
    return torch.bmm(torch.softmax(scores, dim=-1), value)


def _hidden(lengths: Tensor, n_source: int, n_heads: int, like: Tensor) -> Tensor | None:
    """-inf for padding, for every head of every sentence; nothing where there is no padding."""
    if bool((lengths == n_source).all()):
        return None
    padding = torch.arange(n_source, device=like.device) >= lengths[:, None]
    shape = (len(lengths), n_heads, 1, n_source)
    return torch.zeros(shape, device=like.device, dtype=like.dtype).masked_fill_(
        padding[:, None, None], -inf
    )
