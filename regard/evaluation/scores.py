"""What translations are worth beside their references, by the field's own measures.

BLEU, chrF and TER are sacreBLEU's (Post 2018), each with the signature that makes it comparable;
confidence intervals and p-values come from resampling the sentences (Koehn 2004).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import InputError, MissingExtraError
from regard.text.pieces import word_spans

SAMPLES = 1000
_LENGTHS = (5, 10, 15, 20, 30)
"""Upper ends of the groups of source lengths, in words; one more group is for longer ones."""
_COUNTS = (0, 1, 4, 9, 99)
"""The same for how often a word was seen."""


@dataclass(frozen=True)
class Score:
    """One measure of one system."""

    name: str
    value: float
    mean: float
    """Over all resamples."""
    margin: float
    """Half the width of the interval that holds 95 % of them."""
    signature: str
    p_value: float | None = None
    """How easily chance alone makes such a difference to the first system."""


@dataclass(frozen=True)
class Group:
    """A measure on a part of the sentences or words."""

    label: str
    n: int
    """How many sentences or words of the reference it holds."""
    value: float
    margin: float = 0.0


def score_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
) -> dict[str, list[Score]]:
    """BLEU, chrF and TER of each system; the first is what the others are compared with.

    Args:
        tokenize: how BLEU splits words: sacreBLEU's 13a, intl, char, zh, ja-mecab, ko-mecab, ….
        lowercase: whether there is a second BLEU, for which capitals do not count.
    """
    for texts in systems.values():
        check_lines("translations", texts, references)
    metrics = _metrics(tokenize, lowercase)
    if len(systems) == 1:
        ((name, texts),) = systems.items()
        return {name: [_alone(which, texts, references, samples) for which in metrics.items()]}
    columns = [
        _compared(name, metric, systems, references, samples) for name, metric in metrics.items()
    ]
    return {name: list(row) for name, row in zip(systems, zip(*columns, strict=True), strict=True)}


def _compared(
    name: str,
    metric: Any,
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    samples: int,
) -> list[Score]:
    """One metric of all systems, the others compared with the first."""
    from sacrebleu.significance import PairedTest

    named: list[tuple[str, Sequence[str]]] = [(name, list(x)) for name, x in systems.items()]
    test = PairedTest(named, {name: metric}, [list(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    ((key, signature),) = signatures.items()
    return [_resampled(name, results[key], i, signature) for i in range(len(named))]


def check_lines(what: str, texts: Sequence[str], references: Sequence[str]) -> None:
    """Refuse texts that cannot belong to the references line by line."""
    if len(texts) != len(references):
        raise InputError(
            f"there are {len(texts):,} lines of {what} and {len(references):,} of references: they "
            "must belong together line by line."
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
            f"BLEU's tokenizer {tokenize!r} needs what is not here ({error}): use another."
        ) from error
    return bleu | {"chrF2": CHRF(), "TER": TER()}


def _alone(
    which: tuple[str, Any], texts: Sequence[str], references: Sequence[str], samples: int
) -> Score:
    name, metric = which
    found = metric.corpus_score(list(texts), [list(references)], n_bootstrap=samples)
    spread = float(found._mean), float(found._ci)
    return Score(name, float(found.score), *spread, str(metric.get_signature()))


def _resampled(name: str, results: Sequence[Any], i: int, signature: Any) -> Score:
    result = results[i]
    chance = None if result.p_value is None else float(result.p_value)
    if i and result.score == results[0].score:
        chance = 1.0  # sacreBLEU finds a system significantly different from itself
    spread = float(result.mean), float(result.ci)
    return Score(name, float(result.score), *spread, str(signature), chance)


def sentence_scores(texts: Sequence[str], references: Sequence[str]) -> list[float]:
    """What each sentence is worth by itself, by chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    pairs = zip(texts, references, strict=True)
    return [metric.sentence_score(text, [reference]).score for text, reference in pairs]


def exact_match(texts: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that are their reference, letter by letter."""
    check_lines("translations", texts, references)
    pairs = zip(texts, references, strict=True)
    return sum(text.strip() == other.strip() for text, other in pairs) / len(references)


def by_length(
    sources: Sequence[str],
    texts: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    samples: int = 300,
) -> list[Group]:
    """BLEU for sentences of like length, counted in words of the source."""
    check_lines("sources", sources, references)
    places: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        places.setdefault(_group(len(source.split()), _LENGTHS), []).append(i)
    groups = []
    for number in sorted(places):
        some = places[number]
        metric = _metrics(tokenize, lowercase=False)["BLEU"]
        own, others = ([lines[i] for i in some] for lines in (texts, references))
        found = _alone(("BLEU", metric), own, others, samples)
        groups.append(Group(_label(number, _LENGTHS), len(some), found.value, found.margin))
    return groups


def by_rarity(
    texts: Sequence[str], references: Sequence[str], seen: Mapping[str, int]
) -> list[Group]:
    """F1 of words by how often they were seen: which share of them is right, and in its place.

    A word counts as right as often as it is in both a translation and its reference.
    """
    right: Counter[int] = Counter()
    ours: Counter[int] = Counter()
    theirs: Counter[int] = Counter()
    for text, reference in zip(texts, references, strict=True):
        own, other = Counter(words_in(text)), Counter(words_in(reference))
        for word in own | other:
            group = _group(seen.get(word, 0), _COUNTS)
            ours[group] += own[word]
            theirs[group] += other[word]
            right[group] += min(own[word], other[word])
    return [
        Group(_label(group, _COUNTS), theirs[group], 200 * right[group] / (ours + theirs)[group])
        for group in sorted(theirs)
        if theirs[group]
    ]


def words_in(text: str) -> list[str]:
    """The words and marks of a text."""
    return [text[start:end] for start, end in word_spans(text)]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word is there."""
    return Counter(word for text in texts for word in words_in(text))


def _group(number: int, ends: Sequence[int]) -> int:
    return next((i for i, end in enumerate(ends) if number <= end), len(ends))


def _label(group: int, ends: Sequence[int]) -> str:
    first = ends[group - 1] + 1 if group else min(ends[0], 1)
    if group == len(ends):
        return f"{first}+"
    return str(first) if first == ends[group] else f"{first}–{ends[group]}"
