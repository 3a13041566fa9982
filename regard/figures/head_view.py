"""The part of a trace that a figure shows: a head of an attention site, with its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.analysis.heads import Selection, default_selection, sides
from regard.errors import InputError, UnknownNameError
from regard.figures.captions import caption
from regard.trace.site import Site
from regard.trace.trace import Trace


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
        return self.site.weights(head).detach().float().cpu().numpy()

    @property
    def writes(self) -> bool:
        """True if queries are labeled with the tokens that they predict (cross-attention)."""
        return self.site.path.endswith("cross") and "output" in self.trace.tokens

    def labels(self) -> tuple[list[str], list[str]]:
        """Return the tokens of queries and keys."""
        asking, answering = sides(self.site.path)
        return (
            self._tokens("output" if self.writes else asking, self.site.n_query),
            self._tokens(answering, self.site.n_key),
        )

    def _tokens(self, side: str, count: int) -> list[str]:
        tokens = self.trace.tokens.get(side, [])
        return tokens if len(tokens) == count else [str(i) for i in range(count)]

    def axis_titles(self) -> tuple[str, str]:
        """Return the titles of the query axis and the key axis."""
        queries = caption("written tokens" if self.writes else "query tokens", self.language)
        return queries, caption("key tokens", self.language)

    def title(self) -> str:
        """Return the site's path and the head."""
        return f"{self.site.path} · {caption('head', self.language)} {self.head_index}"

    def word_weights(self) -> tuple[np.ndarray, list[str], list[str]]:
        """Return weights between words, with target and source words.

        Weights are summed over the tokens of a source word and averaged over those of a target
        word.
        """
        trace, site = self.trace, self.site
        if not self.writes:
            crossing = ", ".join(path for path in trace if path.endswith("cross"))
            raise InputError(
                f"{site.path} does not align two texts; "
                + (f"sites that do are {crossing}." if crossing else "no site of this model does.")
            )
        source, target = _word_numbers(trace, "source"), _word_numbers(trace, "output")
        summed = _sum_rows(_sum_rows(self.weights().T, source).T, target)
        counts = _sum_rows(np.ones((site.n_query, 1)), target)
        return summed / counts, _join_words(trace, "output"), _join_words(trace, "source")


def _word_numbers(trace: Trace, side: str) -> Sequence[int | None]:
    """Return each token's word number; tokens count as words if the trace has no words."""
    words = trace.words.get(side, [])
    known = any(number is not None for number in words)
    return words if known else range(len(trace.tokens[side]))


def _sum_rows(table: np.ndarray, words: Sequence[int | None]) -> np.ndarray:
    """Sum the rows of each word; rows of special tokens are left out."""
    order = sorted({number for number in words if number is not None})
    rows = [[i for i, number in enumerate(words) if number == word] for word in order]
    return np.stack([table[indices].sum(axis=0) for indices in rows])


def _join_words(trace: Trace, side: str) -> list[str]:
    """Return the words of a side, joined from their tokens."""
    parts: dict[int, str] = {}
    for token, number in zip(trace.tokens[side], _word_numbers(trace, side), strict=True):
        if number is not None:
            parts[number] = parts.get(number, "") + token.strip().removeprefix("##")
    return [parts[number] for number in sorted(parts)]
