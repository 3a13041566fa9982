"""Lines made fit for a model: split at sentences or where too long, and rejoined afterwards."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batches_by_length(
    lengths: Sequence[int],
    *,
    tokens: int,
    rows: int,
    group: Callable[[int], int] = lambda length: 0,
) -> list[list[int]]:
    """Indices in batches of at most `rows` sentences and `tokens` tokens, padding included.

    The longest come first, so that the last batches are short ones and all workers end together.
    A sentence longer than the budget has a batch of its own. Sentences whose lengths are of
    different groups are never in one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = lengths[batches[-1][0]] if batches else 0
        full = not batches or len(batches[-1]) >= rows or group(longest) != group(lengths[index])
        if full or (len(batches[-1]) + 1) * longest > tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


def rows_for(n_sentences: int, *, most: int, workers: int) -> int:
    """How many sentences a batch shall have, so that every worker has one if there are few."""
    return max(1, min(most, -(-n_sentences // workers)))


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, so that memory does not grow with how many there are."""
    stream = iter(items)
    while window := list(islice(stream, size)):
        yield window


# Places to split at, the best first: between sentences, between clauses, between words.
_SEAMS = (
    re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+|(?<=[。！？])(?![。！？”’」』）])"),
    re.compile(r"(?<=[;:,、，])\s+|(?<=[、，；：])"),
    re.compile(r"\s+"),
)
# What no model has seen and no terminal shows: control characters except the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff]")

# Scripts that put no space between words: Thai to Burmese, Khmer, Kana, Han.
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")

# What a full stop stands behind without ending a sentence: titles, and these before a number.
_TITLES = re.compile(
    "(mr|mrs|ms|mx|dr|prof|st|rev|gen|sen|gov|capt|lt|col|sgt|hr|fr|frl|mme)", re.IGNORECASE
)
_BEFORE_NUMBERS = re.compile(
    "([0-9]+|no|nr|fig|p|pp|vol|jan|feb|mar|apr|aug|sept?|oct|nov|dec)", re.IGNORECASE
)
_CLOSING, _OPENING = "\"'”’»)]", "\"'„“‚‘«(["

_LONGEST_WORD = 1000
"""Characters; addresses of pages can have that many."""


@dataclass(frozen=True)
class Segment:
    """A part of a line, and what stood between it and the next part."""

    text: str
    seam: str
    strange: bool = False
    """Whether it is a word longer than any there is, and so no word of any language."""


def clean(line: str) -> str:
    """The line without control characters and without space at its ends."""
    return _CONTROL.sub(" ", line).strip()


def sentences(line: str) -> list[Segment]:
    """The line's sentences, as far as marks and capitals tell, with what stands between them."""
    found: list[Segment] = []
    for part in _at_seams(line, _SEAMS[0]):
        if found and not _ends(found[-1].text, part.text):
            before = found.pop()
            part = Segment(before.text + before.seam + part.text, part.seam)
        found.append(part)
    return found or [Segment(line, "")]


def _ends(before: str, after: str) -> bool:
    """Whether a sentence ends here: not behind "Dr." or "J.", nor before a small letter."""
    said, first = before.rstrip(_CLOSING), after.lstrip(_OPENING)[:1]
    if first.islower():
        return False
    if not said.endswith("."):
        return True
    word = said.split()[-1][:-1].lstrip(_OPENING)
    initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    ordinal = word.isdigit() and len(word) < 3
    numbered = first.isdigit() and _BEFORE_NUMBERS.fullmatch(word)
    shortened = _TITLES.fullmatch(word) or "." in word.strip(".")
    return not (initial or ordinal or numbered or shortened)


def segments(line: str, fits: Callable[[str], bool], *, most: int | None = None) -> list[Segment]:
    """The line in as few parts as fit, in order; together with their seams they are the line.

    Args:
        most: how many sentences a part may have; any number unless given.
    """
    whole = sentences(line) if most is not None else []
    if fits(line) and (most is None or len(whole) <= most):
        return [Segment(line, "")]
    if most is None:
        return list(_packed(_pieces(line, fits, 0), fits))
    parts: list[Segment] = []
    for first in range(0, len(whole), most):
        several = whole[first : first + most]
        text = "".join(one.text + one.seam for one in several)
        text = text.removesuffix(several[-1].seam)
        finer = segments(text, fits)
        parts += [*finer[:-1], replace(finer[-1], seam=several[-1].seam)]
    return parts


def _pieces(text: str, fits: Callable[[str], bool], level: int) -> list[Segment]:
    """Parts that fit, split no finer than is needed."""
    if level == len(_SEAMS):
        half = len(text) // 2
        if fits(text) or half == 0:
            return [Segment(text, "")]
        if len(text) > _LONGEST_WORD and not _WITHOUT_SPACES.search(text):
            return [Segment(text, "", strange=True)]
        return _pieces(text[:half], fits, level) + _pieces(text[half:], fits, level)
    parts: list[Segment] = []
    for part in _at_seams(text, _SEAMS[level]):
        if fits(part.text):
            parts.append(part)
        else:
            finer = _pieces(part.text, fits, level + 1)
            parts += [*finer[:-1], replace(finer[-1], seam=part.seam)]
    return parts


def _at_seams(text: str, seam: re.Pattern[str]) -> Iterator[Segment]:
    start = 0
    for match in seam.finditer(text):
        # Closing quotes belong to the sentence before the space.
        space = len(match.group().rstrip())
        end = match.start() + space
        if end > start:
            yield Segment(text[start:end], text[end : match.end()])
            start = match.end()
    if start < len(text):
        yield Segment(text[start:], "")


def _packed(parts: list[Segment], fits: Callable[[str], bool]) -> Iterator[Segment]:
    """Neighbors put together again as long as they fit, so that context is kept."""
    whole = parts[0]
    for part in parts[1:]:
        joined = whole.text + whole.seam + part.text
        if not (whole.strange or part.strange) and fits(joined):
            whole = Segment(joined, part.seam)
        else:
            yield whole
            whole = part
    yield whole
