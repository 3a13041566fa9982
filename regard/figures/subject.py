"""TODO."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.analysis.heads import Selection, readable, sides
from regard.errors import InputError, UnknownNameError
from regard.figures.captions import caption
from regard.trace.site import Site
from regard.trace.trace import Trace


@dataclass(frozen=True)
class Subject:
    """A part of a trace; what is not named is what reads best."""

    trace: Trace
    path: str | None = None
    head: int | None = None
    query: int | None = None
    style: str | None = None
    language: str = "en"

    @cached_property
    def _best(self) -> Selection:
        return readable(self.trace)

    @cached_property
    def site(self) -> Site:
        """The site that was named."""
        return self.trace[self.path or self._best.site]

    @property
    def number(self) -> int:
        """The head that was named, of those the site has."""
        if self.head is None:
            return self._best.head if self.site.path == self._best.site else 0
        self.site.weights(self.head, rows=[])  # which refuses heads that are not there
        return self.head

    @property
    def row(self) -> int:
        """The query that was named, or the one that is told best."""
        best = self._best
        if self.query is None:
            return best.query if self.site.path == best.site else self.site.n_query - 1
        if not 0 <= self.query < self.site.n_query:
            raise UnknownNameError(
                f"{self.site.path} has no query {self.query}; it has {self.site.n_query}, 0 to "
                f"{self.site.n_query - 1}."
            )
        return self.query

    def weights(self) -> np.ndarray:
        """The head's weights, query × key."""
        return self.site.weights(self._head).detach().float().numpy()

    @property
    def _head(self) -> int | None:
        return self.number if self.site.lead else None

    def names(self) -> tuple[list[str], list[str]]:
        """What queries and keys stand for; in cross-attention a query is the word it writes."""
        asks, answers = sides(self.site.path)
        if self.writes:
            asks = "output"
        return self._named(asks, self.site.n_query), self._named(answers, self.site.n_key)

    @property
    def writes(self) -> bool:
        """Whether queries are the words being written."""
        return self.site.path.endswith("cross") and "output" in self.trace.tokens

    def _named(self, side: str, count: int) -> list[str]:
        names = self.trace.tokens.get(side, [])
        return names if len(names) == count else [str(i) for i in range(count)]

    def axes(self) -> tuple[str, str]:
        """Who asks and who answers."""
        asks = caption("asks writing" if self.writes else "asks", self.language)
        return asks, caption("answers", self.language)

    def title(self) -> str:
        """Site and head."""
        return f"{self.site.path} · {caption('head', self.language)} {self.number}"

    def words(self) -> tuple[np.ndarray, list[str], list[str]]:
        """Weights between words: summed over a source word's tokens, mean over a target word's."""
        trace, site = self.trace, self.site
        if not site.path.endswith("cross") or "output" not in trace.tokens:
            crossing = ", ".join(path for path in trace if path.endswith("cross"))
            raise InputError(
                f"{site.path} does not align two texts; "
                + (f"those that do are {crossing}." if crossing else "no site of this model does.")
            )
        received = _grouped(self.weights().T, _numbers(trace, "source"))
        table = _grouped(received.T, _numbers(trace, "output"))
        counts = _grouped(np.ones((site.n_query, 1)), _numbers(trace, "output"))
        return table / counts, _joined(trace, "output"), _joined(trace, "source")


def _numbers(trace: Trace, side: str) -> Sequence[int | None]:
    """The word of each token; every token is one where the trace knows of none."""
    words = trace.words.get(side, [])
    known = any(number is not None for number in words)
    return words if known else range(len(trace.tokens[side]))


def _grouped(table: np.ndarray, words: Sequence[int | None]) -> np.ndarray:
    """Rows of the same word added; tokens without a word are left out."""
    order = sorted({number for number in words if number is not None})
    rows = [[i for i, number in enumerate(words) if number == one] for one in order]
    return np.stack([table[places].sum(axis=0) for places in rows])


def _joined(trace: Trace, side: str) -> list[str]:
    """The words of a side, put together from their tokens."""
    parts: dict[int, str] = {}
    for token, number in zip(trace.tokens[side], _numbers(trace, side), strict=True):
        if number is not None:
            parts[number] = parts.get(number, "") + token.strip().removeprefix("##")
    return [parts[number] for number in sorted(parts)]
