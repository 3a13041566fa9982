"""What language models learn from: windows of a token stream, and tokens hidden by a mask."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.data.batches import uniform_draws
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer


class Blocks:
    """Random windows of one long stream of ids, without end; every step is always the same.

    A window holds `length` tokens to read and one more: token i + 1 is to be told from 0..i.

    Args:
        stream: the ids; may be memory-mapped.
        rows: how many windows each rank gets in a step.
    """

    def __init__(
        self,
        stream: np.ndarray,
        *,
        length: int,
        rows: int,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ):
        if length < 1 or rows < 1 or not 0 <= rank < ranks:
            raise InputError(
                f"length ({length}) and rows ({rows}) must be 1 or more, and rank ({rank}) "
                f"below ranks ({ranks})."
            )
        if len(stream) <= length:
            raise InputError(
                f"The text has {len(stream):,} tokens, too few for one window of {length:,} and "
                "the token after it: give more text or a smaller length."
            )
        self._stream = stream
        self._length = length
        self._rows = rows
        self._seed = seed
        self._rank, self._ranks = rank, ranks
        self.position = 0

    def batch(self, step: int) -> np.ndarray:
        """The windows of a step (row × length + 1)."""
        numbers = np.arange(self._rank * self._rows, (self._rank + 1) * self._rows)
        places = len(self._stream) - self._length
        starts = (uniform_draws(self._seed, step, numbers, 1)[:, 0] * places).astype(np.int64)
        windows = [self._stream[start : start + self._length + 1] for start in starts]
        return np.stack(windows).astype(np.int64)

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            self.position += 1
            yield self.batch(self.position - 1)

    def state(self) -> dict[str, int]:
        """Where this is, for `resume`; the same on every rank."""
        return {"epoch": 0, "position": self.position}

    def resume(self, state: dict[str, int]) -> None:
        """Go on where another, with the same stream and seed, has been."""
        self.position = state["position"]


def windows(stream: np.ndarray, *, length: int) -> Iterator[np.ndarray]:
    """The stream from beginning to end in windows that share one token, so that none is told twice.

    The last may be shorter. Every token but the very first is to be told exactly once.
    """
    for start in range(0, len(stream) - 1, length):
        yield stream[start : start + length + 1]


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden and how, for models that tell hidden tokens (Devlin et al. 2019).

    Of the tokens to be told, most become the mask, some another token, some stay as they are.
    """

    mask_id: int
    ordinary_ids: tuple[int, ...]
    """The tokens that may be hidden, and that may stand in for others."""
    share: float = 0.15
    masked: float = 0.8
    replaced: float = 0.1

    def __post_init__(self):
        if not 0 < self.share <= 1 or min(self.masked, self.replaced) < 0:
            raise InputError(f"The share of hidden tokens is {self.share}; it must be in (0, 1].")
        if not self.ordinary_ids:
            raise InputError("There is no ordinary token that could be hidden.")
        if self.masked + self.replaced > 1:
            raise InputError(f"masked + replaced is {self.masked + self.replaced}, more than 1.")

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float = 0.15) -> "Masking":
        """The masking that a tokenizer's vocabulary allows."""
        if tokenizer.mask_id is None:
            raise InputError("The tokenizer has no mask token, which masked training needs.")
        ids = range(len(tokenizer))
        return cls(
            tokenizer.mask_id, tuple(id for id in ids if id not in tokenizer.special_ids), share
        )

    @cached_property
    def _choices(self) -> np.ndarray:
        return np.array(self.ordinary_ids, np.int64)

    @cached_property
    def _is_ordinary(self) -> np.ndarray:
        table = np.zeros(self._choices.max() + 2, bool)  # the last entry stands for all above
        table[self._choices] = True
        return table

    def hide(
        self, ids: np.ndarray, *, seed: int, epoch: int, examples: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids with some of them hidden (example × token), and which are to be told.

        An example that has any ordinary token has at least one to be told. What is hidden depends
        on the example's number and not on the batch it comes in.
        """
        ordinary = self._is_ordinary[np.minimum(ids, len(self._is_ordinary) - 1)]
        rows, width = ids.shape
        chance = uniform_draws(seed, epoch, np.asarray(examples), 3 * width).reshape(rows, width, 3)
        told = self._chosen(ordinary, chance[..., 0])
        fate, other = chance[..., 1], chance[..., 2]
        choice = self._choices[(other * len(self._choices)).astype(np.int64)]
        changed = np.where(fate < self.masked + self.replaced, choice, ids)
        changed = np.where(fate < self.masked, self.mask_id, changed)
        return np.where(told, changed, ids), told

    def _chosen(self, ordinary: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """As many of each row's ordinary tokens as the share says, and one if it says none."""
        there = ordinary.sum(axis=1, keepdims=True)
        wanted = np.minimum(np.maximum(np.rint(self.share * there), 1), there)
        order = np.argsort(np.where(ordinary, chance, 2.0), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(ordinary.shape[1])[None, :], axis=1)
        return rank < wanted
