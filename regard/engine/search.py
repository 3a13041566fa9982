"""What is asked of an engine and what it answers, in token ids: the same for all engines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from regard.errors import InputError


@dataclass(frozen=True)
class SearchOptions:
    """How to search for translations; engines agree on what each of these means.

    Args:
        beam: sequences kept at every token; 1 is greedy search.
        n_best: translations for each sentence.
        alpha: scores are log-probabilities divided by length^alpha.
        factor: the most tokens written for each token of the source …
        extra: … and this many more.
    """

    beam: int = 4
    n_best: int = 1
    alpha: float = 1.0
    factor: float = 2.0
    extra: int = 20

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise InputError(f"beam is {self.beam}; it must be 1 (greedy) or more.")
        if not 1 <= self.n_best <= self.beam:
            raise InputError(
                f"{self.n_best} best translations were asked for with a beam of {self.beam}; ask "
                "for at least 1 and at most as many as the beam is wide."
            )
        if not self.alpha >= 0:
            raise InputError(f"alpha is {self.alpha}; it must be 0 or more.")

    def limit(self, n_source: int) -> int:
        """The most tokens to write for a source of this many, the end token included."""
        return int(self.factor * n_source) + self.extra


@dataclass(frozen=True)
class Found:
    """One translation as token ids, without start and end."""

    ids: list[int]
    score: float


@runtime_checkable
class Pending(Protocol):
    """Sentences that are being translated."""

    def wait(self) -> list[list[Found]]:
        """The n best translations of each sentence, in the order they were given."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Something that translates token ids."""

    name: str

    def submit(self, sources: Sequence[list[int]], options: SearchOptions) -> Pending:
        """Begin to translate these sentences."""
        ...
