"""Rows of unfinished translations by a LeanTransformer.

All keys and values are in one store, of which every layer has its views, and the sequences of one
sentence read its source together.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.generation.stepper import Stepper, log_softmax
from regard.layers.position import token_positions
from regard.models.transformer import Transformer

_PAYS = 2**17
"""Numbers of a matrix from which on int8 is faster: below, preparing the rows takes longer."""
_multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
_STEPS = 127
"""Rows in 7 bits: processors without VNNI add pairs of products in 16."""


class Product(ABC):
    """Something that multiplies rows with a matrix."""

    @abstractmethod
    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        """The products of these rows."""


class Dense(Product):
    """The product itself."""

    def __init__(
        self, matrix: Float[Tensor, "outer inner"], bias: Float[Tensor, "outer"] | None
    ) -> None:
        self.matrix, self.bias = matrix, bias

    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        return F.linear(x, self.matrix, self.bias)


class Int8(Product):
    """The product of int8 numbers: a scale for each row of the matrix and of the inputs.

    So no row's result depends on what stands beside it.

    Args:
        positive: whether inputs are never below 0, so that all steps are above it.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "outer inner"],
        bias: Float[Tensor, "outer"] | None,
        *,
        positive: bool = False,
    ) -> None:
        self.bias, self.positive = bias, positive
        self.scale, self.zero = (1 / _STEPS, 0) if positive else (2 / (_STEPS - 1), _STEPS // 2 + 1)
        scales = matrix.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(matrix), dtype=torch.long)
        with warnings.catch_warnings():
            # This kind of tensor shall go some day; fbgemm's products have no other door yet.
            warnings.filterwarnings("ignore", message=".*quantize_per_channel")
            packed = torch.quantize_per_channel(matrix, scales, zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(packed, None)

    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        largest = (x if self.positive else x.abs()).amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        product = _multiply(x / largest, self.scale, self.zero, self.packed).mul_(largest)
        return product if self.bias is None else product.add_(self.bias)


def make_product(
    matrix: Float[Tensor, "outer inner"],
    bias: Float[Tensor, "outer"] | None,
    kind: str = "own",
    *,
    positive: bool = False,
) -> Product:
    """The product with a matrix; of a kind that has a copy only where that pays.

    Args:
        positive: whether its inputs are never below 0.
    """
    matrix, bias = matrix.detach(), None if bias is None else bias.detach()
    if kind == "int8" and matrix.numel() >= _PAYS:
        return Int8(matrix, bias, positive=positive)
    # One row times 8,000 × 256 numbers takes a third of the time when neighbors in memory belong
    # to different results; with more inputs than results it takes longer.
    if kind != "own" and matrix.size(0) > matrix.size(1):
        matrix = matrix.t().contiguous().t()
    return Dense(matrix, bias)


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


class Norm:
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
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Attention:
    """What one attention of a layer computes with."""

    norm: Norm
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


class Layer:
    """One layer's weights; `cross` is None in an encoder."""

    def __init__(self, layer: Any, kind: str) -> None:
        self.own = _attention(layer.self_attention, kind, join=kind != "own")
        crossing = layer.cross_attention
        self.cross = None if crossing is None else _attention(crossing, kind)
        inner = layer.feed_forward.inner
        self.norm = Norm(layer.feed_forward.norm)
        self.bend = torch.relu_ if inner.bend is F.relu else inner.bend  # nobody else has them
        self.hidden = _product(inner.to_hidden, kind)
        self.last = _product(inner.to_output, kind, positive=inner.bend is F.relu)
        self.gate = None if inner.to_gate is None else _product(inner.to_gate, kind)

    def feed_forward(self, x: Tensor) -> Tensor:
        """What the feed-forward adds to the residual stream."""
        bent = self.bend((self.gate or self.hidden)(x))
        return self.last(bent if self.gate is None else bent * self.hidden(x))


def _attention(part: Any, kind: str, *, join: bool = False) -> Attention:
    inner, names = part.inner, ("query", "key", "value", "output")
    kinds = dict.fromkeys(names, kind) | (dict.fromkeys(names[:3], "own") if join else {})
    products = {name: _product(getattr(inner, f"to_{name}"), kinds[name]) for name in names}
    return Attention(Norm(part.norm), **products, joined=_joined(inner, kind) if join else None)


def _product(module: Any, kind: str, *, positive: bool = False) -> Product:
    return make_product(module.weight, module.bias, kind, positive=positive)


def _joined(attention: Any, kind: str) -> Product:
    """One product for a self-attention's queries, keys and values."""
    parts = [getattr(attention, f"to_{name}") for name in ("query", "key", "value")]
    biases = [part.bias for part in parts]
    bias = None if biases[0] is None else torch.cat(biases)
    return make_product(torch.cat([part.weight for part in parts]), bias, kind)


class LeanTransformer:
    """The weights of a translator, those of the model itself or copies of them.

    Args:
        never: tokens that are never written; the others share their probability.
        kind: of the products, see `regard.generation.fast_decoder`.
    """

    def __init__(self, model: Transformer, *, never: Sequence[int] = (), kind: str = "own") -> None:
        self.model, self.kind, config = model, kind, model.config
        self.n_heads, self.d_k = config.n_heads, config.d_k or config.d_model // config.n_heads
        self.first = config.norm == "pre"
        self.layers = [Layer(layer, kind) for layer in model.decoder.layers]
        self.norm = None if model.decoder.norm is None else Norm(model.decoder.norm)
        # The model's own encoder is as good as one that has no copies.
        self.encoder = [Layer(one, kind) for one in model.encoder.layers] if kind != "own" else None
        self.last_norm = None if model.encoder.norm is None else Norm(model.encoder.norm)
        matrix = (model.projection or model.tokens).weight.detach()
        bias = matrix.new_zeros(len(matrix)) if model.logits_bias is None else model.logits_bias
        self.bias = bias.detach().clone()
        self.bias[list(never)] = -inf
        self.matrix = matrix
        self.project = make_product(matrix, self.bias, kind)

    def narrow(self, candidates: Tensor) -> Product:
        """The last product onto these tokens only."""
        return Dense(self.matrix[candidates], self.bias[candidates])

    def encode(
        self, ids: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch source d_model"]:
        """The source as the decoder reads it."""
        model = self.model
        if self.encoder is None:
            return model.encode(ids, lengths)
        tokens = (model.source_tokens or model.tokens)(ids)
        x = model.encoder_embedding(tokens, token_positions(ids.size(1), device=ids.device))
        seen = None
        if bool((lengths < ids.size(1)).any()):
            seen = (torch.arange(ids.size(1), device=ids.device) < lengths[:, None])[:, None, None]
        for layer in self.encoder:
            x = self.added(x, layer.own.norm, partial(self._attend, layer.own, seen))
            x = self.added(x, layer.norm, layer.feed_forward)
        return x if self.last_norm is None else self.last_norm(x)

    def added(self, x: Tensor, norm: Norm, part: Any) -> Tensor:
        """The residual stream after a sub-layer, with its norm in front or behind."""
        return x + part(norm(x)) if self.first else norm(x + part(x))

    def split(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch head token d_k"]:
        """Every head's share of each vector."""
        return x.unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)

    def _attend(self, part: Attention, seen: Tensor | None, x: Tensor) -> Tensor:
        query, key, value = (self.split(one) for one in part.three(x))
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return part.output(found.transpose(1, 2).flatten(2))


_ROOM = 32
"""Positions that the store holds at first; it doubles when full."""


class LeanStepper(Stepper):
    """Rows of unfinished translations.

    Args:
        candidates: the only tokens that can be written, in order; all if None.
        end_id: impossible until `shortest` tokens are written.
    """

    def __init__(
        self,
        lean: LeanTransformer,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        *,
        end_id: int,
        shortest: int = 1,
        candidates: Int[Tensor, "candidate"] | None = None,
    ) -> None:
        self.lean, self.candidates = lean, candidates
        self.end_id, self.shortest = end_id, shortest
        self.project = lean.project if candidates is None else lean.narrow(candidates)
        self.n_rows, self.device = len(source_ids), source_ids.device
        self.length = 0
        memory = lean.encode(source_ids, source_lengths)
        self.sources = _Sources(lean, memory, source_lengths)
        self.owners = torch.arange(self.n_rows, device=self.device)
        self.store = _Store(lean, memory, self.n_rows)
        self.places = _places(lean, memory, 1)

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        state = ids.new_empty(0)
        for tokens in ids.unbind(1):
            state = self._read(tokens)
        logits = self.project(state)
        if self.candidates is not None:
            wide = logits.new_full((len(ids), len(self.lean.matrix)), -inf)
            logits = wide.index_copy_(1, self.candidates, logits)
        if self.length - 1 < self.shortest:  # without the start token
            logits[:, self.end_id] = -inf
        return log_softmax(logits)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.store.keep(rows, self.length)
        self.n_rows = len(rows)
        owners = self.owners[rows]
        if len(owners) == len(self.owners) and torch.equal(owners, self.owners):
            return
        sources, counts = owners.unique_consecutive(return_counts=True)
        if int(counts.min()) != int(counts.max()):  # then every row has its source for itself
            sources = owners
        self.sources.keep(sources)
        self.owners = torch.arange(len(sources), device=self.device)
        self.owners = self.owners.repeat_interleave(len(rows) // len(sources))

    def _read(self, tokens: Int[Tensor, "rows"]) -> Float[Tensor, "rows d_model"]:
        """The decoder's last state after one more token of each row."""
        lean = self.lean
        self.store.make_room(self.length)
        table = lean.model.tokens
        x = F.embedding(tokens, table.weight) * table.scale
        if self.places is not None:
            x = x + self._place()
        for number, layer in enumerate(lean.layers):
            assert layer.cross is not None, "decoders read their sources"
            x = lean.added(x, layer.own.norm, partial(self._attend_own, layer.own, number))
            x = lean.added(x, layer.cross.norm, partial(self._attend_source, layer.cross, number))
            x = lean.added(x, layer.norm, layer.feed_forward)
        self.length += 1
        return x if lean.norm is None else lean.norm(x)

    def _place(self) -> Float[Tensor, "d_model"]:
        """What is added to the embedding of the token at this position."""
        assert self.places is not None
        if self.length == len(self.places):
            self.places = _places(self.lean, self.store.like, self.length + 1)
            assert self.places is not None
        return self.places[self.length]

    def _attend_own(self, part: Attention, layer: int, x: Tensor) -> Tensor:
        query, key, value = part.three(x)
        keys, values = self.store.add(layer, self.length, key, value)
        query = query.reshape(-1, 1, self.lean.d_k)
        return part.output(_weighed(query, keys, values, self.store.nothing).view(self.n_rows, -1))

    def _attend_source(self, part: Attention, layer: int, x: Tensor) -> Tensor:
        """The sequences of one sentence are queries to the same keys."""
        sources, d_k = self.sources, self.lean.d_k
        query = part.query(x)
        n_each = self.n_rows // sources.count
        if n_each == 1:
            query = query.view(-1, 1, d_k)
        else:
            query = query.view(sources.count, n_each, -1, d_k).transpose(1, 2).flatten(0, 1)
        context = _weighed(query, sources.keys[layer], sources.values[layer], sources.hidden)
        if n_each > 1:
            context = context.view(sources.count, -1, n_each, d_k).transpose(1, 2)
        return part.output(context.reshape(self.n_rows, -1))


class _Sources:
    """Keys (turned, as products need them) and values of the sources, for each layer."""

    def __init__(self, lean: LeanTransformer, memory: Tensor, lengths: Tensor) -> None:
        self.count, self.n_heads = len(memory), lean.n_heads
        self.hidden = _hidden(lengths, memory.size(1), lean.n_heads, memory)
        crossing = [layer.cross for layer in lean.layers if layer.cross is not None]
        keys = [lean.split(part.key(memory)).transpose(2, 3) for part in crossing]
        values = [lean.split(part.value(memory)) for part in crossing]
        self.keys, self.values = (
            [one.contiguous().flatten(0, 1) for one in many] for many in (keys, values)
        )

    def keep(self, sources: Tensor) -> None:
        """Go on with these sources, in this order."""

        def kept(one: Tensor) -> Tensor:
            return one.unflatten(0, (self.count, -1))[sources].flatten(0, 1)

        self.keys, self.values = (list(map(kept, many)) for many in (self.keys, self.values))
        self.hidden = kept(self.hidden) if self.hidden.dim() else self.hidden
        self.count = len(sources)


class _Store:
    """Keys and values of what was written: position, layer, key or value, row, numbers.

    Two buffers take turns, because rows cannot be put into another order in place, and fresh
    memory of this size would cost more than the copy.
    """

    def __init__(self, lean: LeanTransformer, like: Tensor, n_rows: int) -> None:
        self.lean, self.like, self.nothing = lean, like, like.new_zeros(())
        self.n_layers, self.width = len(lean.layers), lean.n_heads * lean.d_k
        self._buffers = [like.new_empty(0), like.new_empty(0)]
        self._open(_ROOM, n_rows)

    def add(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store one more position; all keys of the layer, turned, and all values."""
        room = self.of_layer[layer][at]
        room[0], room[1] = key, value
        return self.keys[layer][:, :, : at + 1], self.values[layer][:, : at + 1]

    def keep(self, rows: Tensor, length: int) -> None:
        """Go on with these rows, in this order; `length` positions are filled."""
        before = self.all
        self._open(len(before), len(rows))
        torch.index_select(before[:length], 3, rows, out=self.all[:length])

    def make_room(self, length: int) -> None:
        """Twice as many positions, if all are filled."""
        if length == len(self.all):
            before = self.all
            self._open(2 * length, before.size(3))
            self.all[:length] = before

    def _open(self, room: int, n_rows: int) -> None:
        """The other buffer, and every layer's views of it."""
        self._buffers.reverse()
        shape = (room, self.n_layers, 2, n_rows, self.width)
        size = room * self.n_layers * 2 * n_rows * self.width
        if self._buffers[0].numel() < size:
            self._buffers[0] = self.like.new_empty(size)
        self.all = self._buffers[0][:size].view(shape)
        self.of_layer = self.all.unbind(1)
        heads = self.all.view(room, self.n_layers, 2, -1, self.lean.d_k)
        self.keys = heads[:, :, 0].permute(1, 2, 3, 0).unbind(0)
        self.values = heads[:, :, 1].permute(1, 2, 0, 3).unbind(0)


def _places(lean: LeanTransformer, like: Tensor, needed: int) -> Tensor | None:
    """The vectors of so many positions, and of as many after them while there are any."""
    positions, config = lean.model.decoder_embedding.positions, lean.model.config
    if positions is None:
        return None
    count = max(2 * needed, _ROOM)
    if config.positions == "learned":
        count = max(min(count, config.max_positions), needed)
    where = torch.arange(count, device=like.device)[None]
    return positions(where, like, stop=count)[0]


def _weighed(query: Tensor, turned: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
    """Scaled dot-product attention of many small problems; `hidden` is added to the scores.

    A single number stands for nothing hidden.
    """
    scale, kept = query.size(-1) ** -0.5, int(hidden.dim() > 0)
    scores = torch.baddbmm(hidden, query, turned, beta=kept, alpha=scale)
    return torch.bmm(torch.softmax(scores, dim=-1), value)


def _hidden(lengths: Tensor, n_source: int, n_heads: int, like: Tensor) -> Tensor:
    """-inf for padding, for every head of every sentence; a number where there is no padding."""
    if bool((lengths == n_source).all()):
        return like.new_zeros(())
    padding = torch.arange(n_source, device=like.device) >= lengths[:, None]
    hidden = torch.zeros(padding.shape, device=like.device, dtype=like.dtype)
    hidden = hidden.masked_fill_(padding, -inf)
    return hidden.repeat_interleave(n_heads, dim=0)[:, None]
