"""Names of TransformerLens for the values of a trace: "blocks.0.attn.hook_pattern"."""

import re
from typing import Any

from torch import Tensor

from regard.errors import UnknownNameError, nearest

_SITE_TABLES = {"hook_pattern": "weights", "hook_attn_scores": "masked"}
_SITE_VECTORS = {"hook_q": "query", "hook_k": "key", "hook_v": "value", "hook_z": "context"}
_BLOCK_VALUES = {
    "hook_resid_pre": "before",
    "hook_resid_mid": "{site}.residual",
    "hook_resid_post": "{layer}.feed_forward.residual",
    "hook_attn_out": "{site}.output",
    "hook_mlp_out": "{layer}.feed_forward.output",
    "mlp.hook_post": "{layer}.feed_forward.activation",
}
ALIASES = (
    *(f"blocks.N.attn.{name}" for name in (*_SITE_TABLES, *_SITE_VECTORS)),
    *(f"blocks.N.{name}" for name in _BLOCK_VALUES),
)
"""All names; N counts self-attention sites from 0, in the order of computation."""


def is_alias(path: str) -> bool:
    """Return True for a name of TransformerLens."""
    return path.startswith("blocks.") and "hook_" in path


def read_alias(trace: Any, path: str) -> Tensor:
    """Return the tensor with this name in TransformerLens, in its layout.

    `trace` is a `Trace`. Tables are (batch, head, query, key), vectors of heads (batch, position,
    head, width), and other values (batch, position, width).
    """
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", path)
    number, name = (int(match[1]), match[2]) if match else (0, "")
    known = [alias.replace("N", str(number), 1) for alias in ALIASES]
    if path not in known:
        raise UnknownNameError(f"the trace has no {path!r}; {nearest(path, known)}.")
    sites = [one for one in trace.sites.values() if not (one.crosses or _is_cross(one.path))]
    if number >= len(sites):
        raise UnknownNameError(f"{path!r} does not exist: the trace has {len(sites)} blocks.")
    site, hook = sites[number], name.removeprefix("attn.")
    if hook in _SITE_TABLES:
        return _with_batch(site.all_batches(_SITE_TABLES[hook]))
    if hook in _SITE_VECTORS:
        part = _SITE_VECTORS[hook]
        vectors = site.all_batches(part) if part == "context" else getattr(site, part)
        return _with_batch(vectors).transpose(1, 2)
    found = [pair for one in trace.streams.values() for pair in one.sites.items()]
    own = next((ours for ours, theirs in found if theirs == site.path), site.path)
    layer = own.rpartition(".")[0]
    template = _BLOCK_VALUES[name]
    if template == "before":
        stack = layer.partition(".layers.")[0]
        before = f"{stack}.layers.{number - 1}.feed_forward.residual"
        template = before if number else f"{stack}.embedding.output"
    return trace.value(template.format(site=own, layer=layer))


def _is_cross(path: str) -> bool:
    """Return True for the cross-attention of regard's own models, which names it so."""
    return path.rpartition(".")[2] == "cross"


def _with_batch(tensor: Tensor) -> Tensor:
    return tensor.reshape(*(1,) * (4 - tensor.dim()), *tensor.shape)
