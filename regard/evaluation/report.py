"""The evaluation of one or two systems: scores, breakdowns, perplexity and alignment errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any

import numpy as np
import torch

from regard.errors import InputError, UnknownNameError, nearest
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
_WINDOW = 256  # tokens that a language model is measured on at once
_HIDDEN_EACH = 7  # of so many tokens one is hidden, about as many as in training
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
    others: Sequence[Sequence[str]] = (),
    seen: Mapping[str, int] | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
) -> Evaluation:
    """Compare translations with references, and other systems with the first.

    Args:
        others: further references, for BLEU, chrF, TER and exact matches.
        seen: count of each word in the training data; counted in the references if None.
        tokenize, lowercase, samples: see `score_systems`.
    """
    counts = count_words(references) if seen is None else seen
    texts = {name: one.texts for name, one in systems.items()}
    how: dict[str, Any] = {"tokenize": tokenize, "samples": samples}
    scores = score_systems(texts, references, others=others, lowercase=lowercase, **how)
    few = {**how, "samples": min(samples, 300)}
    found = [
        System(
            **vars(one),
            name=name,
            scores=scores[name],
            exact=exact_match(one.texts, _nearest_references(one.texts, [references, *others])),
            lengths=by_length(sources, one.texts, references, **few),
            words=by_rarity(one.texts, references, counts),
            sentences=sentence_scores(one.texts, references),
        )
        for name, one in systems.items()
    ]
    counted = "references" if seen is None else "training"
    return Evaluation(list(sources), list(references), found, counted)


def _nearest_references(texts: Sequence[str], every: Sequence[Sequence[str]]) -> list[str]:
    """Return the reference that equals each text, or else its first one."""
    found = []
    for text, *several in zip(texts, *every, strict=True):
        equal = (one for one in several if one.strip() == text.strip())
        found.append(next(equal, several[0]))
    return found


def measure_model(model: Model, texts: Sequence[Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the scores of a model that does not translate, by name.

    A language model is measured on every token of the lines, given up to 256 before it; a masked
    model on every token, hidden together with each seventh other; a classifier on its labels.
    """
    if model.task == "classification":
        return _measure_classes(model, texts, labels)
    log_probs, correct = (_measure_stream if model.family == "decoder" else _measure_gaps)(
        model, texts
    )
    if not len(log_probs):
        raise InputError("there are too few tokens to measure: give more text.")
    scores = {"tokens": len(log_probs), "perplexity": exp(min(-float(log_probs.mean()), 700.0))}
    n_bytes = len("\n".join(texts).encode())
    bits = {"bits_per_byte": -float(log_probs.sum()) / np.log(2) / n_bytes}
    return (
        scores | {"accuracy": float(correct.mean())} | (bits if model.family == "decoder" else {})
    )


@torch.no_grad()
def _measure_stream(model: Model, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probability of each token after the first, and if it was the best one."""
    if model.tokenizer is None:
        raise InputError("this model has no tokenizer: give token ids instead of a text.")
    ids = model.tokenizer.encode("\n".join(lines), specials=False, literal=True)
    window = min(_WINDOW, max_positions(model.config.to_dict()))
    tables = []
    for first in range(0, len(ids) - 1, window):
        read = torch.tensor([ids[first : first + window + 1]], device=model.device)
        tables.append(_scored(model.module(read[:, :-1])[0], read[0, 1:]))
    return _joined(tables)


@torch.no_grad()
def _measure_gaps(model: Model, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probability of each hidden token, and if it was the best one."""
    tokenizer = model.tokenizer
    if model.task != "masked" or tokenizer is None or tokenizer.mask_id is None:
        raise InputError(
            f"a model for {model.task} has no scores: give one for translation, language, masked "
            "text or classification."
        )
    longest, tables = max_positions(model.config.to_dict()), []
    for line in lines:
        pieces = tokenizer.pieces(line)[:longest]
        ids = torch.tensor([piece.id for piece in pieces], device=model.device)
        own = [i for i, piece in enumerate(pieces) if piece.word is not None]
        for start in range(min(_HIDDEN_EACH, len(own))):
            places = torch.tensor(own[start::_HIDDEN_EACH], device=model.device)
            hidden = ids.index_fill(0, places, tokenizer.mask_id)[None]
            logits = model.module.fill_logits(model.module(hidden))[0]
            tables.append(_scored(logits[places], ids[places]))
    return _joined(tables)


def _scored(logits: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = logits.log_softmax(dim=-1).gather(-1, ids[:, None])[:, 0]
    return found, logits.argmax(dim=-1) == ids


def _joined(tables: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    if not tables:
        return np.zeros(0), np.zeros(0)
    log_probs, correct = zip(*tables, strict=True)
    return torch.cat(log_probs).double().cpu().numpy(), torch.cat(correct).cpu().numpy()


def _measure_classes(model: Model, inputs: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
    """Return accuracy and loss, and the share of each class that was found."""
    if len(inputs) != len(labels) or not labels:
        raise InputError(
            f"there are {len(inputs):,} inputs and {len(labels):,} labels: give one for each input."
        )
    names = model.labels or tuple(str(i) for i in range(model.config.n_classes))
    for label in labels:
        if label not in names:
            raise UnknownNameError(f"the model has no class {label!r}; {nearest(label, names)}.")
    losses, hits = [], {name: [] for name in sorted(set(labels), key=names.index)}
    for first in range(0, len(inputs), _WINDOW):
        some, expected = list(inputs[first : first + _WINDOW]), labels[first : first + _WINDOW]
        for label, ranked in zip(expected, model.classify(some, count=len(names)), strict=True):
            probability = next(one.probability for one in ranked if one.text == label)
            losses.append(-float(np.log(max(probability, 1e-38))))
            hits[label].append(ranked[0].text == label)
    right = [hit for several in hits.values() for hit in several]
    return {
        "inputs": len(labels),
        "accuracy": sum(right) / len(right),
        "loss": sum(losses) / len(losses),
        "by_class": {name: sum(several) / len(several) for name, several in hits.items()},
    }
