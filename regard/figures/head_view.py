"""The part of a trace that a figure shows: a head of an attention site, with its tokens."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from regard.analysis.heads import Selection, default_selection, is_cross, sides
from regard.errors import InputError, UnknownNameError
from regard.evaluation.alignment import membership
from regard.figures.captions import caption
from regard.trace.site import Site
from regard.trace.trace import Trace


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array of float32."""
    return tensor.detach().float().cpu().numpy()


@dataclass(frozen=True)
class HeadView:
    """One head of one attention site; by default the most readable one of the trace."""

    trace: Trace
    path: str | None = None
    head: int | None = None
    query: int | None = None
    style: str | None = None
    language: str = "en"

    @cached_property
    def _most_readable(self) -> Selection:
        return default_selection(self.trace)

    @cached_property
    def site(self) -> Site:
        """The attention site."""
        return self.trace[self.path or self._most_readable.site]

    @property
    def head_index(self) -> int:
        """The index of the head."""
        if self.head is None:
            best = self._most_readable
            return best.head if self.site.path == best.site else 0
        self.site.weights(self.head, rows=[])  # raises for a head that does not exist
        return self.head

    @property
    def query_index(self) -> int:
        """The index of the query; by default the most readable one."""
        n_query = self.site.n_query
        if self.query is None:
            best = self._most_readable
            return best.query if self.site.path == best.site else n_query - 1
        if not 0 <= self.query < n_query:
            raise UnknownNameError(
                f"{self.site.path} has no query {self.query}; it has {n_query}, 0 to {n_query - 1}."
            )
        return self.query

    def weights(self) -> np.ndarray:
        """Return the head's weights, query × key."""
        head = self.head_index if self.site.lead else None
        return to_numpy(self.site.weights(head))

    @property
    def writes(self) -> bool:
        """True if queries are labeled with the tokens that they predict (cross-attention)."""
        return is_cross(self.site) and "output" in self.trace.tokens

    def labels(self) -> tuple[list[str], list[str]]:
        """Return the tokens of queries and keys."""
        asking, answering = sides(self.trace, self.site.path)
        return (
            self._tokens("output" if self.writes else asking, self.site.n_query),
            self._tokens(answering, self.site.n_key),
        )

    def _tokens(self, side: str, count: int) -> list[str]:
        tokens = self.trace.tokens.get(side, [])
        return tokens if len(tokens) == count else [str(i) for i in range(count)]

    def axis_titles(self) -> tuple[str, str]:
        """Return the titles of the query axis and the key axis."""
        queries = "written tokens" if self.writes else "query tokens"
        return caption(queries, self.language), caption("key tokens", self.language)

    def title(self) -> str:
        """Return the site's path and the head."""
        return f"{self.site.path} · {caption('head', self.language)} {self.head_index}"

    def word_weights(self) -> tuple[np.ndarray, list[str], list[str]]:
        """Return weights summed by source word and averaged by target word, and both words."""
        trace = self.trace
        if not self.writes:
            crossing = ", ".join(path for path in trace if is_cross(trace[path]))
            others = f"sites that do are {crossing}" if crossing else "no site of this model does"
            raise InputError(f"{self.site.path} does not align two texts; {others}.")
        target, target_words = _words(trace, "output")
        source, source_words = _words(trace, "source")
        by_target = membership(target, len(target_words))
        summed = by_target.T @ self.weights() @ membership(source, len(source_words))
        return summed / by_target.sum(axis=0)[:, None], target_words, source_words


def _words(trace: Trace, side: str) -> tuple[list[int | None], list[str]]:
    """Return the word index of each token, and the words; tokens if the trace has no words."""
    tokens, numbers = trace.tokens[side], trace.words.get(side, [])
    if all(number is None for number in numbers):
        numbers = range(len(tokens))
    joined: dict[int, str] = {}
    for token, number in zip(tokens, numbers, strict=True):
        if number is not None:
            joined[number] = joined.get(number, "") + token.strip().removeprefix("##")
    order = {number: index for index, number in enumerate(sorted(joined))}
    indices = [None if number is None else order[number] for number in numbers]
    return indices, [joined[number] for number in order]
