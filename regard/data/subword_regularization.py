"""Merges undone by chance: a text comes in other pieces in every epoch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.batches import uniform_draws
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

_NONE = -1


@dataclass(frozen=True)
class MergeDropout:
    """Tokens cut, by chance, into the two that they were merged from, and these perhaps again.

    A relative of BPE-dropout (Provilkov et al. 2020), which leaves merges out while a text is cut:
    undone afterwards, they cost no second reading of the text.
    """

    parents: np.ndarray
    """The two tokens that every token was merged from (token × 2); -1 where there are none."""
    share: float
    """The probability that a token is cut."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float) -> "MergeDropout":
        """Undo the merges of this tokenizer."""
        rules = json.loads(tokenizer.backend.to_str())["model"]
        if not rules.get("merges"):
            raise InputError(
                f"tokenizer.split is {share:g}, but this tokenizer has no merges to undo: leave it "
                'out, or choose the kind "bpe" or "byte-bpe".'
            )
        prefix = rules.get("continuing_subword_prefix") or ""
        parents = np.full((len(tokenizer), 2), _NONE, np.int64)
        for merge in reversed(rules["merges"]):  # of two ways to one token, the first one is taken
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
        """These examples in smaller pieces; one that would be longer than `longest` stays."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        ids, rows = np.concatenate(lists).astype(np.int64), np.arange(len(lists)).repeat(lengths)
        new, numbers, turn = np.ones(len(ids), bool), np.asarray(examples), 0
        while new.any():
            chances = uniform_draws(seed + turn, epoch, numbers, int(lengths.max()))
            places = np.arange(len(ids)) - (lengths.cumsum() - lengths)[rows]
            cut = new & (self.parents[ids, 0] != _NONE) & (chances[rows, places] < self.share)
            counts = 1 + cut
            first = (counts.cumsum() - counts)[cut]
            halves = self.parents[ids[cut]]
            ids, rows, new = ids.repeat(counts), rows.repeat(counts), np.zeros(counts.sum(), bool)
            ids[first], ids[first + 1] = halves.T
            new[first] = new[first + 1] = True
            lengths, turn = np.bincount(rows, minlength=len(lists)), turn + 1
        pieces = np.split(ids, lengths.cumsum()[:-1])
        return [
            before if len(after) > longest else after
            for before, after in zip(lists, pieces, strict=True)
        ]
