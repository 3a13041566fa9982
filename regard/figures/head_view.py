"""The part of a trace that a figure shows: a head of an attention site, with its tokens."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from regard.analysis.heads import Selection, default_selection, is_cross, sides
from regard.errors import InputError, UnknownNameError, check_choice
from regard.evaluation.alignment import membership
from regard.figures.captions import caption, sublayer_label
from regard.figures.grid import MAX_LABELED, GridData
from regard.trace.site import Site
from regard.trace.trace import Trace

ORIENTATIONS = ("rows", "columns")


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array of float32."""
    return tensor.detach().float().cpu().numpy()


@dataclass(frozen=True)
class HeadView:
    """One head of one attention site; by default the most readable one of the trace.

    Args:
        key: index of the other word of "reference".
        queries: "rows" or "columns", where grids have their queries.
        hide_special: leave out tokens that belong to no word, such as [CLS].
        other: what "compare" sets next to this head.
    """

    trace: Trace
    path: str | None = None
    head: int | None = None
    query: int | None = None
    style: str | None = None
    language: str = "en"
    key: int | None = None
    queries: str = "rows"
    hide_special: bool = False
    other: "HeadView | None" = None

    def __post_init__(self) -> None:
        check_choice("queries", self.queries, ORIENTATIONS)

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
            return best.query if self.site.path == best.site else self._last_word()
        return self._check_index("query", self.query, n_query)

    def _last_word(self) -> int:
        words = self.trace.words.get(sides(self.trace, self.site.path)[0], [])
        known = [i for i, word in enumerate(words) if word is not None]
        return known[-1] if known and len(words) == self.site.n_query else self.site.n_query - 1

    @property
    def key_index(self) -> int | None:
        """The index of the key, if one was chosen."""
        return None if self.key is None else self._check_index("key", self.key, self.site.n_key)

    def _check_index(self, name: str, index: int, count: int) -> int:
        if not 0 <= index < count:
            raise UnknownNameError(
                f"{self.site.path} has no {name} {index}; it has {count}, 0 to {count - 1}."
            )
        return index

    @cached_property
    def rows(self) -> list[int]:
        """Indices of the queries that are shown."""
        asking, _ = sides(self.trace, self.site.path)
        return self._shown("output" if self.writes else asking, self.site.n_query)

    @cached_property
    def columns(self) -> list[int]:
        """Indices of the keys that are shown."""
        return self._shown(sides(self.trace, self.site.path)[1], self.site.n_key)

    def _shown(self, side: str, count: int) -> list[int]:
        words = self.trace.words.get(side, [])
        if not self.hide_special or len(words) != count or not any(w is not None for w in words):
            return list(range(count))
        return [i for i, word in enumerate(words) if word is not None]

    def table(self, name: str) -> np.ndarray:
        """Return "compared", "scores", "masked" or "weights" of the shown queries and keys."""
        head = self.head_index if self.site.lead else None
        found = getattr(self.site, name)(head, rows=self.rows, columns=self.columns)
        return to_numpy(found)

    def weights(self) -> np.ndarray:
        """Return the head's weights, query × key."""
        return self.table("weights")

    def row(self, name: str) -> np.ndarray:
        """Return one table's row of the chosen query, over the shown keys."""
        head = self.head_index if self.site.lead else None
        found = getattr(self.site, name)(head, rows=[self.query_index], columns=self.columns)
        return to_numpy(found)[0]

    @property
    def writes(self) -> bool:
        """True if queries are labeled with the tokens that they predict (cross-attention)."""
        return is_cross(self.site) and "output" in self.trace.tokens

    def labels(self) -> tuple[list[str], list[str]]:
        """Return the tokens of the shown queries and keys."""
        queries, keys = self.all_labels()
        return [queries[i] for i in self.rows], [keys[j] for j in self.columns]

    def all_labels(self) -> tuple[list[str], list[str]]:
        """Return the tokens of all queries and keys."""
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

    def grid(self, values: np.ndarray) -> GridData:
        """Return a table of the shown queries and keys with their tokens, turned as wanted."""
        return self.turn(GridData(values, *self.labels(), *self.axis_titles()))

    def turn(self, data: GridData) -> GridData:
        """Return the grid with its queries as rows or columns, as wanted."""
        return data.turned() if self.queries == "columns" else data

    def site_title(self) -> str:
        """Return the name of the site."""
        return sublayer_label(self.site.path, self.language, stack=True)

    def title(self) -> str:
        """Return the names of the site and the head."""
        if self.site.n_heads == 1:
            return self.site_title()
        return f"{self.site_title()} · {caption('head', self.language)} {self.head_index}"

    def notes(self, *keys: str) -> list[str]:
        """Return captions, and a line if special tokens are hidden."""
        hidden = len(self.columns) < self.site.n_key or len(self.rows) < self.site.n_query
        return [caption(key, self.language) for key in (*keys, *(["hidden"] if hidden else []))]

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
        weights = to_numpy(self.site.weights(self.head_index if self.site.lead else None))
        summed = by_target.T @ weights @ membership(source, len(source_words))
        return summed / by_target.sum(axis=0)[:, None], target_words, source_words


def check_keys(view: HeadView) -> None:
    """Refuse a site with more keys than a figure with a label for each can show."""
    if len(view.columns) > MAX_LABELED:
        raise InputError(
            f"{view.site.path} has {view.site.n_key} keys, but this figure can show at most "
            f"{MAX_LABELED}: give a shorter text."
        )


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
