"""A Transformer's weights in the order of use: the same numbers with as few operations as possible.

Written token by token, a small model spends more time between its products than in them, so this
goes through plain lists of weights, without taps. `regard.models.transformer` is the definition;
`regard.decoding.lean_stepper` writes with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.product import Dense, Product, make_product
from regard.layers.position import places
from regard.models.transformer import Transformer


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
        kind: of the products, see `regard.decoding.product`.
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
        x = model.encoder_embedding(tokens, places(ids.size(1), device=ids.device))
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
