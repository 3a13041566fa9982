"""Whether two engines write the same; and where they do not, whether it was a tie."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from regard.engine.translator import Translation
from regard.engine.tree import BeamTree

TIE = 1e-4
"""How much nearly equal sequences may differ in log-probability or score."""


@dataclass(frozen=True)
class Agreement:
    """How many lines two engines translate alike."""

    lines: int
    same: int
    ties: int
    """Lines that differ because two sequences were equally good but for rounding."""

    @property
    def unexplained(self) -> int:
        """Lines that differ for another reason."""
        return self.lines - self.same - self.ties


def agreement(
    given: Sequence[Translation], searched: Sequence[Translation], end_id: int
) -> Agreement:
    """What an engine gave beside what another has searched, which has trees of its search."""
    pairs = list(zip(given, searched, strict=True))
    other = [(one, two) for one, two in pairs if one.tokens != two.tokens]
    ties = sum(_is_tie(one, two, end_id) for one, two in other)
    return Agreement(len(pairs), len(pairs) - len(other), ties)


def _is_tie(one: Translation, two: Translation, end_id: int) -> bool:
    parts = zip(one.parts, two.parts, strict=True)
    return all(
        mine.ids == other.ids
        or (other.tree is not None and missed_by(other.tree, mine.ids, end_id) <= TIE)
        for mine, other in parts
    )


def missed_by(tree: BeamTree, ids: Sequence[int], end_id: int) -> float:
    """How much a sequence lacked to win this search, at the step where it was dropped.

    Infinite if it was not even looked at.
    """
    at: int | None = None
    for id in (*ids, end_id):
        found = [i for i, n in enumerate(tree.nodes) if n.parent == at and n.id == id]
        if not found:
            return inf
        at, node = found[0], tree.nodes[found[0]]
        if node.fate == "finished":
            return tree.nodes[tree.best].score - node.score
        if node.fate != "kept":
            kept = [n.log_prob for n in tree.nodes if n.step == node.step and n.fate != "pruned"]
            return min(kept) - node.log_prob
    return inf
