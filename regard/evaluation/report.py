"""The evaluation of one or two systems: scores, breakdowns, perplexity and alignment errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any

import numpy as np

from regard.errors import InputError
from regard.evaluation.alignment import Gold, dictionary_links
from regard.evaluation.alignment_heads import Aligner, HeadErrors, cache_heads, token_log_probs
from regard.evaluation.scores import (
    SAMPLES,
    Group,
    Score,
    by_length,
    by_rarity,
    count_words,
    exact_match,
    score_systems,
    sentence_scores,
)
from regard.generation.sentences import clean
from regard.generation.translator import TranslatedPart, max_positions
from regard.model import Model

_MAX_PAIRS = 500  # pairs that heads are measured on
_MIN_LINKS = 20  # links of a dictionary that are needed to choose heads


@dataclass(frozen=True)
class ModelReadings:
    """Translations of a system, and measures that only its model can give."""

    texts: list[str]
    perplexity: float | None = None  # perplexity of the references; None without a model
    alignment: HeadErrors | None = field(default=None, repr=False)


def read_model(
    model: Model,
    texts: list[str],
    sources: Sequence[str],
    references: Sequence[str],
    golds: Sequence[Gold] | None = None,
) -> ModelReadings:
    """Measure the perplexity of the references and every head's alignment error."""
    limit = max_positions(model.config.to_dict()) - 2
    pairs = zip(sources, references, strict=True)
    parts = [reference_part(model, clean(source), clean(target)) for source, target in pairs]
    longest = [max(len(part.source_ids), len(part.ids)) for part in parts]
    fitting = [i for i, length in enumerate(longest) if length <= limit]
    measured = _measure_heads(model, parts, fitting, golds)
    return ModelReadings(texts, perplexity(model, [parts[i] for i in fitting]), measured)


def reference_part(model: Model, source: str, target: str) -> TranslatedPart:
    """Return a sentence and a given translation of it, as the model reads them."""
    if model.tokenizer is None or model.target_tokenizer is None:
        raise InputError("the model has no tokenizer, so it cannot read references.")
    ids = model.target_tokenizer.encode(target, specials=False, literal=True)
    return TranslatedPart(source, target, model.tokenizer.encode(source, literal=True), ids)


def perplexity(model: Model, parts: Sequence[TranslatedPart]) -> float:
    """Return the perplexity of the target tokens, the end included.

    Only models with the same target vocabulary can be compared by it.
    """
    if not parts:
        raise InputError("perplexity needs at least one reference.")
    mean = np.concatenate(list(token_log_probs(model, parts))).mean()
    return exp(min(-float(mean), 700.0))  # larger exponents overflow


def _measure_heads(
    model: Model, parts: list[TranslatedPart], fitting: list[int], golds: Sequence[Gold] | None
) -> HeadErrors | None:
    """Measure each head; None without attention, or if too few links are known."""
    if getattr(model.config, "attention", "none") == "none":
        return None
    known = golds or dictionary_links([(part.source.split(), part.text.split()) for part in parts])
    some = [i for i in fitting if known[i].sure and parts[i].ids][:_MAX_PAIRS]
    if sum(len(known[i].sure) for i in some) < (_MIN_LINKS if golds is None else 1):
        return None
    pairs, links = [parts[i] for i in some], [known[i] for i in some]
    source = "dictionary" if golds is None else "gold"
    measured = Aligner(model).measure(pairs, links, source=source)
    if model.folder is not None:
        cache_heads(model.folder, measured.best)
    return measured


def read_gold(number: int, line: str) -> Gold:
    """Read links of words counted from 0: 1-2 is sure, 1p2 and 1?2 are possible."""
    sure, possible = set(), set()
    for word in line.split():
        match = re.fullmatch(r"(\d+)([-p?])(\d+)", word)
        if match is None:
            raise InputError(f"Line {number:,} has {word!r}; write links as 1-2.")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


@dataclass(frozen=True, kw_only=True)
class System(ModelReadings):
    """Translations of one system and their scores."""

    name: str
    scores: list[Score]
    exact: float
    lengths: list[Group]  # BLEU by the length of the source
    words: list[Group]  # F1 of words by how often they occur
    sentences: list[float]  # chrF of each sentence

    def to_json(self) -> dict[str, Any]:
        """Return the scores without the translations."""
        return {
            "system": self.name,
            "scores": [asdict(score) for score in self.scores],
            "exact_match": self.exact,
            "perplexity": self.perplexity,
            "by_length": [asdict(group) for group in self.lengths],
            "by_word_count": [asdict(group) for group in self.words],
            "heads": [asdict(head) for head in self.alignment.heads] if self.alignment else [],
            "alignment_heads": self.alignment.best.to_json() if self.alignment else None,
        }


@dataclass(frozen=True)
class Evaluation:
    """One system, or two compared with each other, on the same sentences."""

    sources: list[str]
    references: list[str]
    systems: list[System]
    counted: str  # text in which words were counted: "references" or "training"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the sentences."""
        return {
            "sentences": len(self.sources),
            "words_counted_in": self.counted,
            "systems": [system.to_json() for system in self.systems],
        }


def evaluate(
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, ModelReadings],
    *,
    seen: Mapping[str, int] | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
) -> Evaluation:
    """Compare translations with references, and other systems with the first.

    Args:
        seen: count of each word in the training data; counted in the references if None.
        tokenize, lowercase, samples: see `score_systems`.
    """
    counts = count_words(references) if seen is None else seen
    texts = {name: one.texts for name, one in systems.items()}
    how: dict[str, Any] = {"tokenize": tokenize, "samples": samples}
    scores = score_systems(texts, references, lowercase=lowercase, **how)
    few = {**how, "samples": min(samples, 300)}
    found = [
        System(
            **vars(one),
            name=name,
            scores=scores[name],
            exact=exact_match(one.texts, references),
            lengths=by_length(sources, one.texts, references, **few),
            words=by_rarity(one.texts, references, counts),
            sentences=sentence_scores(one.texts, references),
        )
        for name, one in systems.items()
    ]
    counted = "references" if seen is None else "training"
    return Evaluation(list(sources), list(references), found, counted)
