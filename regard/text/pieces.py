"""The pieces of a tokenised text, each with the whole characters it covers."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard.text.boundaries import word_at, word_spans

CONTINUED = "⋯"
"""Begins a piece that begins inside a character; an earlier piece shows that character."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as a reader sees it."""

    text: str
    """The characters that begin in this piece; a special token's name."""
    id: int
    start: int
    """First character of the text that the piece has a part in."""
    end: int
    word: int | None
    """Number of its word in the text; None for a special token."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a token stands in the text; special tokens have a name and may cover nothing."""

    id: int
    start: int
    end: int
    name: str | None = None


def pieces_of_spans(text: str, spans: Iterable[Span]) -> list[Piece]:
    """The pieces for tokens at these places: whoever holds a character's beginning shows it."""
    spans = _stretched(text, spans)
    words = word_spans(_blanked(text, spans))
    pieces: list[Piece] = []
    shown = 0
    for span in spans:
        if span.name is not None and span.start == span.end:
            pieces.append(Piece(span.name, span.id, shown, shown, None))
            continue
        own = text[max(span.start, shown) : span.end]
        mark = CONTINUED if span.start < shown else ""
        word = None if span.name else word_at(words, _first_visible(text, span))
        pieces.append(Piece(mark + own, span.id, span.start, span.end, word))
        shown = max(shown, span.end)
    return pieces


def _blanked(text: str, spans: list[Span]) -> str:
    """The text with spaces where special tokens are written, for they are no words."""
    for span in spans:
        if span.name is not None:
            text = text[: span.start] + " " * (span.end - span.start) + text[span.end :]
    return text


def _first_visible(text: str, span: Span) -> int:
    covered = text[span.start : span.end]
    return span.start + len(covered) - len(covered.lstrip())


def _stretched(text: str, spans: Iterable[Span]) -> list[Span]:
    """Spans widened over the accents and Hangul letters that composition joined to them."""
    widened: list[Span] = []
    later = following = len(text)  # where the next span, and the next other character, begins
    for span in reversed(list(spans)):
        end = span.end
        if span.start < end:
            following = later if later >= end else following
            later = span.start
            while end < following and _joins(text[end]):
                end += 1
        widened.append(Span(span.id, span.start, end, span.name))
    return widened[::-1]


def _joins(character: str) -> bool:
    """Whether composition joins the character to the one before: marks, Hangul vowels, finals."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"


def group_bytes(pieces: Sequence[Piece]) -> list[range]:
    """Runs of pieces that together cover whole characters; most runs hold one piece."""
    runs: list[range] = []
    covered = 0
    for number, piece in enumerate(pieces):
        inside = bool(runs) and piece.start < covered and piece.end > piece.start
        if inside:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
        covered = max(covered, piece.end)
    return runs


def characters_of(data: bytes) -> Iterator[tuple[str, int]]:
    """Every character of UTF-8 bytes with its number of bytes; broken ones become U+FFFD."""
    at = 0
    while at < len(data):
        try:
            good, bad = data[at:].decode(), 0
        except UnicodeDecodeError as error:
            good, bad = data[at : at + error.start].decode(), error.end - error.start
        for character in good:
            width = len(character.encode())
            yield character, width
            at += width
        if bad:
            yield "\ufffd", bad
            at += bad


def spans_of_bytes(tokens: Sequence[tuple[int, bytes | str]]) -> tuple[str, list[Span]]:
    """The text that tokens make together, and where each stands in it.

    A token is its id with its bytes, or with its name when it is special and no part of the text.
    """
    data = b"".join(part for _, part in tokens if isinstance(part, bytes))
    characters: list[str] = []
    at_byte: list[int] = []  # the character that each byte belongs to
    for character, width in characters_of(data):
        at_byte += [len(characters)] * width
        characters.append(character)
    at_byte.append(len(characters))
    spans, first = [], 0
    for id, part in tokens:
        if isinstance(part, str):
            spans.append(Span(id, at_byte[first], at_byte[first], part))
            continue
        last = first + len(part)
        end = at_byte[last - 1] + 1 if part else at_byte[first]
        spans.append(Span(id, at_byte[first], end))
        first = last
    return "".join(characters), spans
