"""The tree of a beam search: every sequence that was looked at, and what became of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

FATES = {
    "kept": "one of the best of its step: it went on",
    "finished": "it wrote its end (or reached the longest allowed) and competes for the result",
    "pruned": "others of its step were better",
    "overtaken": "it could go on, but the sentence was done",
}
"""What can become of a sequence, and why."""


@runtime_checkable
class Event(Protocol):
    """What beam search notes of one sequence at one step."""

    @property
    def step(self) -> int: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def score(self) -> float: ...
    @property
    def fate(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Node:
    """One sequence at one step: its parent's, and one more token."""

    step: int
    """How many tokens it has, its end included."""
    parent: int | None
    """Which node of the tree it grew out of; None for those of one token."""
    id: int
    token: str
    log_prob: float
    """Of the whole sequence."""
    score: float
    """The same over the length penalty: what finished sequences are ranked by."""
    fate: str
    """One of FATES."""


@dataclass(frozen=True, slots=True)
class BeamTree:
    """All nodes of one sentence's search, step by step, within a step the best first."""

    nodes: tuple[Node, ...]

    def path(self, index: int) -> list[Node]:
        """The nodes from the first token to this one."""
        found: list[Node] = []
        at: int | None = index
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[::-1]

    @property
    def best(self) -> int:
        """The node with which the winning sequence ends."""
        ends = [i for i, node in enumerate(self.nodes) if node.fate == "finished"]
        return max(ends, key=lambda i: self.nodes[i].score)

    def to_json(self) -> list[dict[str, Any]]:
        """The nodes as plain records; parents by their place in the list."""
        return [
            {
                "step": node.step,
                "parent": node.parent,
                "token": node.token,
                "log_prob": round(node.log_prob, 6),
                "score": round(node.score, 6),
                "fate": node.fate,
            }
            for node in self.nodes
        ]


def tree_of(events: Iterable[Event], names: Sequence[str]) -> BeamTree:
    """The tree of what beam search has noted; `names` are those of all ids."""
    # Fates are noted in the order they are decided: within a step, the best comes first here.
    ordered = sorted(events, key=lambda event: (event.step, -event.log_prob))
    nodes: list[Node] = []
    grown: dict[tuple[int, ...], int] = {}
    for event in ordered:
        *before, id = event.ids
        parent = grown.get(tuple(before))
        if event.fate == "kept":
            grown[event.ids] = len(nodes)
        name = names[id] if id < len(names) else str(id)
        nodes.append(Node(event.step, parent, id, name, event.log_prob, event.score, event.fate))
    return BeamTree(tuple(nodes))
