"""The forms of attention that a model can be built with, by name: add new ones here."""

from regard.attention.efficient import efficient_attention
from regard.attention.multihead import ExactForm, Form
from regard.attention.similarity import Alibi
from regard.errors import InputError, UnknownNameError, nearest

FORMS = ("exact", "efficient")
CACHEABLE = ("exact",)
"""Forms in which one new query can be compared with keys that are kept from earlier steps."""


def make_form(name: str, *, n_heads: int, alibi: bool = False) -> Form:
    """How heads attend; with `alibi`, exact attention minus a slope times the distance."""
    if name not in FORMS:
        raise UnknownNameError(f"there is no form of attention {name!r}; {nearest(name, FORMS)}.")
    if name == "exact":
        return ExactForm(Alibi(n_heads)) if alibi else ExactForm()
    if alibi:
        raise InputError(
            f"ALiBi positions change the scores of single pairs, which {name} attention never "
            "computes: choose other positions, or exact attention."
        )
    return efficient_attention
