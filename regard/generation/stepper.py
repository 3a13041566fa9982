"""Models as something that reads one more token and says what could come next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

Lengths = Int[Tensor, "batch"]


class Stepper(ABC):
    """Rows of unfinished text, each extended by one token at a time."""

    n_rows: int
    device = torch.device("cpu")

    @abstractmethod
    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Log-probabilities of the token after `ids`, which each row reads now."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Go on with these rows, in this order; a row may be kept several times or not at all."""


@runtime_checkable
class Translator(Protocol):
    """An encoder–decoder of any family, as far as decoding knows it."""

    def encode(self, source_ids: Tensor, source_lengths: Any = None) -> Any: ...
    def decode(
        self, target_ids: Tensor, memory: Any, source_lengths: Any = None, *, cache: Any = None
    ) -> Tensor: ...
    def project(self, states: Tensor, *, first: int = 0) -> Tensor: ...
    def new_cache(self) -> Any: ...


@runtime_checkable
class Writer(Protocol):
    """A decoder-only model, as far as decoding knows it."""

    def states(
        self, ids: Tensor, lengths: Any = None, *, cache: Any = None, side: str = "right"
    ) -> Tensor: ...
    def project(self, states: Tensor, *, first: int = 0) -> Tensor: ...
    def new_cache(self) -> Any: ...


class TranslationStepper(Stepper):
    """An encoder–decoder that has read its source; keys and values are computed once each."""

    def __init__(
        self,
        model: Translator,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
    ) -> None:
        self.model = model
        self.memory = model.encode(source_ids, source_lengths)
        self.lengths = source_lengths
        self.cache = model.new_cache()
        self.n_rows, self.device = len(source_ids), source_ids.device
        self._first = 0

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        states = self.model.decode(ids, self.memory, self.lengths, cache=self.cache)
        self._first += ids.size(1)
        logits = self.model.project(states[:, -1:], first=self._first - 1)
        return log_softmax(logits[:, 0])

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        for site in self.cache.values():
            site.keep(rows)
        self.n_rows = len(rows)


class NarrowStepper(TranslationStepper):
    """One that writes only some tokens: the others' rows of the last product are left out."""

    def __init__(
        self,
        model: Translator,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        candidates: Int[Tensor, "candidate"],
    ) -> None:
        super().__init__(model, source_ids, source_lengths)
        known: Any = model
        matrix = (known.projection or known.tokens).weight
        bias = getattr(known, "logits_bias", None)
        self.candidates, self.n_vocab = candidates, len(matrix)
        self._matrix = matrix[candidates]
        self._bias = None if bias is None else bias[candidates]

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        states = self.model.decode(ids, self.memory, self.lengths, cache=self.cache)
        known = log_softmax(functional.linear(states[:, -1], self._matrix, self._bias))
        everything = known.new_full((len(ids), self.n_vocab), -inf)
        return everything.index_copy_(1, self.candidates, known)


class WritingStepper(Stepper):
    """A decoder-only model; prompts of different length are padded on the left."""

    def __init__(self, model: Writer, lengths: Int[Tensor, "batch"]) -> None:
        self.model = model
        self.lengths = lengths  # of the prompts; grows with every token
        self.even = bool((lengths == lengths[0]).all())
        self.cache = model.new_cache()
        self.n_rows, self.device = len(lengths), lengths.device
        self._read = 0

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        if self._read:
            self.lengths = self.lengths + ids.size(1)
        lengths = None if self.even else self.lengths
        states = self.model.states(ids, lengths, cache=self.cache, side="left")
        self._read += ids.size(1)
        logits = self.model.project(states[:, -1:], first=self._read - 1)
        return log_softmax(logits[:, 0])

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.lengths = self.lengths[rows]
        for site in self.cache.values():
            site.keep(rows)
        self.n_rows = len(rows)


class Ensemble(Stepper):
    """Several models that write together: their probabilities are averaged at every token."""

    def __init__(self, members: Sequence[Stepper]) -> None:
        self.members = list(members)
        self.n_rows, self.device = self.members[0].n_rows, self.members[0].device

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        votes = torch.stack([member.step(ids) for member in self.members])
        return torch.logsumexp(votes, dim=0) - torch.tensor(float(len(self.members))).log()

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        for member in self.members:
            member.keep(rows)
        self.n_rows = len(rows)


def log_softmax(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities, in float32 where logits are in half precision."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return torch.log_softmax(logits.float() if half else logits, dim=-1)


def without(
    log_probs: Float[Tensor, "rows vocab"], ids: Sequence[int]
) -> Float[Tensor, "rows vocab"]:
    """The same with these tokens made impossible; what is left is not made larger."""
    if not ids:
        return log_probs
    return log_probs.index_fill(-1, torch.tensor(list(ids), device=log_probs.device), -inf)
