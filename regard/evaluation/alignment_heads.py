"""TODO."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.analysis.heads import ALIGNING, Place
from regard.errors import InputError
from regard.evaluation.alignment import (
    Alignment,
    Gold,
    alignment_of,
    between_words,
    error_rate,
    group_tokens,
)
from regard.evaluation.cross_attention import crossing_places, crossing_weights
from regard.evaluation.occlusion import erasure_gold
from regard.files import cache_folder, write_atomic
from regard.generation.ctranslate2_engine import fingerprint
from regard.generation.translator import TranslatedPart, Translation
from regard.model import Model
from regard.text.tokenizer import Tokenizer

_TRIED = 16
"""How many translations are taken apart if nobody has said which heads to use."""


_AT_MOST = 8
"""How many heads are averaged at most."""


@dataclass(frozen=True)
class Heads:
    """Heads whose mean weights align words."""

    places: tuple[Place, ...]
    after: bool
    """Whether a word is aligned by what is read after it is written, not by what is read to write
    it (Chen et al. 2020)."""
    source: str
    """What they were chosen by: links of "gold", a "dictionary" or "erasure"; "none" if no link
    is known."""
    error: float | None = None
    """Alignment error rate of their mean on the pairs they were chosen on."""
    n_links: int = 0
    """How many sure links those pairs have."""

    def to_json(self) -> dict[str, Any]:
        """As config.json and the cache hold it."""
        return {**self.__dict__, "places": [list(place) for place in self.places]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Heads":
        """What `to_json` gave."""
        try:
            places = tuple((str(site), int(head)) for site, head in given["places"])
            return cls(**{**given, "places": places})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{ALIGNING} is {given!r}, which names no heads.") from error


@dataclass(frozen=True)
class HeadError:
    """How well one head aligns."""

    site: str
    head: int
    error: float
    """By what it reads to write a word …"""
    error_after: float
    """… and by what it reads after that."""


@dataclass(frozen=True)
class Measured:
    """All heads, and the best choice among them."""

    heads: list[HeadError]
    best: Heads


class Aligner:
    """Aligns the words of translations by the attention that wrote them.

    Args:
        heads: which to use; without any, those are found that fit the first translations best.
    """

    def __init__(self, model: Model, heads: Heads | None = None) -> None:
        if model.tokenizer is None or model.target_tokenizer is None:
            raise InputError("a model without a tokenizer knows no words to align.")
        self.model, self.chosen = model, heads
        self.tokenizers: tuple[Tokenizer, Tokenizer] = model.tokenizer, model.target_tokenizer

    @classmethod
    def of_folder(cls, folder: Path, noted: Mapping[str, Any] | None = None) -> "Aligner":
        """With the heads of an earlier run, of the folder itself, or of `regard evaluate`."""
        model = Model.load(folder)
        given = noted or model.extras.get(ALIGNING) or _kept(folder)
        return cls(model, None if given is None else Heads.from_json(given))

    def align(self, translations: Sequence[Translation]) -> Iterator[Alignment]:
        """The alignment of each translation."""
        parts = [part for one in translations for part in one.parts if not part.copied]
        if self.chosen is None and parts:
            self.chosen = self.find_heads(parts)
        tables = self._tables(parts)
        for one in translations:
            yield alignment_of(one, tables, self.tokenizers)

    def _tables(self, parts: Sequence[TranslatedPart]) -> Iterator[np.ndarray]:
        if self.chosen is None:
            return
        for weights in crossing_weights(self.model, parts, self.chosen.places):
            yield _rows(weights.mean(axis=0), after=self.chosen.after)

    def find_heads(self, parts: Sequence[TranslatedPart]) -> Heads:
        """The heads that fit what leaving out words shows; long parts are not looked at."""
        some = sorted(parts, key=lambda part: abs(len(part.source_ids) - 12))[:_TRIED]
        golds = [erasure_gold(self.model, part, self._grouping(part)) for part in some]
        return self.measure(some, golds, source="erasure").best

    def measure(self, parts: Sequence[TranslatedPart], golds: Sequence[Gold], *, source: str) -> Measured:
        """The error of every head on pairs whose links are known, and the best choice."""
        places = self._places(parts[0])
        tables = [self._word_tables(part) for part in parts]
        errors = np.array(
            [
                [_error(tables, golds, [head], after) for head in range(len(places))]
                for after in (0, 1)
            ]
        )
        n_links = sum(len(gold.sure) for gold in golds)
        if not n_links:
            return Measured([], Heads(_last_but_one(places), after=False, source="none"))
        after = int(errors.min(axis=1).argmin())
        ranked = errors[after].argsort(kind="stable").tolist()
        choices = [ranked[:count] for count in range(1, min(_AT_MOST, len(ranked)) + 1)]
        scored = [(_error(tables, golds, choice, after), choice) for choice in choices]
        error, choice = min(scored, key=lambda one: one[0])  # fewer heads where equal
        best = Heads(tuple(places[i] for i in choice), bool(after), source, error, n_links)
        heads = [
            HeadError(*place, float(errors[0, i]), float(errors[1, i]))
            for i, place in enumerate(places)
        ]
        return Measured(heads, best)

    def _places(self, part: TranslatedPart) -> list[Place]:
        from regard.trace.capture import trace_model

        return crossing_places(trace_model(self.model, part.source_ids, part.ids))

    def _word_tables(self, part: TranslatedPart) -> np.ndarray:
        """Weights between words by all heads, before (0) and after (1) a word is written."""
        (weights,) = crossing_weights(self.model, [part])
        grouping = self._grouping(part)
        both = [between_words(_rows(weights, after=after), grouping) for after in (False, True)]
        return np.stack(both)

    def _grouping(self, part: TranslatedPart) -> Any:
        return group_tokens(part, *self.tokenizers)


def _last_but_one(places: Sequence[Place]) -> tuple[Place, ...]:
    """All heads of the layer that aligns best in most models (Garg et al. 2019)."""
    sites = list(dict.fromkeys(site for site, _ in places))
    return tuple(place for place in places if place[0] == sites[max(len(sites) - 2, 0)])


def _rows(weights: np.ndarray, *, after: bool) -> np.ndarray:
    """The row of each target token: what was read to write it, or what was read after it."""
    return weights[..., 1:, :] if after else weights[..., :-1, :]


def _error(
    tables: Sequence[np.ndarray], golds: Sequence[Gold], heads: Sequence[int], after: int
) -> float:
    """The error rate of the mean of some heads."""
    return error_rate(
        (_links(table[after, list(heads)].mean(axis=0)), gold)
        for table, gold in zip(tables, golds, strict=True)
    )


def _links(table: np.ndarray) -> list[tuple[int, int]]:
    if not table.size:
        return []
    best = table.argmax(axis=1)
    return [(int(source), target) for target, source in enumerate(best) if table[target].any()]


def keep_heads(folder: Path, heads: Heads) -> None:
    """Remember which heads of a model align best, for later translations."""
    with suppress(OSError):  # a cache that cannot be written only costs time
        write_atomic(_place(folder), json.dumps(heads.to_json()))


def _kept(folder: Path) -> Mapping[str, Any] | None:
    with suppress(OSError, ValueError):
        return json.loads(_place(folder).read_bytes())
    return None


def _place(folder: Path) -> Path:
    return cache_folder() / "heads" / f"{fingerprint(folder)}.json"
