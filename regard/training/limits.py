"""When training is over: by steps, epochs or the clock."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """How far a run has come."""

    step: int
    epochs: float
    seconds: float


@dataclass(frozen=True)
class Limits:
    """How far a run may go; whatever comes first ends it."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None

    def _shares(self, place: Place, reserve: float) -> dict[str, float]:
        """How much of each limit is used up."""
        shares = {}
        if self.steps is not None:
            shares["steps"] = place.step / self.steps
        if self.epochs is not None:
            shares["epochs"] = place.epochs / self.epochs
        if self.minutes is not None:
            shares["minutes"] = place.seconds / max(1.0, 60 * self.minutes - reserve)
        return shares

    def progress(self, place: Place, *, reserve: float = 0.0) -> float:
        """How much of the training is over, from 0 to 1.

        Args:
            reserve: seconds that the end needs for itself: evaluating and saving.
        """
        return min(1.0, max(self._shares(place, reserve).values(), default=0.0))

    def reached(self, place: Place, *, reserve: float = 0.0) -> str | None:
        """The limit that ends the run now, if one does."""
        done = [name for name, share in self._shares(place, reserve).items() if share >= 1]
        return done[0] if done else None
