"""The pieces of a tokenized text, each with the characters it covers."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer as Backend

CONTINUED = "⋯"
"""Prefix of a piece that starts inside a character; an earlier piece shows that character."""
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})  # as the page shows them
_INSIDE = "'’-‐·."  # marks that belong to a word between two letters or digits: don't, e-mail, 3.5


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as a reader sees it."""

    text: str  # the characters that start in this piece; the name of a special token
    id: int
    start: int  # first character of the text that the piece covers, wholly or in part
    end: int
    word: int | None  # index of its word in the text; None for a special token


@dataclass(frozen=True, slots=True)
class Span:
    """The characters that a token covers; special tokens have a name and may cover none."""

    id: int
    start: int
    end: int
    name: str | None = None


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of every word; punctuation marks between words are words too."""
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
    is_word = _is_word_character(text[at])
    while end < len(text):
        joined = text[end - 1] == "\u200d" and not text[end].isspace()  # emoji sequences
        if joined or _is_attached(text[end]) or (is_word and _is_word_character(text[end])):
            end += 1
        elif is_word and text[end] in _INSIDE and _is_word_character(text[end + 1 : end + 2]):
            end += 2
        else:
            break
    return end


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_attached(character: str) -> bool:
    """Return True for accents, vowel signs, variation selectors and invisible joiners."""
    attached = ("Mn", "Mc", "Me", "Cf", "Sk")
    return not character.isascii() and unicodedata.category(character) in attached


def word_at(words: Sequence[tuple[int, int]], start: int) -> int | None:
    """Return the index of the word at character `start`.

    Characters between words belong to the next word, and those after the last word to the last.
    """
    if not words:
        return None
    after = bisect_right(words, start, key=lambda word: word[0])
    if after and start < words[after - 1][1]:  # inside a word
        return after - 1
    return min(after, len(words) - 1)


class TokenBytes:
    """The bytes of tokens, independent of how the vocabulary encodes them."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        decoder = backend.decoder.__getstate__() if backend.decoder else b""
        self._byte_level = b'"ByteLevel"' in decoder
        self._byte_fallback = b'"ByteFallback"' in decoder
        self._later: dict[int, bytes] = {}

    def get(self, id: int, *, first: bool) -> bytes:
        """Return a token's bytes; the first token of a text may lose its leading space."""
        token = self._backend.id_to_token(id) or ""
        if id in self._added:
            return self._added[id].content.encode() if self._byte_level else self._shown(id, first)
        if self._byte_level and all(character in _BYTE_OF for character in token):
            return bytes(_BYTE_OF[character] for character in token)
        if self._byte_fallback and is_byte_token(token):
            return bytes([int(token[3:5], 16)])
        return self._shown(id, first)

    def label(self, id: int) -> str:
        """Return a token as people read it: GPT-2's Ġdog is ␣dog, its Ċ is ⏎."""
        token = self._backend.id_to_token(id) or ""
        if not self._byte_level or id in self._added:
            return token
        return self.text(id).translate(_VISIBLE)

    def text(self, id: int) -> str:
        """Return what a token adds to a text: " dog" for ▁dog and Ġdog, "s" for ##s."""
        if id in self._added:
            return self._added[id].content
        return self.get(id, first=False).decode(errors="replace")

    def _shown(self, id: int, first: bool) -> bytes:
        if first:
            return self._decode(id)
        if id not in self._later:
            self._later[id] = self._decode(self._anchor, id)[len(self._decode(self._anchor)) :]
        return self._later[id]

    def _decode(self, *ids: int) -> bytes:
        return self._backend.decode(list(ids), skip_special_tokens=False).encode()

    @cached_property
    def _anchor(self) -> int:
        """An ordinary token, decoded in front of others to see how these look when not first."""
        for id in range(self._backend.get_vocab_size()):
            token = self._backend.id_to_token(id) or ""
            if id not in self._added and any(character.isalpha() for character in token):
                return id
        return 0


def is_byte_token(token: str) -> bool:
    """Return True for tokens such as <0x0A>, which encode one byte."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


# GPT-2's table for byte-level vocabularies: printable bytes, then the others from U+0100 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE}
_BYTE_OF |= {chr(0x100 + number): byte for number, byte in enumerate(_OTHERS)}


def pieces_of_spans(text: str, spans: Iterable[Span]) -> list[Piece]:
    """Return one piece for each span; a character is shown by the piece it starts in."""
    spans = _widened(text, spans)
    blanked = text
    for span in spans:  # special tokens that are written in the text are not words
        if span.name is not None:
            blanked = blanked[: span.start] + " " * (span.end - span.start) + blanked[span.end :]
    words = word_spans(blanked)
    pieces: list[Piece] = []
    shown = 0
    for span in spans:
        if span.name is not None and span.start == span.end:
            pieces.append(Piece(span.name, span.id, shown, shown, None))
            continue
        new = text[max(span.start, shown) : span.end]
        mark = CONTINUED if span.start < shown else ""
        covered = text[span.start : span.end]
        visible = span.start + len(covered) - len(covered.lstrip())
        word = None if span.name else word_at(words, visible)
        pieces.append(Piece(mark + new, span.id, span.start, span.end, word))
        shown = max(shown, span.end)
    return pieces


def _widened(text: str, spans: Iterable[Span]) -> list[Span]:
    """Widen spans over the accents and Hangul letters that normalization joined to them."""
    widened: list[Span] = []
    later = following = len(text)  # the start of the next span, and of the next other character
    for span in reversed(list(spans)):
        end = span.end
        if span.start < end:
            following = later if later >= end else following
            later = span.start
            while end < following and _is_combining(text[end]):
                end += 1
        widened.append(Span(span.id, span.start, end, span.name))
    return widened[::-1]


def _is_combining(character: str) -> bool:
    """Return True for marks and Hangul vowels and finals, which join the character before."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"


def characters_of(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield every character of UTF-8 bytes with its size; invalid bytes become U+FFFD."""
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
    """Return the text of the tokens and the span of each.

    A token is its id with its bytes, or with its name if it is special and not part of the text.
    """
    data = b"".join(part for _, part in tokens if isinstance(part, bytes))
    characters: list[str] = []
    at_byte: list[int] = []  # the index of the character that each byte belongs to
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
