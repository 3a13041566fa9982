"""The tree of a beam search: every sequence considered, and why it was dropped or kept."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

FATES = {
    "kept": "one of the best of its step, so it was continued",
    "finished": "ended by its end token or the length limit, a candidate for the result",
    "pruned": "other sequences of its step were better",
    "overtaken": "could have been continued, but the sentence was done",
}
"""Outcomes of a sequence, each with its explanation."""


@dataclass(frozen=True)
class BeamEvent:
    """One sequence at one step of the search."""

    step: int
    ids: tuple[int, ...]
    log_prob: float
    score: float
    fate: str  # one of FATES


@dataclass(frozen=True, slots=True)
class Node:
    """One sequence at one step: its parent's tokens and one more."""

    step: int  # number of tokens, including the end token
    parent: int | None  # index of the parent node; None for sequences of one token
    id: int
    token: str
    log_prob: float  # of the whole sequence
    score: float  # log-probability divided by the length penalty
    fate: str  # one of FATES


@dataclass(frozen=True, slots=True)
class BeamTree:
    """All nodes of one sentence's search, ordered by step and then by log-probability."""

    nodes: tuple[Node, ...]

    def path(self, index: int) -> list[Node]:
        """Return the nodes from the first token to this one."""
        found: list[Node] = []
        at: int | None = index
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[::-1]

    @property
    def best(self) -> int:
        """The index of the last node of the best sequence."""
        ends = [i for i, node in enumerate(self.nodes) if node.fate == "finished"]
        return max(ends, key=lambda i: self.nodes[i].score)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the nodes as dictionaries, numbers rounded to six digits."""
        names = ("step", "parent", "token", "log_prob", "score", "fate")
        every = [{name: getattr(node, name) for name in names} for node in self.nodes]
        return [one | {n: round(one[n], 6) for n in ("log_prob", "score")} for one in every]


def build_tree(events: Iterable[BeamEvent], names: Sequence[str]) -> BeamTree:
    """Build the tree of recorded events; `names` are the tokens by id."""
    nodes: list[Node] = []
    parents: dict[tuple[int, ...], int] = {}
    for event in sorted(events, key=lambda event: (event.step, -event.log_prob)):
        *before, id = event.ids
        parent = parents.get(tuple(before))
        if event.fate == "kept":
            parents[event.ids] = len(nodes)
        name = names[id] if id < len(names) else str(id)
        nodes.append(Node(event.step, parent, id, name, event.log_prob, event.score, event.fate))
    return BeamTree(tuple(nodes))
