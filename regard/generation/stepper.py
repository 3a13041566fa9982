"""Incremental decoding: models that read one more token per row and predict the next one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, log
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.generation.sampling import repeating


class Stepper(ABC):
    """Rows of unfinished sequences, each extended by one token at a time."""

    n_rows: int
    device = torch.device("cpu")

    @abstractmethod
    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Append `ids` to each row and return the log-probabilities of the next token."""

    @abstractmethod
    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Keep these rows, in this order; a row may be repeated or dropped."""


class _CachedStepper(Stepper):
    """A module with cached keys and values, or without if its attention cannot use them."""

    def __init__(self, module: Any, lengths: Int[Tensor, "batch"]) -> None:
        cacheable = getattr(getattr(module, "decoder", None), "cacheable", True)
        self.module = module if cacheable else UncachedModule(module)
        self.cache = self.module.new_cache()
        self.lengths, self.n_rows, self.device = lengths, len(lengths), lengths.device
        self._n_read = 0

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.lengths, self.n_rows = self.lengths[rows], len(rows)
        for site in self.cache.values():
            site.keep(rows)

    def _predict(self, states: Float[Tensor, "rows new d_model"]) -> Float[Tensor, "rows vocab"]:
        self._n_read += states.size(1)
        return log_softmax(self.module.project(states[:, -1:], first=self._n_read - 1)[:, 0])


class TranslationStepper(_CachedStepper):
    """An encoder–decoder of any family; it predicts only the `candidates`, if there are any."""

    def __init__(
        self,
        module: Any,
        source_ids: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, "batch"],
        *,
        candidates: Int[Tensor, "candidate"] | None = None,
    ) -> None:
        super().__init__(module, source_lengths)
        self.memory, self.candidates = module.encode(source_ids, source_lengths), candidates
        if candidates is not None:
            matrix, bias = (module.projection or module.tokens).weight, module.logits_bias
            self._n_vocab, self._matrix = len(matrix), matrix[candidates]
            self._bias = None if bias is None else bias[candidates]

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        states = self.module.decode(ids, self.memory, self.lengths, cache=self.cache)
        if self.candidates is None:
            return self._predict(states)
        known = log_softmax(functional.linear(states[:, -1], self._matrix, self._bias))
        return spread(known, self.candidates, self._n_vocab)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.memory = self.memory[rows]
        super().keep(rows)


class DecoderStepper(_CachedStepper):
    """A decoder-only model; prompts of different lengths are padded on the left."""

    def __init__(self, module: Any, lengths: Int[Tensor, "batch"]) -> None:
        super().__init__(module, lengths)  # of the prompts; they grow with each token
        self.even = bool((lengths == lengths[0]).all())

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        if self._n_read:
            self.lengths = self.lengths + ids.size(1)
        lengths = None if self.even else self.lengths
        states = self.module.states(ids, lengths, cache=self.cache, side="left")
        return self._predict(states)


class UncachedModule:
    """A module that reads the whole target at each step: slow, but right for every attention."""

    def __init__(self, module: Any) -> None:
        self.module, self.config, self.project = module, module.config, module.project
        self.encode, self.parameters = getattr(module, "encode", None), module.parameters

    def decode(self, ids: Tensor, *sources: Any, cache: dict[str, "_ReadIds"]) -> Tensor:
        return self.module.decode(cache["read"].append(ids), *sources)[:, -ids.size(1) :]

    def states(self, ids: Tensor, lengths: Any, *, cache: dict[str, Any], side: str) -> Tensor:
        read = cache["read"].append(ids)
        return self.module.states(read, lengths, side=side)[:, -ids.size(1) :]

    def new_cache(self) -> dict[str, "_ReadIds"]:
        return {"read": _ReadIds()}


class _ReadIds:
    """The ids that each row has read, in place of cached keys and values."""

    ids: Tensor | None = None

    def append(self, ids: Tensor) -> Tensor:
        self.ids = ids if self.ids is None else torch.cat([self.ids, ids], dim=1)
        return self.ids

    def keep(self, rows: Tensor) -> None:
        self.ids = None if self.ids is None else self.ids[rows]


class Ensemble(Stepper):
    """Several models whose probabilities are averaged at each token."""

    def __init__(self, members: Sequence[Stepper]) -> None:
        self.members = list(members)
        self.n_rows, self.device = self.members[0].n_rows, self.members[0].device

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        votes = torch.stack([member.step(ids) for member in self.members])
        return torch.logsumexp(votes, dim=0) - log(len(self.members))

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        for member in self.members:
            member.keep(rows)
        self.n_rows = len(rows)


class SuppressingStepper(Stepper):
    """A stepper for which some tokens are impossible; the others share their probability.

    The end token is impossible before `min_length` tokens.
    """

    def __init__(
        self, inner: Stepper, suppressed: Sequence[int], *, end_id: int, min_length: int = 0
    ) -> None:
        self.inner, self.min_length = inner, min_length
        self.n_rows, self.device = inner.n_rows, inner.device
        self._suppressed = torch.tensor(suppressed, dtype=torch.long, device=inner.device)
        self._with_end = torch.tensor([*suppressed, end_id], device=inner.device)
        self._length = -1  # the start token does not count

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        self._length += ids.size(1)
        barred = self._with_end if self._length < self.min_length else self._suppressed
        return torch.log_softmax(self.inner.step(ids).index_fill(1, barred, -inf), dim=-1)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.inner.keep(rows)
        self.n_rows = len(rows)


class NoRepeatStepper(Stepper):
    """A stepper for which a token is impossible that would repeat an n-gram of its row."""

    def __init__(self, inner: Stepper, size: int) -> None:
        self.inner, self.size = inner, size
        self.n_rows, self.device = inner.n_rows, inner.device
        self._texts: list[list[int]] = [[] for _ in range(inner.n_rows)]

    def step(self, ids: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        barred = torch.zeros_like(log_probs := self.inner.step(ids), dtype=torch.bool)
        self._texts = [[*a, *b] for a, b in zip(self._texts, ids.tolist(), strict=True)]
        for row, text in enumerate(self._texts):
            barred[row, repeating(text[1:], self.size)] = True  # the start token does not count
        return torch.log_softmax(log_probs.masked_fill(barred, -inf), dim=-1)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        self.inner.keep(rows)
        self._texts = [list(self._texts[row]) for row in rows.tolist()]
        self.n_rows = len(rows)


def log_softmax(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """Return log-probabilities, in float32 if the logits have half precision."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return torch.log_softmax(logits.float() if half else logits, dim=-1)


def spread(
    values: Float[Tensor, "rows candidate"], candidates: Int[Tensor, "candidate"], n_vocab: int
) -> Float[Tensor, "rows vocab"]:
    """Put the candidates' values into rows of the whole vocabulary; the rest is -inf."""
    everything = values.new_full((len(values), n_vocab), -inf)
    return everything.index_copy_(1, candidates, values)
