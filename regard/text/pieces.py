"""The pieces of a tokenized text, each with the whole characters it covers."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer as Backend

_INSIDE = "'’-‐·."
"""Marks that belong to a word when letters or digits stand on both sides: don't, e-mail, 3.5."""


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every word; a mark that is no part of a word stands alone."""
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        end = _end_of_word(text, at)
        if not text[at].isspace():
            spans.append((at, end))
        at = end
    return spans


def _end_of_word(text: str, at: int) -> int:
    end = at + 1
    if text[at].isspace():
        return end
    wordy = _is_wordy(text[at])
    while end < len(text):
        joined = text[end - 1] == "\u200d" and not text[end].isspace()  # two emoji made one
        if joined or _is_attached(text[end]) or (wordy and _is_wordy(text[end])):
            end += 1
        elif wordy and text[end] in _INSIDE and _is_wordy(text[end + 1 : end + 2]):
            end += 2
        else:
            break
    return end


def _is_wordy(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_attached(character: str) -> bool:
    """Accents, vowel signs, variation selectors and invisible joiners go with what they follow."""
    if character.isascii():
        return False
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf", "Sk")


def word_at(words: Sequence[tuple[int, int]], start: int) -> int | None:
    """The number of the word that the character at `start` belongs to.

    Characters between words go with the word that follows; after the last word, with that one.
    """
    if not words:
        return None
    after = bisect_right(words, start, key=lambda word: word[0])
    if after and start < words[after - 1][1]:  # start lies inside a word
        return after - 1
    return min(after, len(words) - 1)


class Surface:
    """The bytes that tokens stand for, whichever way the vocabulary writes them."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        described = backend.decoder.__getstate__() if backend.decoder else b""
        self._byte_level = b'"ByteLevel"' in described
        self._byte_fallback = b'"ByteFallback"' in described
        self._later: dict[int, bytes] = {}

    def bytes_of(self, id: int, *, first: bool) -> bytes:
        """The token's bytes; the first of a text may lose the space in front of it."""
        token = self._backend.id_to_token(id) or ""
        if id in self._added:
            return self._added[id].content.encode() if self._byte_level else self._shown(id, first)
        if self._byte_level and all(character in _BYTE_OF for character in token):
            return bytes(_BYTE_OF[character] for character in token)
        if self._byte_fallback and _is_byte(token):
            return bytes([int(token[3:5], 16)])
        return self._shown(id, first)

    def _shown(self, id: int, first: bool) -> bytes:
        if first:
            return self._decoded(id)
        if id not in self._later:
            self._later[id] = self._decoded(self._anchor, id)[len(self._decoded(self._anchor)) :]
        return self._later[id]

    def _decoded(self, *ids: int) -> bytes:
        return self._backend.decode(list(ids), skip_special_tokens=False).encode()

    @cached_property
    def _anchor(self) -> int:
        """Some ordinary token, to see what another one looks like when it is not the first."""
        for id in range(self._backend.get_vocab_size()):
            token = self._backend.id_to_token(id) or ""
            if id not in self._added and any(character.isalpha() for character in token):
                return id
        return 0


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table).

    Printable bytes stand for themselves; the others are numbered from U+0100 upwards.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + number): byte for number, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()


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
