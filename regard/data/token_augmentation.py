"""Random changes to token ids in training: masked tokens and undone merges."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.data.batches import uniform_draws
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

_NONE = -1


@dataclass(frozen=True)
class Masking:
    """Hides tokens that a masked language model has to predict (Devlin et al. 2019).

    Of the tokens to predict, most become the mask, some a random token, and some stay unchanged.
    """

    mask_id: int
    ordinary_ids: tuple[int, ...]
    """The tokens that may be hidden, and from which random tokens are drawn."""
    share: float = 0.15
    masked: float = 0.8
    replaced: float = 0.1

    def __post_init__(self):
        if not 0 < self.share <= 1 or min(self.masked, self.replaced) < 0:
            raise InputError(f"The share of hidden tokens is {self.share}; it must be in (0, 1].")
        if not self.ordinary_ids:
            raise InputError("The vocabulary has no ordinary token that could be hidden.")
        if self.masked + self.replaced > 1:
            raise InputError(f"masked + replaced is {self.masked + self.replaced}, more than 1.")

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float = 0.15) -> "Masking":
        if tokenizer.mask_id is None:
            raise InputError("The tokenizer has no mask token, which masked training needs.")
        ordinary = (id for id in range(len(tokenizer)) if id not in tokenizer.special_ids)
        return cls(tokenizer.mask_id, tuple(ordinary), share)

    @cached_property
    def _choices(self) -> np.ndarray:
        return np.array(self.ordinary_ids, np.int64)

    @cached_property
    def _is_ordinary(self) -> np.ndarray:
        table = np.zeros(self._choices.max() + 2, bool)  # the last entry is for all ids above
        table[self._choices] = True
        return table

    def hide(
        self, ids: np.ndarray, *, seed: int, epoch: int, examples: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids with some hidden (example × token), and a mask of those to predict.

        Every example with an ordinary token has at least one to predict. The result depends on the
        example's number, not on its batch.
        """
        ordinary = self._is_ordinary[np.minimum(ids, len(self._is_ordinary) - 1)]
        rows, width = ids.shape
        draws = uniform_draws(seed, epoch, np.asarray(examples), 3 * width)
        which, fate, other = np.moveaxis(draws.reshape(rows, width, 3), -1, 0)
        selected = self._select(ordinary, which)
        choice = self._choices[(other * len(self._choices)).astype(np.int64)]
        changed = np.where(fate < self.masked + self.replaced, choice, ids)
        changed = np.where(fate < self.masked, self.mask_id, changed)
        return np.where(selected, changed, ids), selected

    def _select(self, ordinary: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Select the share of each row's ordinary tokens, and at least one."""
        available = ordinary.sum(axis=1, keepdims=True)
        wanted = np.minimum(np.maximum(np.rint(self.share * available), 1), available)
        order = np.argsort(np.where(ordinary, draws, 2.0), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(ordinary.shape[1])[None, :], axis=1)
        return rank < wanted


@dataclass(frozen=True)
class MergeDropout:
    """Splits tokens at random into the two they were merged from, repeatedly.

    Similar to BPE-dropout (Provilkov et al. 2020), which skips merges while it tokenizes a text;
    undoing them afterwards does not need the text.
    """

    parents: np.ndarray  # the two tokens that every token was merged from (token × 2), or -1
    share: float  # the probability that a token is split

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float) -> "MergeDropout":
        rules = json.loads(tokenizer.backend.to_str())["model"]
        if not rules.get("merges"):
            raise InputError(
                f"tokenizer.split is {share:g}, but this tokenizer has no merges to undo: leave it "
                'out, or choose the kind "bpe" or "byte-bpe".'
            )
        prefix = rules.get("continuing_subword_prefix") or ""
        parents = np.full((len(tokenizer), 2), _NONE, np.int64)
        for merge in reversed(rules["merges"]):  # of two merges to one token, the first counts
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            both = rules["vocab"][left + right.removeprefix(prefix)]
            parents[both] = rules["vocab"][left], rules["vocab"][right]
        return cls(parents, share)

    def apply(
        self,
        lists: Sequence[np.ndarray],
        *,
        seed: int,
        epoch: int,
        examples: Sequence[int],
        longest: int,
    ) -> list[np.ndarray]:
        """Split tokens of these examples; one that would become longer than `longest` is kept."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids, rows = np.concatenate(lists).astype(np.int64), np.arange(len(lists)).repeat(lengths)
        new, numbers, turn = np.ones(len(ids), bool), np.asarray(examples), 0
        while new.any():
            draws = uniform_draws(seed + turn, epoch, numbers, int(lengths.max()))
            columns = np.arange(len(ids)) - (lengths.cumsum() - lengths)[rows]
            split = new & (self.parents[ids, 0] != _NONE) & (draws[rows, columns] < self.share)
            counts = 1 + split
            first = (counts.cumsum() - counts)[split]
            halves = self.parents[ids[split]]
            ids, rows, new = ids.repeat(counts), rows.repeat(counts), np.zeros(counts.sum(), bool)
            ids[first], ids[first + 1] = halves.T
            new[first] = new[first + 1] = True
            lengths, turn = np.bincount(rows, minlength=len(lists)), turn + 1
        pieces = np.split(ids, lengths.cumsum()[:-1])
        return [
            before if len(after) > longest else after
            for before, after in zip(lists, pieces, strict=True)
        ]
