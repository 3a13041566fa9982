"""regard: Transformers you can look into."""

from regard.attention.attend import attend
from regard.attention.efficient import efficient_attention
from regard.attention.mask import Mask
from regard.attention.masks import causal, edges, padding, window
from regard.attention.multihead import MultiHeadAttention
from regard.attention.similarity import Additive, Alibi, General, Similarity
from regard.errors import RegardError
from regard.tap import listen, tap
from regard.trace.edit import (
    Edit,
    ablate,
    forbid,
    set_scores,
    set_value,
    set_weights,
    temperature,
    unscaled,
)
from regard.trace.site import Site
from regard.trace.trace import Trace, watch

__version__ = "0.1.0"

__all__ = [
    "Additive",
    "Alibi",
    "Edit",
    "General",
    "Mask",
    "MultiHeadAttention",
    "RegardError",
    "Similarity",
    "Site",
    "Trace",
    "ablate",
    "attend",
    "causal",
    "edges",
    "efficient_attention",
    "forbid",
    "listen",
    "padding",
    "set_scores",
    "set_value",
    "set_weights",
    "tap",
    "temperature",
    "unscaled",
    "watch",
    "window",
]
