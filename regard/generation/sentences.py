"""Splitting lines into parts that a model can translate, and batching the parts."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

# Boundaries to split at, the best first: between sentences, between clauses, between words.
_BOUNDARIES = (
    re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+|(?<=[。！？])(?![。！？”’」』）])"),
    re.compile(r"(?<=[;:,、，])\s+|(?<=[、，；：])"),
    re.compile(r"\s+"),
)
# Control characters except the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
# Scripts without spaces between words: Thai to Burmese, Khmer, Kana, Han.
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
# Abbreviations whose full stop does not end a sentence, always or before a number.
_TITLES = re.compile(
    "(mr|mrs|ms|mx|dr|prof|st|rev|gen|sen|gov|capt|lt|col|sgt|hr|fr|frl|mme)", re.IGNORECASE
)
_BEFORE_NUMBERS = re.compile(
    "([0-9]+|no|nr|fig|p|pp|vol|jan|feb|mar|apr|aug|sept?|oct|nov|dec)", re.IGNORECASE
)
_CLOSING, _OPENING = "\"'”’»)]", "\"'„“‚‘«(["


@dataclass(frozen=True)
class Segment:
    """A part of a line, and the text between it and the next part."""

    text: str
    separator: str
    oversized: bool = False  # a text without spaces that is too long for a word; it is copied


def clean(line: str) -> str:
    """Remove control characters, and spaces at the ends."""
    return _CONTROL.sub(" ", line).strip()


def sentences(line: str) -> list[Segment]:
    """Split a line into sentences by punctuation and capitals."""
    found: list[Segment] = []
    for part in _split(line, _BOUNDARIES[0]):
        if found and not _is_sentence_end(found[-1].text, part.text):
            before = found.pop()
            part = Segment(before.text + before.separator + part.text, part.separator)
        found.append(part)
    return found or [Segment(line, "")]


def _is_sentence_end(before: str, after: str) -> bool:
    """Return False after "Dr.", an initial or an ordinal, and before a lowercase letter."""
    text, first = before.rstrip(_CLOSING), after.lstrip(_OPENING)[:1]
    if first.islower():
        return False
    if not text.endswith("."):
        return True
    words = text.split()
    word = words[-1][:-1].lstrip(_OPENING)
    initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    ordinal = word.isdigit() and len(word) < 3
    dated = len(words) == 1 or words[-2][:1].isdigit()  # as in "jeu. 27 févr. 2076"
    numbered = first.isdigit() and (dated or _BEFORE_NUMBERS.fullmatch(word))
    abbreviated = _TITLES.fullmatch(word) or "." in word.strip(".")
    return not (initial or ordinal or numbered or abbreviated)


def segments(
    line: str, fits: Callable[[str], bool], *, max_sentences: int | None = None
) -> list[Segment]:
    """Split a line into as few parts as fit; with their separators they make up the line.

    Args:
        fits: returns True for a text that is short enough for the model.
        max_sentences: maximum number of sentences in a part; any number if None.
    """
    if max_sentences is None:
        return [Segment(line, "")] if fits(line) else list(_merged(_split_to_fit(line, fits), fits))
    every = sentences(line)
    if fits(line) and len(every) <= max_sentences:
        return [Segment(line, "")]
    parts: list[Segment] = []
    for first in range(0, len(every), max_sentences):
        group = every[first : first + max_sentences]
        text = "".join(one.text + one.separator for one in group)
        separator = group[-1].separator
        finer = segments(text.removesuffix(separator), fits)
        parts += [*finer[:-1], replace(finer[-1], separator=separator)]
    return parts


def _split_to_fit(text: str, fits: Callable[[str], bool], level: int = 0) -> list[Segment]:
    """Split a text into parts that fit, at the best possible boundaries."""
    if level == len(_BOUNDARIES):
        half = len(text) // 2
        if fits(text) or half == 0:
            return [Segment(text, "")]
        if len(text) > 1000 and not _WITHOUT_SPACES.search(text):  # longer than a URL
            return [Segment(text, "", oversized=True)]
        return _split_to_fit(text[:half], fits, level) + _split_to_fit(text[half:], fits, level)
    parts: list[Segment] = []
    for part in _split(text, _BOUNDARIES[level]):
        if fits(part.text):
            parts.append(part)
        else:
            finer = _split_to_fit(part.text, fits, level + 1)
            parts += [*finer[:-1], replace(finer[-1], separator=part.separator)]
    return parts


def _split(text: str, boundary: re.Pattern[str]) -> Iterator[Segment]:
    start = 0
    for match in boundary.finditer(text):
        # Closing quotes belong to the sentence before the space.
        end = match.start() + len(match.group().rstrip())
        if end > start:
            yield Segment(text[start:end], text[end : match.end()])
            start = match.end()
    if start < len(text):
        yield Segment(text[start:], "")


def _merged(parts: list[Segment], fits: Callable[[str], bool]) -> Iterator[Segment]:
    """Merge neighbors as long as they fit, to keep context."""
    whole = parts[0]
    for part in parts[1:]:
        joined = whole.text + whole.separator + part.text
        if not (whole.oversized or part.oversized) and fits(joined):
            whole = Segment(joined, part.separator)
        else:
            yield whole
            whole = part
    yield whole


def batches_by_length(
    lengths: Sequence[int],
    *,
    tokens: int,
    rows: int,
    workers: int = 1,
    group: Callable[[int], int] = lambda length: 0,
) -> list[list[int]]:
    """Return batches of indices with at most `rows` sentences and `tokens` padded tokens.

    Few sentences are divided among all workers. The longest come first, so that workers end at
    about the same time. Sentences of different groups are never in one batch; one that is longer
    than `tokens` is a batch by itself.
    """
    rows = max(1, min(rows, -(-len(lengths) // workers)))
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[batches[-1][0]] if batches else 0
        full = not batches or len(batches[-1]) >= rows or group(longest) != group(lengths[index])
        if full or (len(batches[-1]) + 1) * longest > tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
