"""Everything that an evaluation finds out about one system or two."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any

from regard.errors import InputError
from regard.evaluation.alignment import Gold
from regard.evaluation.alignment_heads import Aligner, Measured, keep_heads
from regard.evaluation.cross_attention import pair_part, token_log_probs
from regard.evaluation.ibm_model1 import dictionary_gold
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


def perplexity(model: Model, parts: Sequence[TranslatedPart]) -> float:
    """The inverse of the mean (geometric) probability of a reference's token, the end included.

    Only models with the same target vocabulary can be compared by it.
    """
    total, count = 0.0, 0
    for table in token_log_probs(model, parts):
        total += float(table.sum())
        count += len(table)
    if not count:
        raise InputError("there is no reference to be surprised by.")
    return exp(min(-total / count, 700.0))  # what is larger has no float


_MOST = 500
"""Pairs that heads are measured on."""
_FEW = 20
"""Links that a dictionary must at least be sure of, for a choice that means something."""
_LINK = re.compile(r"(\d+)([-p?])(\d+)")


@dataclass(frozen=True)
class Own:
    """What only the model itself can tell, beside its translations."""

    texts: list[str]
    perplexity: float | None = None
    alignment: Measured | None = field(default=None, repr=False)


def examine(
    model: Model,
    texts: list[str],
    sources: Sequence[str],
    references: Sequence[str],
    golds: Sequence[Gold] | None = None,
) -> Own:
    """Translations with the perplexity of the references and every head's alignment error."""
    tokenizers = model.tokenizer, model.target_tokenizer
    room = max_positions(model.config.to_dict()) - 2
    parts = [
        pair_part(clean(source), clean(reference), tokenizers)
        for source, reference in zip(sources, references, strict=True)
    ]
    fitting = [i for i, part in enumerate(parts) if max(_sizes(part)) <= room]
    measured = _measured(model, parts, fitting, golds)
    return Own(texts, perplexity(model, [parts[i] for i in fitting]), measured)


def _sizes(part: TranslatedPart) -> tuple[int, int]:
    return len(part.source_ids), len(part.ids)


def _measured(
    model: Model, parts: list[TranslatedPart], fitting: list[int], golds: Sequence[Gold] | None
) -> Measured | None:
    """The error of each head; None for a model that has none, or where no links are known."""
    if not _attends(model):
        return None
    kind = "dictionary" if golds is None else "gold"
    known = golds or dictionary_gold([(part.source.split(), part.text.split()) for part in parts])
    some = [i for i in fitting if known[i].sure and parts[i].ids][:_MOST]
    if sum(len(known[i].sure) for i in some) < (_FEW if golds is None else 1):
        return None
    chosen = [parts[i] for i in some], [known[i] for i in some]
    measured = Aligner(model).measure(*chosen, source=kind)
    if model.folder is not None:
        keep_heads(model.folder, measured.best)
    return measured


def _attends(model: Model) -> bool:
    return getattr(model.config, "attention", "none") != "none"


def read_gold(line: str, number: int) -> Gold:
    """The links of a line: 1-2 is sure, 1p2 or 1?2 possible; words are counted from 0."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise InputError(f"Line {number:,} has {word!r}, which is no link; write them as 1-2.")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


@dataclass(frozen=True)
class System:
    """One system's translations, and what they are worth."""

    name: str
    texts: list[str]
    scores: list[Score]
    exact: float
    lengths: list[Group]
    """BLEU by the length of the source."""
    words: list[Group]
    """F1 of words by how often they were seen."""
    sentences: list[float]
    """Of each sentence, its chrF."""
    perplexity: float | None = None
    """Of the references; None for translations from elsewhere."""
    alignment: Measured | None = None
    """How well each head aligns."""

    def to_json(self) -> dict[str, Any]:
        """Numbers without the translations."""
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
    """One system, or two beside each other, on the same sentences."""

    sources: list[str]
    references: list[str]
    systems: list[System]
    counted: str
    """Where words were counted: "references" or "training"."""

    def to_json(self) -> dict[str, Any]:
        """Everything but the sentences."""
        return {
            "sentences": len(self.sources),
            "words_counted_in": self.counted,
            "systems": [system.to_json() for system in self.systems],
        }


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to evaluate.

    Args:
        seen: how often each word is in the training data; counted in the references if None.
        tokenize: how BLEU splits words.
        lowercase: whether there is a second BLEU, for which capitals do not count.
        samples: how often sentences are drawn anew for confidence intervals.
    """

    seen: Mapping[str, int] | None = None
    tokenize: str = "13a"
    lowercase: bool = False
    samples: int = SAMPLES


def evaluate(
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, Own],
    options: Options | None = None,
) -> Evaluation:
    """Compare translations with references; the first system is what others are compared with."""
    options = options or Options()
    seen = options.seen if options.seen is not None else count_words(references)
    texts = {name: own.texts for name, own in systems.items()}
    scores = score_systems(
        texts,
        references,
        tokenize=options.tokenize,
        lowercase=options.lowercase,
        samples=options.samples,
    )
    few = min(options.samples, 300)
    found = [
        System(
            name=name,
            texts=list(own.texts),
            scores=scores[name],
            exact=exact_match(own.texts, references),
            lengths=by_length(
                sources, own.texts, references, tokenize=options.tokenize, samples=few
            ),
            words=by_rarity(own.texts, references, seen),
            sentences=sentence_scores(own.texts, references),
            perplexity=own.perplexity,
            alignment=own.alignment,
        )
        for name, own in systems.items()
    ]
    counted = "references" if options.seen is None else "training"
    return Evaluation(list(sources), list(references), found, counted)
