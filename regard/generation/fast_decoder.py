"""A Transformer's decoder without taps, with weights laid out for one row at a time.

Self-attention's three products are one, the keys and values of all layers are in one buffer, and
the sequences of one sentence share its source. Tests compare it with the model.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.capabilities import unsupported_reason
from regard.generation.stepper import Stepper, log_softmax, spread
from regard.layers.embedding import token_positions
from regard.models.transformer import Transformer

_MIN_POSITIONS = 32  # initial capacity of the key–value buffer, which doubles when full
_Linear = Callable[[Tensor], Tensor]


def can_run(module: object) -> bool:
    """Return True if the module is a Transformer that this file implements."""
    if not isinstance(module, Transformer):
        return False
    return not unsupported_reason("torch", "transformer", vars(module.config), int8=True)


class Int8Linear:
    """A linear layer in int8, with one scale for each row of the matrix and of the input.

    Args:
        positive: the inputs are never negative, so all levels are used above 0.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "outer inner"],
        bias: Float[Tensor, "outer"] | None,
        *,
        positive: bool = False,
    ) -> None:
        self.bias, self.positive = bias, positive
        # Rows have 7 bits, because processors without VNNI add pairs of products in 16 bits.
        self.scale, self.zero = (1 / 127, 0) if positive else (1 / 63, 64)
        scales = matrix.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(matrix), dtype=torch.long, device=matrix.device)
        with warnings.catch_warnings():
            # Quantized tensors are deprecated, but fbgemm has no other interface yet.
            warnings.filterwarnings("ignore", message=".*quantize_per_channel")
            packed = torch.quantize_per_channel(matrix, scales, zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(packed, None)

    def __call__(self, x: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows outer"]:
        largest = (x if self.positive else x.abs()).amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        product = multiply(x / largest, self.scale, self.zero, self.packed).mul_(largest)
        return product if self.bias is None else product.add_(self.bias)


def make_linear(modules: Sequence[Any], *, int8: bool = False, positive: bool = False) -> _Linear:
    """Return one function for the products with these linear layers, side by side."""
    matrix = torch.cat([module.weight.detach() for module in modules])
    bias = None
    if modules[0].bias is not None:
        bias = torch.cat([module.bias.detach() for module in modules])
    if int8 and matrix.numel() >= 2**17:  # below, quantizing the rows takes longer than it saves
        return Int8Linear(matrix, bias, positive=positive)
    return partial(F.linear, weight=in_fastest_layout(matrix), bias=bias)


def in_fastest_layout(matrix: Tensor) -> Tensor:
    """Return a matrix in the layout that one row is multiplied with fastest.

    One row times 8,000 × 256 numbers takes a third of the time when the matrix is stored by
    columns; with more inputs than outputs it takes longer.
    """
    return matrix.t().contiguous().t() if matrix.size(0) > matrix.size(1) else matrix


class _Attention(NamedTuple):
    norm: Any
    to_inputs: _Linear  # queries, keys and values in self-attention; queries in cross-attention
    to_output: _Linear


class _Layer:
    """One layer's weights; an encoder has no `cross`."""

    def __init__(self, layer: Any, *, int8: bool) -> None:
        own, cross, inner = layer.self_attention, layer.cross_attention, layer.feed_forward.inner
        linear = partial(make_linear, int8=int8)
        inputs = [own.inner.to_query, own.inner.to_key, own.inner.to_value]
        self.own = _Attention(own.norm, linear(inputs), linear([own.inner.to_output]))
        if cross is not None:
            query, output = linear([cross.inner.to_query]), linear([cross.inner.to_output])
            self.cross = _Attention(cross.norm, query, output)
            self.to_memory = linear([cross.inner.to_key, cross.inner.to_value])
        self.norm, relu = layer.feed_forward.norm, inner.activation_fn is F.relu
        # The product is not used elsewhere, so it can be changed in place.
        self.activation_fn = torch.relu_ if relu else inner.activation_fn
        self.to_hidden = linear([inner.to_hidden])
        self.to_output = linear([inner.to_output], positive=relu)
        self.to_gate = None if inner.to_gate is None else linear([inner.to_gate])

    def feed_forward(self, x: Tensor) -> Tensor:
        if self.to_gate is None:
            return self.to_output(self.activation_fn(self.to_hidden(x)))
        return self.to_output(self.activation_fn(self.to_gate(x)) * self.to_hidden(x))


class FastTransformer:
    """Copies of a Transformer's weights; later changes to the model have no effect.

    Suppressed tokens are never predicted; the others share their probability.
    """

    def __init__(
        self, module: Transformer, *, suppressed: Sequence[int] = (), int8: bool = False
    ) -> None:
        self.module, config = module, module.config
        self.n_heads, self.d_k = config.n_heads, config.d_k or config.d_model // config.n_heads
        self.pre_norm = config.norm == "pre"
        self.encoder = [_Layer(one, int8=int8) for one in module.encoder.layers]
        self.layers = [_Layer(one, int8=int8) for one in module.decoder.layers]
        self.matrix = (module.projection or module.tokens).weight.detach()
        bias = module.logits_bias
        zeros = self.matrix.new_zeros(len(self.matrix))
        self.bias = zeros if bias is None else bias.detach().clone()
        self.bias[list(suppressed)] = -inf
        self.project = make_linear([SimpleNamespace(weight=self.matrix, bias=self.bias)], int8=int8)

    def encode(
        self, ids: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]
    ) -> Float[Tensor, "batch source d_model"]:
        module, norm = self.module, self.module.encoder.norm
        tokens = (module.source_tokens or module.tokens)(ids)
        x = module.encoder_embedding(tokens, token_positions(ids.size(1), device=ids.device))
        allowed = None
        if bool((lengths < ids.size(1)).any()):
            at = torch.arange(ids.size(1), device=ids.device)
            allowed = (at < lengths[:, None])[:, None, None]
        for layer in self.encoder:
            x = self.residual(x, layer.own.norm, partial(self._attend, layer.own, allowed))
            x = self.residual(x, layer.norm, layer.feed_forward)
        return x if norm is None else norm(x)

    def residual(self, x: Tensor, norm: Any, part: _Linear) -> Tensor:
        return x + part(norm(x)) if self.pre_norm else norm(x + part(x))

    def split(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch head token d_k"]:
        return x.unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)

    def _attend(self, part: _Attention, allowed: Tensor | None, x: Tensor) -> Tensor:
        query, key, value = (self.split(one) for one in part.to_inputs(x).chunk(3, dim=-1))
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        return part.to_output(context.transpose(1, 2).flatten(2))


class FastStepper(Stepper):
    """Rows of unfinished translations, which end after `min_length` tokens at the earliest."""

    def __init__(
        self,
        model: FastTransformer,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        *,
        end_id: int,
        min_length: int = 1,
        candidates: Int[Tensor, "candidate"] | None = None,
    ) -> None:
        self.model, self.candidates = model, candidates
        self.end_id, self.min_length = end_id, min_length
        self.project = model.project
        if candidates is not None:
            narrow = {"weight": model.matrix[candidates], "bias": model.bias[candidates]}
            self.project = partial(F.linear, **narrow)
        self.n_rows, self.device, self.length = len(source_ids), source_ids.device, 0
        memory = model.encode(source_ids, source_lengths)
        self.sources = _SourceKeys(model, memory, source_lengths)
        self.owners = torch.arange(self.n_rows, device=self.device)
        self.cache = _KeyValueBuffer(model, memory, self.n_rows)
        self.positions = self._position_vectors(1)

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        state = ids.new_empty(0)
        for tokens in ids.unbind(1):
            state = self._read(tokens)
        logits = self.project(state)
        if self.candidates is not None:
            logits = spread(logits, self.candidates, len(self.model.matrix))
        if self.length - 1 < self.min_length:  # the start token does not count
            logits[:, self.end_id] = -inf
        return log_softmax(logits)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.cache.keep(rows, self.length)
        self.n_rows = len(rows)
        owners = self.owners[rows]
        if torch.equal(owners, self.owners):
            return
        sources, counts = owners.unique_consecutive(return_counts=True)
        if int(counts.min()) != int(counts.max()):  # then each row gets a copy of its source
            sources = owners
        self.sources.keep(sources)
        each = torch.arange(len(sources), device=self.device)
        self.owners = each.repeat_interleave(len(rows) // len(sources))

    def _read(self, tokens: Int[Tensor, "rows"]) -> Float[Tensor, "rows d_model"]:
        model, table = self.model, self.model.module.tokens
        self.cache.reserve(self.length)
        x = F.embedding(tokens, table.weight) * table.scale
        if self.positions is not None:
            if self.length == len(self.positions):
                self.positions = self._position_vectors(self.length + 1)
            x = x + self.positions[self.length]
        for i, layer in enumerate(model.layers):
            x = model.residual(x, layer.own.norm, partial(self._attend_own, layer.own, i))
            x = model.residual(x, layer.cross.norm, partial(self._attend_source, layer.cross, i))
            x = model.residual(x, layer.norm, layer.feed_forward)
        self.length += 1
        norm = model.module.decoder.norm
        return x if norm is None else norm(x)

    def _position_vectors(self, needed: int) -> Any:
        positions, config = self.model.module.decoder_embedding.positions, self.model.module.config
        if positions is None:
            return None
        count = max(2 * needed, _MIN_POSITIONS)
        if config.positions == "learned":
            count = max(min(count, config.max_positions), needed)
        at = torch.arange(count, device=self.device)[None]
        return positions(at, self.cache.like, stop=count)[0]

    def _attend_own(self, part: _Attention, layer: int, x: Tensor) -> Tensor:
        query, key, value = part.to_inputs(x).chunk(3, dim=-1)
        keys, values = self.cache.add(layer, self.length, key, value)
        context = _attend(query.reshape(-1, 1, self.model.d_k), keys, values, None)
        return part.to_output(context.view(self.n_rows, -1))

    def _attend_source(self, part: _Attention, layer: int, x: Tensor) -> Tensor:
        # The rows of one sentence are queries to the same keys.
        sources, d_k = self.sources, self.model.d_k
        n_each = self.n_rows // sources.count
        query = part.to_inputs(x).view(sources.count, n_each, -1, d_k).transpose(1, 2).flatten(0, 1)
        context = _attend(query, sources.keys[layer], sources.values[layer], sources.hidden)
        context = context.view(sources.count, -1, n_each, d_k).transpose(1, 2)
        return part.to_output(context.reshape(self.n_rows, -1))


class _SourceKeys:
    """Transposed keys, values and additive mask of the sources, by layer."""

    def __init__(self, model: FastTransformer, memory: Tensor, lengths: Tensor) -> None:
        self.count = len(memory)
        pairs = [
            [model.split(one) for one in layer.to_memory(memory).chunk(2, dim=-1)]
            for layer in model.layers
        ]
        self.keys = [key.transpose(2, 3).contiguous().flatten(0, 1) for key, _ in pairs]
        self.values = [value.contiguous().flatten(0, 1) for _, value in pairs]
        padding = torch.arange(memory.size(1), device=memory.device) >= lengths[:, None]
        self.hidden = None
        if bool(padding.any()):
            hidden = memory.new_zeros(padding.shape).masked_fill_(padding, -inf)
            self.hidden = hidden.repeat_interleave(model.n_heads, dim=0)[:, None]

    def keep(self, sources: Tensor) -> None:
        def select(one: Tensor) -> Tensor:
            return one.unflatten(0, (self.count, -1))[sources].flatten(0, 1)

        self.keys, self.values = list(map(select, self.keys)), list(map(select, self.values))
        self.hidden = None if self.hidden is None else select(self.hidden)
        self.count = len(sources)


class _KeyValueBuffer:
    """Keys and values of the target: position, layer, key or value, row, width.

    Two buffers take turns, because rows cannot be reordered in place and allocating this much
    memory would cost more than the copy.
    """

    def __init__(self, model: FastTransformer, like: Tensor, n_rows: int) -> None:
        self.like, self.d_k = like, model.d_k
        self.n_layers, self.width = len(model.layers), model.n_heads * model.d_k
        self._buffers = [like.new_empty(0), like.new_empty(0)]
        self._swap(_MIN_POSITIONS, n_rows)

    def add(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store one position; return all transposed keys and all values of the layer."""
        cell = self.by_layer[layer][at]
        cell[0], cell[1] = key, value
        return self.keys[layer][:, :, : at + 1], self.values[layer][:, : at + 1]

    def keep(self, rows: Tensor, length: int) -> None:
        before = self.all
        self._swap(len(before), len(rows))
        torch.index_select(before[:length], 3, rows, out=self.all[:length])

    def reserve(self, length: int) -> None:
        if length == len(self.all):
            before = self.all
            self._swap(2 * length, before.size(3))
            self.all[:length] = before

    def _swap(self, capacity: int, n_rows: int) -> None:
        """Switch to the other buffer and make each layer's views of it."""
        self._buffers.reverse()
        shape = (capacity, self.n_layers, 2, n_rows, self.width)
        size = capacity * self.n_layers * 2 * n_rows * self.width
        if self._buffers[0].numel() < size:
            self._buffers[0] = self.like.new_empty(size)
        self.all = self._buffers[0][:size].view(shape)
        self.by_layer = self.all.unbind(1)
        heads = self.all.view(capacity, self.n_layers, 2, -1, self.d_k)
        self.keys = heads[:, :, 0].permute(1, 2, 3, 0).unbind(0)
        self.values = heads[:, :, 1].permute(1, 2, 0, 3).unbind(0)


def _attend(query: Tensor, keys: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    """Scaled dot-product attention of many small problems; `hidden` is added to the scores."""
    scores = torch.bmm(query, keys) * query.size(-1) ** -0.5
    scores = scores if hidden is None else scores + hidden
    return torch.bmm(torch.softmax(scores, dim=-1), value)
