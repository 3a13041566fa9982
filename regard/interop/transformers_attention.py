"""Attention of regard for the library transformers: `attn_implementation="regard"`.

Without a listener, the kernel of transformers runs. Inside `regard.watch()`, also without a model,
the attention of every layer is recorded and can be edited: "layers.0", "layers.1", …
"""

from typing import Any

from torch import Tensor, nn

from regard.attention.attend import tapped_attention
from regard.attention.mask import Causal
from regard.attention.pattern import ExactPattern
from regard.errors import MissingExtraError
from regard.tap import listening, path_of
from regard.trace.products import dot_similarity, read_mask
from regard.trace.watched_model import WATCHES

NAME = "regard"


def register_attention() -> str:
    """Make `attn_implementation="regard"` known to transformers, and return that name.

    A model uses it if it is loaded with `attn_implementation="regard"`, or after
    `model.set_attn_implementation("regard")`.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise MissingExtraError(
            "this needs transformers: pip install 'regard[interop]'."
        ) from error
    AttentionInterface.register(NAME, regard_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def regard_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention with the signature of transformers' attention functions."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if WATCHES.get() or not listening():  # a watched model sees the call of torch's function
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **options}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    groups = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    allowed, table = read_mask(attention_mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.size(2) > 1:
        allowed = Causal()
    factor = query.size(-1) ** -0.5 if scaling is None else scaling
    similarity = dot_similarity(factor, query.size(-1), table)
    index = getattr(module, "layer_idx", None)
    name = type(module).__name__ if index is None else f"layers.{index}"
    pattern = ExactPattern(similarity, factor, 1.0, allowed)
    options = {"site": path_of(name, module), "dropout": dropout}
    context = tapped_attention(query, key, value, pattern, **options)
    return context.transpose(1, 2).contiguous(), None
