"""Splitting lines into parts that a model can translate, and batching the parts.

Numbers, addresses, tags and emoji are found here, too, which a translation must not change.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Part = tuple["Segment", list[int], bool]
"""A part of a line, its ids, and True if it is copied."""

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
_TITLES = "(?i:mr|mrs|ms|mx|dr|prof|st|rev|gen|sen|gov|capt|lt|col|sgt|hr|fr|frl|mme)"
_BEFORE_NUMBERS = "(?i:[0-9]+|no|nr|fig|p|pp|vol|jan|feb|mar|apr|aug|sept?|oct|nov|dec)"
# What a translation must carry over; the name of a group is the kind.
_EMOJI = r"[\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a-\u23ff]"
_KEPT = (
    r"(?P<tag></?[A-Za-z][^<>]*>)",
    r"(?P<code>`[^`]+`)",
    r"(?P<address>(?:https?://|www\.)[^\s<>\"]*[\w/#=&%-]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)",
    r"(?P<slot>\$?\{[\w.]*\}|%\(\w+\)[sd]|%(?:\d+\$)?[sd](?!\w)|&#?\w+;)",
    r"(?P<path>(?<![\w.])(?:[A-Za-z]:\\|~?/)(?:[\w.~-]+[/\\])+[\w.~-]*\w)",
    r"(?P<name>(?<!\w)(?:[@#][^\W\d]\w*|[^\W_]{1,64}_\w+|v?\d+(?:\.\d+){2,}(?:-?\w+)?)(?!\w))",
    rf"(?P<emoji>(?:{_EMOJI}[\ufe0f\u200d]*)+)",
    r"(?P<number>(?<!\w)[$€£¥₩]?\d+(?:[.,:/'’-]\d+)*(?!\w))",
)
_OUTER = ("tag", "emoji", "name")  # kinds that stand outside of a sentence at its ends
_SPELLED_OUT = 12  # integers up to this one are often written in words
_SLOTS = ("abcdefghij", "0123456789")  # names of placeholders, as in {a}, which may be copied
_CLOSING, _OPENING = "\"'”’»)]", "\"'„“‚‘«(["


@dataclass(frozen=True)
class Segment:
    """A part of a line, and the text between it and the next part."""

    text: str
    separator: str
    oversized: bool = False  # a text without spaces that is too long for a word; it is copied
    tag: str = ""  # of the model, such as "<formal>", in front of what it reads


def clean(line: str) -> str:
    """Remove control characters, and spaces at the ends."""
    return _CONTROL.sub(" ", line).strip()


@dataclass(frozen=True)
class KeptSpan:
    """A part of a text that its translation must have, too."""

    text: str
    kind: str
    start: int
    end: int

    def is_in(self, translation: str) -> bool:
        """Return True if the translation has it; the separators of a number may be others."""
        if self.kind != "number":
            return self.text in translation
        found = (match.group() for match in re.finditer(r"\d+(?:[.,:/'’-]\d+)*", translation))
        return _digits(self.text) in map(_digits, found)


def _digits(number: str) -> str:
    return re.sub(r"[.,:'’$€£¥₩]", "", number)


@cache
def _kept_pattern() -> re.Pattern[str]:
    """Compile the pattern when it is first used, which takes as long as a short translation."""
    return re.compile("|".join(_KEPT))


def kept_spans(text: str) -> list[KeptSpan]:
    """Find numbers, addresses, tags, names in code, placeholders and emoji."""
    found = []
    for match in _kept_pattern().finditer(text):
        kind, span = str(match.lastgroup), match.group()
        small = kind == "number" and len(span) < 3 and int(_digits(span) or 0) <= _SPELLED_OUT
        if not small:
            found.append(KeptSpan(span, kind, match.start(), match.end()))
    return found


def lost_spans(text: str, translation: str) -> list[KeptSpan]:
    """Return what a translation should have carried over and did not."""
    return [span for span in kept_spans(text) if not span.is_in(translation)]


def share_copied(lines: Iterable[Sequence[str]]) -> float:
    """Return the share of what can be carried over that pairs of texts do carry over."""
    texts = [(line[0], " ".join(span.text for span in kept_spans(line[1]))) for line in lines]
    kept = [span.is_in(found) for source, found in texts for span in kept_spans(source)]
    return round(sum(kept) / len(kept), 3) if kept else 0.0


def carve(text: str, *, ends: bool = False) -> list[tuple[Segment, bool]]:
    """Split a text at what must be kept; True marks the parts to copy.

    Args:
        ends: split off only tags, names and emoji at the two ends.
    """
    spans, first, last = kept_spans(text), 0, len(text)
    if ends:
        while spans and spans[0].kind in _OUTER and spans[0].start == first:
            first = _skip_space(text, spans.pop(0).end)
        while spans and spans[-1].kind in _OUTER and spans[-1].end == last:
            last = len(text[: spans.pop().start].rstrip())
        spans = [x for x in kept_spans(text) if x.end <= first or x.start >= last]
    pieces, at = [], 0
    for span in [*spans, KeptSpan("", "", len(text), len(text))]:
        pieces += [(text[at : span.start], False), (span.text, True)]
        at = span.end
    carved: list[tuple[Segment, bool]] = []
    for piece, kept in pieces:
        if carved:
            start = piece[: len(piece) - len(piece.lstrip())]
            carved[-1] = (
                replace(carved[-1][0], separator=carved[-1][0].separator + start),
                carved[-1][1],
            )
        words = piece.strip()
        if words:
            end = piece[len(piece.rstrip()) :]
            carved.append((Segment(words, end), kept or not any(map(str.isalpha, words))))
    return carved


def _skip_space(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def put_back(
    found: Iterable[tuple[Answer, str]], spans: Sequence[KeptSpan], slots: Sequence[str]
) -> list[tuple[Answer, str]]:
    """Return the translations that have every placeholder once, with the spans in their place."""
    filled = []
    for one, text in found:
        if all(text.count(slot) == 1 for slot in slots):
            rest = re.sub("|".join(map(re.escape, slots)) or "(?!)", "", text)
            if not re.search(r"[{}]", rest):  # of half a placeholder
                for span, slot in zip(spans, slots, strict=True):
                    text = text.replace(slot, span.text)
                filled.append((one, text))
    return filled


@dataclass(frozen=True)
class CarryOver(Generic[Answer]):
    """Translates parts again that have lost something.

    Args:
        encode: tokenizes a text.
        is_empty: returns True for ids that are not worth translating.
        translate: returns the best translations of a source, with their texts.
    """

    encode: Callable[[str], list[int]]
    is_empty: Callable[[list[int]], bool]
    unknown_id: int | None
    translate: Callable[[list[int]], list[tuple[Answer, str]]]

    def carry_over(
        self, parts: Iterable[Part], answers: Iterator[list[tuple[Answer, str]]]
    ) -> tuple[list[Part], Iterator[list[tuple[Answer, str]]]]:
        """Return parts and the answers of those not copied, with everything that must be kept."""
        done: list[tuple[Part, list[tuple[Answer, str]] | None]] = []
        for part in parts:
            answer = None if part[2] else next(answers)
            if answer is None or not lost_spans(part[0].text, answer[0][1]):
                if answer is not None and is_shouted(part[0].text):
                    answer = [(one, text.upper()) for one, text in answer]
                done.append((part, answer))
                continue
            # Tags and emoji at the ends are copied; what is between them is translated.
            for piece, copied in carve(part[0].text, ends=True):
                tagged = replace(piece, tag=part[0].tag)
                done += [((piece, [], True), None)] if copied else self._fill_in(tagged)
            (last, ids, copied), answer = done[-1]
            done[-1] = ((replace(last, separator=part[0].separator), ids, copied), answer)
        return [part for part, _ in done], iter([one for _, one in done if one is not None])

    def _fill_in(self, part: Segment) -> list[tuple[Part, list[tuple[Answer, str]] | None]]:
        """Translate with placeholders, or the pieces between what is copied if one is lost."""
        spans = kept_spans(part.text)
        for names in _SLOTS if not any(" " in span.text for span in spans) else ():
            slots, text = [f"{{{name}}}" for name in names[: len(spans)]], part.text
            for span, slot in reversed(list(zip(spans, slots, strict=False))):
                text = text[: span.start] + slot + text[span.end :]
            ids = self.encode(part.tag + text)
            if len(slots) < len(spans) or self.unknown_id in ids:
                break
            if filled := put_back(self.translate(ids), spans, slots):
                return [((part, ids, False), filled)]
        done: list[tuple[Part, list[tuple[Answer, str]] | None]] = []
        for piece, copied in carve(part.text):
            copied = copied or self.is_empty(self.encode(piece.text))
            ids = self.encode(part.tag + piece.text)
            done.append(((piece, ids, copied), None if copied else self.translate(ids)))
        return done


def is_shouted(text: str) -> bool:
    """Return True for a sentence in capitals, of which models have seen few."""
    return text.isupper() and len(re.findall(r"[^\W\d_]+", text)) >= 3 and not kept_spans(text)


def in_lowercase(text: str) -> str:
    """Write a sentence in capitals as an ordinary one."""
    return re.sub(r"\bi\b", "I", text.capitalize())


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
    numbered = first.isdigit() and (dated or re.fullmatch(_BEFORE_NUMBERS, word))
    abbreviated = re.fullmatch(_TITLES, word) or "." in word.strip(".")
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
        kept = sum(len(span.text) for span in kept_spans(text)) > 0.9 * len(text)
        if kept or (len(text) > 1000 and not _WITHOUT_SPACES.search(text)):
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
