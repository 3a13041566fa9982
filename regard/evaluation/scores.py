"""Scores of translations against references.

BLEU, chrF and TER are sacreBLEU's (Post 2018), each with the signature that makes it comparable;
confidence intervals and p-values come from resampling the sentences (Koehn 2004).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from regard.errors import InputError, MissingExtraError
from regard.text.pieces import word_spans

SAMPLES = 1000
# Largest source lengths and word counts of the groups; one more group has all larger ones.
_LENGTH_LIMITS, _COUNT_LIMITS = (5, 10, 15, 20, 30), (0, 1, 4, 9, 99)


@dataclass(frozen=True)
class Score:
    """One metric of one system."""

    name: str
    value: float
    mean: float  # mean over all resamples
    margin: float  # half the width of the 95 % interval
    signature: str
    p_value: float | None = None  # p-value of the difference from the first system


@dataclass(frozen=True)
class Group:
    """A metric on some of the sentences or words."""

    label: str
    n: int  # number of sentences, or of words in the references
    value: float
    margin: float = 0.0


def score_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    others: Sequence[Sequence[str]] = (),
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
) -> dict[str, list[Score]]:
    """Return BLEU, chrF and TER of each system; the others are compared with the first.

    Args:
        others: further references of the same sentences.
        tokenize: tokenizer of BLEU: sacreBLEU's 13a, intl, char, zh, ja-mecab, ko-mecab, ….
        lowercase: adds a BLEU that ignores case.
    """
    for texts in systems.values():
        check_lines("translations", texts, references)
    metrics = _metrics(tokenize, lowercase)
    every = [references, *others]
    columns = [_scores(*metric, systems, every, samples) for metric in metrics.items()]
    return {name: list(row) for name, row in zip(systems, zip(*columns, strict=True), strict=True)}


def check_lines(what: str, texts: Sequence[Any], references: Sequence[str]) -> None:
    """Refuse texts with another number of lines than the references."""
    if len(texts) != len(references):
        raise InputError(
            f"there are {len(texts):,} lines of {what} and {len(references):,} of references: they "
            "must correspond line by line."
        )
    if not references:
        raise InputError("the references have no lines: there is nothing to compare with.")


def _metrics(tokenize: str, lowercase: bool) -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if tokenize not in BLEU.TOKENIZERS:
        known = ", ".join(sorted(name for name in BLEU.TOKENIZERS if name != "none"))
        raise InputError(f"BLEU has no tokenizer {tokenize!r}; it has {known}.")
    try:  # force: no warning about text that looks tokenized already
        bleu = {"BLEU": BLEU(tokenize=tokenize, force=True)}
        if lowercase:
            bleu["BLEU lc"] = BLEU(tokenize=tokenize, force=True, lowercase=True)
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingExtraError(
            f"BLEU's tokenizer {tokenize!r} is not installed ({error}): install it or use another."
        ) from error
    return bleu | {"chrF2": CHRF(), "TER": TER()}


def _scores(
    name: str,
    metric: Any,
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    samples: int,
) -> list[Score]:
    """Return one metric of all systems, with p-values of the differences from the first."""
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = [(name, list(x)) for name, x in systems.items()]
    every = [list(one) for one in references]
    test = PairedTest(named, {name: metric}, every, test_type="bs", n_samples=samples)
    signatures, results = test()
    ((key, signature),) = signatures.items()
    found = cast(Sequence[Any], results[key])
    scores = []
    for i, result in enumerate(found):
        p_value = None if i == 0 else float(result.p_value)
        if i and result.score == found[0].score:
            p_value = 1.0  # sacreBLEU finds a system significantly different from itself
        spread = float(result.mean), float(result.ci)
        scores.append(Score(name, float(result.score), *spread, str(signature), p_value))
    return scores


def sentence_scores(texts: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    pairs = zip(texts, references, strict=True)
    return [metric.sentence_score(text, [reference]).score for text, reference in pairs]


def exact_match(texts: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of translations that equal their reference."""
    check_lines("translations", texts, references)
    pairs = zip(texts, references, strict=True)
    return sum(text.strip() == other.strip() for text, other in pairs) / len(references)


def score_texts(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the share of exact matches, BLEU and chrF, without confidence intervals."""
    scores, metrics = {"exact": exact_match(texts, references)}, _metrics("13a", lowercase=False)
    for name, metric in (("bleu", metrics["BLEU"]), ("chrf", metrics["chrF2"])):
        scores[name] = metric.corpus_score(list(texts), [list(references)]).score
    return scores


def by_length(
    sources: Sequence[str],
    texts: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    samples: int = 300,
) -> list[Group]:
    """Return BLEU by the length of the source in words."""
    check_lines("sources", sources, references)
    members: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        members.setdefault(_group(len(source.split()), _LENGTH_LIMITS), []).append(i)
    bleu = _metrics(tokenize, lowercase=False)["BLEU"]
    groups = []
    for group, indices in sorted(members.items()):
        own, others = ([lines[i] for i in indices] for lines in (texts, references))
        (found,) = _scores("BLEU", bleu, {"": own}, [others], samples)
        label = _label(group, _LENGTH_LIMITS)
        groups.append(Group(label, len(indices), found.value, found.margin))
    return groups


def by_rarity(
    texts: Sequence[str], references: Sequence[str], seen: Mapping[str, int]
) -> list[Group]:
    """Return the F1 of words by their count in `seen`.

    A word is correct as often as it is in both a translation and its reference.
    """
    correct, ours, theirs = Counter[int](), Counter[int](), Counter[int]()
    for text, reference in zip(texts, references, strict=True):
        own, other = count_words([text]), count_words([reference])
        for word in own | other:
            group = _group(seen.get(word, 0), _COUNT_LIMITS)
            ours[group] += own[word]
            theirs[group] += other[word]
            correct[group] += min(own[word], other[word])
    return [
        Group(_label(i, _COUNT_LIMITS), theirs[i], 200 * correct[i] / (ours[i] + theirs[i]))
        for i in sorted(+theirs)
    ]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words and punctuation marks of texts."""
    return Counter(text[start:end] for text in texts for start, end in word_spans(text))


def _group(number: int, limits: Sequence[int]) -> int:
    return next((i for i, limit in enumerate(limits) if number <= limit), len(limits))


def _label(group: int, limits: Sequence[int]) -> str:
    first = limits[group - 1] + 1 if group else min(limits[0], 1)
    if group == len(limits):
        return f"{first}+"
    return str(first) if first == limits[group] else f"{first}–{limits[group]}"
