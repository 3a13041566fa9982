"""What decoding returns: sequences of tokens with what they are worth."""

from dataclasses import dataclass

from regard.errors import InputError, UnknownNameError, nearest

PENALTIES = ("gnmt", "average", "none")
STOPS = ("beam", "bound", "first")
"""When a sentence is done; see `regard.decoding.beam.BeamOptions`."""


@dataclass(frozen=True)
class Hypothesis:
    """One written sequence, without its start token and without its end token."""

    ids: list[int]
    log_probs: list[float]
    """Of each token, and of the end token where the sequence is finished."""
    score: float
    """What hypotheses are ranked by: the summed log-probability over the length penalty."""
    finished: bool
    """Whether the model itself ended it, and not the length limit."""

    @property
    def log_prob(self) -> float:
        """The logarithm of the whole sequence's probability."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class LengthPenalty:
    """What a summed log-probability is divided by, so that short sequences do not always win.

    gnmt: ((5 + length) / 6)^alpha (Wu et al. 2016; the Transformer's paper uses alpha 0.6);
    average: length^alpha; none: 1. The end token counts.
    """

    kind: str = "gnmt"
    alpha: float = 0.6

    def __post_init__(self) -> None:
        if self.kind not in PENALTIES:
            raise UnknownNameError(
                f"there is no length penalty {self.kind!r}; {nearest(self.kind, PENALTIES)}."
            )
        if not self.alpha >= 0:
            raise InputError(f"the length penalty's alpha is {self.alpha}; it must be 0 or more.")

    def __call__(self, length: int) -> float:
        """The divisor for a sequence of this many tokens."""
        if self.kind == "none":
            return 1.0
        return ((5 + length) / 6) ** self.alpha if self.kind == "gnmt" else length**self.alpha
