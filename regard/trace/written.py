"""Masks, similarities and patterns as JSON with tensors beside it, and back again.

Only the classes listed here are ever made from a file: nothing in it can run code.
"""

from dataclasses import fields, is_dataclass
from math import inf
from typing import Any

from torch import Tensor

from regard.attention.efficient import Efficient
from regard.attention.linformer import Projected
from regard.attention.longformer import Windowed
from regard.attention.mask import Both, Either, Everything, Not, Table
from regard.attention.masks import Causal, Connection, Edges, Padding, Window
from regard.attention.pattern import Exact
from regard.attention.performer import RandomFeatures
from regard.attention.reformer import Hashed
from regard.attention.similarity import (
    Additive,
    Alibi,
    Cosine,
    Dot,
    General,
    Own,
    ScaledDot,
    Similarity,
)
from regard.attention.window import Reach
from regard.errors import FileError, InputError
from regard.trace.steps import Steps

_DESCRIPTIONS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Both, Either, Everything, Not, Table, Causal, Connection, Edges, Padding, Window, Reach),
        *(Exact, Efficient, Hashed, Projected, RandomFeatures, Windowed, Steps),
    )
}
_SIMILARITIES: dict[str, type[Similarity]] = {
    kind.name: kind for kind in (Dot, ScaledDot, Cosine, General, Additive, Alibi)
}


class Unwritten(Similarity):
    """A user's own similarity in a trace that was loaded: its scores are there, it is not."""

    name = Own.name

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        raise InputError(
            "the similarity was a function of the user's, which a trace file cannot hold: its "
            "scores and weights are there, but nothing new can be computed with it."
        )


def write(thing: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """JSON for a description; its tensors go into `tensors`, named from `place` on."""
    if isinstance(thing, Tensor):
        tensors[place] = thing.detach()
        return {"tensor": place}
    if isinstance(thing, Similarity):
        return _write_similarity(thing, tensors, place)
    if is_dataclass(thing) and type(thing).__name__ in _DESCRIPTIONS:
        parts = {f.name: getattr(thing, f.name) for f in fields(thing)}
        written = {name: write(part, tensors, f"{place}.{name}") for name, part in parts.items()}
        return {"kind": type(thing).__name__, **written}
    if thing == inf:
        return {"number": "inf"}  # JSON has no infinity
    if thing is None or isinstance(thing, str | int | float):
        return thing
    if isinstance(thing, tuple):
        parts = enumerate(thing)
        return {"tuple": [write(part, tensors, f"{place}.{i}") for i, part in parts]}
    raise InputError(f"a trace file cannot hold a {type(thing).__name__} ({place}).")


def read(written: Any, tensors: dict[str, Tensor]) -> Any:
    """The description that `write` wrote."""
    if not isinstance(written, dict):
        return written
    if "tuple" in written:
        return tuple(read(part, tensors) for part in written["tuple"])
    if "tensor" in written:
        return tensors[written["tensor"]]
    if "number" in written:
        return float(written["number"])
    if "named" in written:
        return _read_similarity(written, tensors)
    kind = _DESCRIPTIONS.get(written.get("kind", ""))
    if kind is None:
        raise FileError(
            f"the trace describes a {written.get('kind')!r}, which this version of regard does "
            "not know: update regard, or trace again."
        )
    parts = {name: read(part, tensors) for name, part in written.items() if name != "kind"}
    return kind(**parts)


def _write_similarity(thing: Similarity, tensors: dict[str, Tensor], place: str) -> Any:
    state = thing.state_dict() if isinstance(thing, General | Additive) else {}
    weights = {name: write(weight, tensors, f"{place}.{name}") for name, weight in state.items()}
    sizes = [thing.n_heads] if isinstance(thing, Alibi) else []
    return {"named": thing.name, "sizes": sizes, "weights": weights}


def _read_similarity(written: dict[str, Any], tensors: dict[str, Tensor]) -> Similarity:
    if written["named"] not in _SIMILARITIES:
        return Unwritten()
    kind = _SIMILARITIES[written["named"]]
    state = {name: read(weight, tensors) for name, weight in written["weights"].items()}
    if kind is General:
        made = General(*state["weight"].shape)
    elif kind is Additive:
        hidden, d_q = state["to_query.weight"].shape
        made = Additive(d_q, state["to_key.weight"].size(1), hidden)
    else:
        return kind(*written["sizes"])
    made.load_state_dict(state)
    return made.requires_grad_(False).to(next(iter(state.values())).dtype)
