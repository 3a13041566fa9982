"""Word alignment by attention heads: choosing the best ones, and aligning translations by them.

Heads are chosen by pairs whose links are known: from people, from a dictionary (`Lexicon`), or
by occlusion, where a source word is left out and the target word that becomes improbable is linked
to it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis.heads import ALIGNMENT_HEADS, HeadPath, is_cross
from regard.errors import InputError
from regard.evaluation.alignment import (
    Alignment,
    Gold,
    WordIndices,
    alignment_of,
    error_rate,
    membership,
    word_indices,
    word_weights,
)
from regard.files import cache_folder, write_atomic
from regard.generation.ctranslate2_engine import fingerprint
from regard.generation.torch_engine import pad_ids
from regard.generation.translator import TranslatedPart, Translation
from regard.model import Model, load
from regard.text.tokenizer import Tokenizer
from regard.trace.trace import Trace
from regard.trace.watch import watch

_BATCH = 32
_OCCLUSION_PAIRS = 16  # translations that choose the heads if none are known
_MAX_HEADS = 8  # heads that are averaged at most


@dataclass(frozen=True)
class AlignmentHeads:
    """Heads whose mean weights align words."""

    places: tuple[HeadPath, ...]
    after: bool
    """True if a word is aligned by what is read after it is written (Chen et al. 2020)."""
    source: str  # links that chose the heads: "gold", "dictionary", "occlusion", or "none"
    error: float | None = None  # alignment error rate on the pairs that chose the heads
    n_links: int = 0  # number of sure links of these pairs

    def to_json(self) -> dict[str, Any]:
        """Return the heads as config.json and the cache have them."""
        return {**self.__dict__, "places": [list(place) for place in self.places]}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "AlignmentHeads":
        """Read the result of `to_json`."""
        try:
            places = tuple((str(site), int(head)) for site, head in given["places"])
            return cls(**{**given, "places": places})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{ALIGNMENT_HEADS} is {given!r}, which names no heads.") from error


@dataclass(frozen=True)
class HeadError:
    """Alignment error rates of one head."""

    site: str
    head: int
    error: float  # by the weights with which a word is written
    error_after: float  # by the weights after a word is written


@dataclass(frozen=True)
class HeadErrors:
    """Errors of all heads, and the best choice of heads."""

    heads: list[HeadError]
    best: AlignmentHeads


class Aligner:
    """Aligns words by cross-attention, by default of the heads that fit the first lines best."""

    def __init__(self, model: Model, heads: AlignmentHeads | None = None) -> None:
        if model.tokenizer is None or model.target_tokenizer is None:
            raise InputError("the model has no tokenizer, so it has no words to align.")
        self.model, self.chosen = model, heads
        self.tokenizers: tuple[Tokenizer, Tokenizer] = model.tokenizer, model.target_tokenizer

    @classmethod
    def of_folder(cls, folder: Path, noted: Mapping[str, Any] | None = None) -> "Aligner":
        """Use the heads of an earlier run, of the folder itself, or of `regard evaluate`."""
        model = load(folder)
        given = noted or model.extras.get(ALIGNMENT_HEADS) or _cached_heads(folder)
        return cls(model, None if given is None else AlignmentHeads.from_json(given))

    def align(self, translations: Sequence[Translation]) -> Iterator[Alignment]:
        """Yield the alignment of each translation."""
        parts = [part for one in translations for part in one.parts if not part.copied]
        if self.chosen is None and parts:
            self.chosen = self.find_heads(parts)
        tables = self._tables(parts)
        for one in translations:
            yield alignment_of(one, tables, self.tokenizers)

    def _tables(self, parts: Sequence[TranslatedPart]) -> Iterator[np.ndarray]:
        if self.chosen is not None:
            for weights in cross_attention(self.model, parts, self.chosen.places):
                mean = weights.mean(axis=0)
                yield mean[1:] if self.chosen.after else mean[:-1]

    def find_heads(self, parts: Sequence[TranslatedPart]) -> AlignmentHeads:
        """Choose heads by occlusion, on parts of moderate length."""
        some = sorted(parts, key=lambda part: abs(len(part.source_ids) - 12))[:_OCCLUSION_PAIRS]
        golds = [occlusion_links(self.model, part, self.words(part)) for part in some]
        return self.measure(some, golds, source="occlusion").best

    def measure(
        self, parts: Sequence[TranslatedPart], golds: Sequence[Gold], *, source: str
    ) -> HeadErrors:
        """Measure the error of every head on pairs with known links, and choose the best."""
        with torch.no_grad(), watch() as trace:
            self.model.module(*_batch(self.model, parts[:1]))
        places = cross_attention_heads(trace)
        tables = [self._word_tables(part) for part in parts]
        errors = np.array(
            [[_error(tables, golds, [i], after) for i in range(len(places))] for after in (0, 1)]
        )
        n_links = sum(len(gold.sure) for gold in golds)
        if not n_links:  # the last layer but one aligns best in most models (Garg et al. 2019)
            sites = list(dict.fromkeys(site for site, _ in places))
            chosen = tuple(place for place in places if place[0] == sites[max(len(sites) - 2, 0)])
            return HeadErrors([], AlignmentHeads(chosen, after=False, source="none"))
        after = int(errors.min(axis=1).argmin())
        ranked = errors[after].argsort(kind="stable").tolist()
        choices = [ranked[:count] for count in range(1, min(_MAX_HEADS, len(ranked)) + 1)]
        scored = [(_error(tables, golds, choice, after), choice) for choice in choices]
        error, choice = min(scored, key=lambda one: one[0])  # the fewest heads of equal choices
        chosen = tuple(places[i] for i in choice)
        heads = [HeadError(*p, *both) for p, both in zip(places, errors.T.tolist(), strict=True)]
        return HeadErrors(heads, AlignmentHeads(chosen, bool(after), source, error, n_links))

    def words(self, part: TranslatedPart) -> WordIndices:
        return word_indices(part, *self.tokenizers)

    def _word_tables(self, part: TranslatedPart) -> np.ndarray:
        """Return the weights between words by all heads, before (0) and after (1) writing."""
        (weights,) = cross_attention(self.model, [part])
        both = (weights[:, :-1], weights[:, 1:])
        return np.stack([word_weights(one, self.words(part)) for one in both])


def _error(
    tables: Sequence[np.ndarray], golds: Sequence[Gold], heads: Sequence[int], after: int
) -> float:
    """Return the error rate of the mean of some heads."""
    means = [table[after, list(heads)].mean(axis=0) for table in tables]
    links = [[(int(row.argmax()), i) for i, row in enumerate(mean) if row.any()] for mean in means]
    return error_rate(zip(links, golds, strict=True))


def cache_heads(folder: Path, heads: AlignmentHeads) -> None:
    """Remember the heads of a model that align best, for later translations."""
    with suppress(OSError):  # without a cache, heads are chosen again
        write_atomic(_cache_path(folder), json.dumps(heads.to_json()))


def _cached_heads(folder: Path) -> Mapping[str, Any] | None:
    with suppress(OSError, ValueError):
        return json.loads(_cache_path(folder).read_bytes())
    return None


def _cache_path(folder: Path) -> Path:
    return cache_folder() / "heads" / f"{fingerprint(folder)}.json"


@torch.no_grad()
def cross_attention(
    model: Model, parts: Sequence[TranslatedPart], heads: Sequence[HeadPath] | None = None
) -> Iterator[np.ndarray]:
    """Yield the weights of heads (by default all) for each pair, head × target + 1 × source.

    Row i has the weights that predict target token i; the last row those that predict the end.
    """
    for first in range(0, len(parts), _BATCH):
        some = parts[first : first + _BATCH]
        with watch() as trace:
            model.module(*_batch(model, some))
        wanted = cross_attention_heads(trace) if heads is None else heads
        for batch, part in enumerate(some):
            tile = {"rows": slice(len(part.ids) + 1), "columns": slice(len(part.source_ids))}
            tables = [trace[site].weights(head, batch=batch, **tile) for site, head in wanted]
            yield torch.stack(tables).clamp(min=0).double().cpu().numpy()


def cross_attention_heads(trace: Trace) -> list[HeadPath]:
    """Return every head that reads the source while the target is written."""
    sites = [path for path in trace if is_cross(trace[path])]
    if not sites:
        raise InputError("the model has no cross-attention, so it cannot align words.")
    return [(path, head) for path in sites for head in range(trace[path].n_heads)]


@torch.no_grad()
def token_log_probs(model: Model, parts: Sequence[TranslatedPart]) -> Iterator[np.ndarray]:
    """Yield the log-probability of each target token of each pair, the end token last."""
    for first in range(0, len(parts), _BATCH):
        some = parts[first : first + _BATCH]
        inputs = _batch(model, some)
        table = model.module(*inputs).log_softmax(dim=-1).gather(-1, inputs[1][:, 1:, None])
        for row, part in enumerate(some):
            yield table[row, : len(part.ids) + 1, 0].double().cpu().numpy()


def _batch(model: Model, parts: Sequence[TranslatedPart]) -> tuple[Tensor, ...]:
    """Return padded sources and targets from start to end, and their lengths."""
    tokenizer = model.target_tokenizer
    if tokenizer is None:
        raise InputError("the model has no tokenizer for targets.")
    start, end = tokenizer.required_id("start"), tokenizer.required_id("end")
    sources, source_lengths = pad_ids([part.source_ids for part in parts], model.device)
    targets, target_lengths = pad_ids([[start, *part.ids, end] for part in parts], model.device)
    return sources, targets, source_lengths, target_lengths


def occlusion_links(model: Model, part: TranslatedPart, words: WordIndices) -> Gold:
    """Link each target word to the source word without which it becomes improbable."""
    if words.n_source < 2 or not words.n_target:
        return Gold.only(())
    pairs = list(zip(part.source_ids, words.source, strict=True))
    kept = ([id for id, index in pairs if index != word] for word in range(words.n_source))
    occluded = [part, *(replace(part, source_ids=ids) for ids in kept)]
    tables = np.stack(list(token_log_probs(model, occluded)))[:, :-1]
    losses = (tables[0] - tables[1:]) @ membership(words.target, words.n_target)
    best, second = losses.argmax(axis=0), np.sort(losses, axis=0)[-2]
    largest = losses.max(axis=0)
    clear = (largest > 1.0) & (largest > 2.0 * second)
    return Gold.only((int(best[target]), int(target)) for target in np.flatnonzero(clear))
