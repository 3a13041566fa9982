"""The forms of attention that a model can be built with, by name: add new ones here."""

from dataclasses import dataclass

from torch import nn

from regard.attention.efficient import Efficient
from regard.attention.form import ExactForm
from regard.attention.linformer import Linformer
from regard.attention.longformer import Longformer
from regard.attention.performer import Performer
from regard.attention.reformer import Reformer
from regard.attention.similarity import Alibi
from regard.errors import InputError, UnknownNameError, nearest

FORMS = ("exact", "efficient", "linformer", "longformer", "performer", "reformer")
CACHEABLE = ("exact",)
"""Forms in which one new query can be compared with keys that are kept from earlier steps."""
NOT_CAUSAL = ("linformer",)
"""Forms that mix positions, so that a decoder made of them would see the future."""
OF_ONE_TEXT = ("longformer", "reformer")
"""Forms in which a text looks at itself; what reads another text stays exact beside them."""


@dataclass(frozen=True, kw_only=True)
class FormPlan:
    """The numbers from which a form is made.

    Args:
        size: what a form is large by: linformer: keys after the projection (64 unless given);
            longformer: how far a query sees to each side (64); performer: random features (about
            d_k · ln d_k); reformer: buckets (32).
        n_positions: the longest text.
    """

    name: str = "exact"
    n_heads: int
    d_k: int
    size: int | None = None
    n_positions: int = 512
    alibi: bool = False


def make_form(plan: FormPlan) -> nn.Module:
    """How heads attend; with `alibi`, exact attention minus a slope times the distance."""
    name = plan.name
    if name not in FORMS:
        raise UnknownNameError(f"there is no form of attention {name!r}; {nearest(name, FORMS)}.")
    if name == "exact":
        return ExactForm(Alibi(plan.n_heads)) if plan.alibi else ExactForm()
    if plan.alibi:
        raise InputError(
            f"ALiBi positions change the scores of single pairs, which {name} attention never "
            "computes: choose other positions, or exact attention."
        )
    if name == "efficient":
        return Efficient()
    if name == "linformer":
        return Linformer(plan.n_positions, plan.size or 64)
    if name == "longformer":
        return Longformer(plan.size or 64)
    if name == "performer":
        return Performer(plan.d_k, plan.size)
    return Reformer(plan.d_k, n_buckets=plan.size or 32)
