"""Everything that an evaluation finds out about one system or two."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.explain.aligner import Measured
from regard.explain.scores import (
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


@dataclass(frozen=True)
class Own:
    """What only the model itself can tell, beside its translations."""

    texts: list[str]
    perplexity: float | None = None
    alignment: Measured | None = field(default=None, repr=False)


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
