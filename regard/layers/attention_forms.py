"""The forms of attention that a model can be built with, by name, and their settings."""

from dataclasses import dataclass, fields
from math import ceil, log2
from typing import Any

from torch import nn

from regard.attention.efficient import NORMALIZATIONS, Efficient
from regard.attention.form import ExactForm
from regard.attention.linformer import SHARING, Linformer
from regard.attention.longformer import Longformer
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.attention.similarity import Alibi
from regard.errors import InputError, check_choice

FORMS = ("exact", "efficient", "linformer", "longformer", "performer", "reformer")
CACHEABLE = ("exact",)  # forms in which a new query can be compared with cached keys
NOT_CAUSAL = ("linformer",)
"""Forms that mix positions, so that a decoder built of them would see the future."""
SELF_ONLY = ("longformer", "reformer")
"""Forms of self-attention; cross-attention next to them is exact."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """The settings of the form of attention; a setting that the form lacks is refused."""

    attention: str = "exact"
    attention_size: int | None = None
    """linformer: projected keys (64); longformer: radius of the window (64); performer: features
    (about d_k · ln d_k); reformer: buckets (32)."""
    attention_normalization: str = "softmax"
    attention_sharing: str = "heads"
    attention_dilation: int = 1
    attention_global_tokens: tuple[int, ...] = ()
    attention_global_heads: bool = False  # give global tokens separate projections
    attention_rounds: int = 4
    attention_chunk: int = 64
    attention_redraw: int = 0
    """Draw new random directions after this many training batches; 0 never does."""

    def check_attention(self) -> None:
        """Refuse an unknown form, or settings that it does not have."""
        check_choice("attention", self.attention, FORMS)
        check_choice("attention_normalization", self.attention_normalization, NORMALIZATIONS)
        check_choice("attention_sharing", self.attention_sharing, SHARING)
        for field in fields(AttentionConfig):
            forms = _SETTINGS.get(field.name, FORMS)
            if self.attention not in forms and getattr(self, field.name) != field.default:
                raise InputError(
                    f"{field.name} is a setting of {' and '.join(forms)} attention, but this model "
                    f"has {self.attention} attention: leave it out."
                )

    def make_form(
        self, *, n_heads: int, d_k: int, d_v: int | None = None, n_tokens: int = 512, alibi: bool
    ) -> nn.Module:
        """Build the form; with `alibi`, exact attention prefers near keys."""
        self.check_attention()
        size: dict[str, Any] = {}
        if self.attention_size is not None and self.attention in _SIZES:
            size = {_SIZES[self.attention]: self.attention_size}
        if self.attention == "exact":
            return ExactForm(Alibi(n_heads)) if alibi else ExactForm()
        if self.attention == "efficient":
            return Efficient(self.attention_normalization)
        if self.attention == "linformer":
            return Linformer(n_tokens, sharing=self.attention_sharing, n_heads=n_heads, **size)
        if self.attention == "longformer":
            heads = {"n_heads": n_heads, "d_k": d_k, "d_v": d_v}
            return Longformer(
                dilation=self.attention_dilation,
                global_tokens=self.attention_global_tokens,
                **(heads if self.attention_global_heads else {}),
                **size,
            )
        if self.attention == "performer":
            return Performer(d_k, redraw_every=self.attention_redraw, **size)
        return Reformer(
            d_k,
            n_rounds=self.attention_rounds,
            chunk=self.attention_chunk,
            redraw_every=self.attention_redraw,
            **size,
        )


_SETTINGS = {
    "attention_normalization": ("efficient",),
    "attention_sharing": ("linformer",),
    "attention_dilation": ("longformer",),
    "attention_global_tokens": ("longformer",),
    "attention_global_heads": ("longformer",),
    "attention_rounds": ("reformer",),
    "attention_chunk": ("reformer",),
    "attention_redraw": ("performer", "reformer"),
}
_SIZES = {
    "linformer": "n_projected",
    "longformer": "radius",
    "performer": "n_features",
    "reformer": "n_buckets",
}


def attention_products(
    form: str, n: int, d: int, *, n_heads: int, size: int = 64, n_rounds: int = 4
) -> int:
    """Count the multiplications of one layer of attention to n tokens, without its projections.

    `d` is the width of all heads together, `size` the `attention_size` (for reformer, the chunk).
    """
    if form == "efficient":
        return 2 * n * d * d // n_heads
    if form == "reformer":
        return n_rounds * (4 * n * min(n, size) * d + n * ceil(log2(n)))
    if form == "performer":
        return 4 * n * size * d
    if form == "linformer":
        return 4 * n * min(n, size) * d
    return 2 * n * (min(n, 2 * size + 1) if form == "longformer" else n) * d
