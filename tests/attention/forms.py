"""Efficient forms with given matrices, called as functions."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.testing import assert_close

from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer, LongformerMask
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.tap import tap


def linformer_attention(*inputs, key_projection, value_projection, **options):
    *heads, n_projected, n_tokens = key_projection.shape
    sharing = {"sharing": "none", "n_heads": heads[0]} if heads else {}
    both = {"key_projection": key_projection, "value_projection": value_projection}
    return functional_call(Linformer(n_tokens, n_projected, **sharing), both, inputs, options)


class GlobalHeads(NamedTuple):
    """Queries of global tokens, and the keys and values that they read."""

    query: Tensor
    key: Tensor
    value: Tensor


def reach(radius, *, dilation=1, global_tokens=()):
    return LongformerMask(radius, dilation, tuple(global_tokens))


def longformer_attention(*inputs, reach, global_heads=None, **options):
    form = Longformer(reach.radius, dilation=reach.dilation, global_tokens=reach.global_tokens)
    if global_heads is not None:
        form.n_heads = inputs[0].size(-3)
        names = zip(("global_query", "global_key", "global_value"), global_heads, strict=True)
        form._project_global = lambda given, _: tuple(
            tap(f"{given.site}.{name}", x, "token d") for name, x in names
        )
    return form(*inputs, **options)


def performer_attention(*inputs, features, **options):
    n_features, d_k = features.shape
    return functional_call(Performer(d_k, n_features), {"features": features}, inputs, options)


def reformer_attention(*inputs, rotations, chunk=64, **options):
    n_rounds, d_k, half = rotations.shape
    form = Reformer(d_k, n_buckets=2 * half or 1, n_rounds=n_rounds, chunk=chunk)
    return functional_call(form, {"rotations": rotations}, inputs, options)


def drawn(*shape, dtype=torch.float64, seed=0):
    """Queries, keys and values of one shape."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, dtype=dtype, generator=generator) for _ in range(3)]


def check_site(site, weights, context):
    """Check that a recorded site has these weights, whole and in tiles, and this context."""
    for batch in range(len(weights)):
        assert_close(site.weights(batch=batch), weights[batch])
        assert_close(site.context(batch=batch), context[batch])
    tile = site.weights(1, batch=1, rows=slice(5, 12), columns=slice(3, 30))
    assert_close(tile, weights[1, 1, 5:12, 3:30])
