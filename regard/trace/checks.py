"""Classic mistakes in attention, named from how a watched model called it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose


@dataclass(frozen=True)
class CallFacts:
    """How attention was called at one site."""

    d_k: int | None
    """Width of queries and keys; None if they are not known."""
    factor: float = 1.0
    """What q · k was multiplied with, before and after the product."""
    dropout: float = 0.0
    softmax_over: str = "keys"
    """The axis whose weights sum to 1: "keys", "queries" or "heads"."""
    training: bool | None = None
    """The mode of the model; None if it is not an nn.Module."""


def check_calls(facts: Mapping[str, CallFacts]) -> list[str]:
    """Return a sentence for each mistake."""
    return [
        f"{site}: {sentence}"
        for site, one in facts.items()
        for sentence in (_softmax_axis(one), _scale(one), _dropout(one))
        if sentence
    ]


def _softmax_axis(facts: CallFacts) -> str:
    if facts.softmax_over == "keys":
        return ""
    return (
        f"the softmax is over the {facts.softmax_over}, so the weights of a query do not sum to 1; "
        "take it over the keys, which is dim=-1 for scores q @ k.transpose(-2, -1)."
    )


def _scale(facts: CallFacts) -> str:
    if facts.d_k is None or facts.d_k == 1 or not isclose(facts.factor, 1.0, rel_tol=1e-6):
        return ""
    return (
        f"the scores are not divided by √d_k = √{facts.d_k}, so they grow with the width and the "
        "softmax saturates; divide them, unless the weights were trained without it (as in T5)."
    )


def _dropout(facts: CallFacts) -> str:
    if not facts.dropout or facts.training:
        return ""
    if facts.training is None:
        return (
            f"{facts.dropout:g} of the weights are dropped, and a class that is not an nn.Module "
            "has no eval(): pass training=False to F.dropout when the model is used."
        )
    return (
        f"{facts.dropout:g} of the weights are dropped although the model is in eval mode; pass "
        "training=self.training to F.dropout, or dropout_p=0.0 in eval mode."
    )
