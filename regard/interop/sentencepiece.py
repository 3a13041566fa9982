"""Tokenizers from SentencePiece vocabularies (Kudo & Richardson 2018).

A .model or .spm file is a protocol-buffer message, of which a few fields are read here. The
`sentencepiece` package is not used: its message classes cannot be loaded in one process with the
copy in `transformers`, and its processor does not expose the normalization rules.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from regard.errors import FileError, InputError
from regard.files import file_errors
from regard.text.tokenizer import Tokenizer

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
_UNIGRAM = 1


@dataclass(frozen=True)
class SentencePieceEntry:
    """One entry of a vocabulary."""

    text: str
    score: float
    kind: int = NORMAL

    @property
    def special(self) -> bool:
        """True for tokens that are not part of a text."""
        return self.kind in (UNKNOWN, CONTROL)


@dataclass(frozen=True)
class Vocabulary:
    """The contents of a SentencePiece file."""

    pieces: tuple[SentencePieceEntry, ...]
    model: int = _UNIGRAM
    charsmap: bytes = b""  # the compiled normalization rules
    dummy_prefix: bool = True  # add a space before a text


def read_vocabulary(file: Path) -> Vocabulary:
    """Read a .model or .spm file."""
    with file_errors(file):
        data = file.read_bytes()
    try:
        pieces, model, charsmap, dummy = [], _UNIGRAM, b"", True
        for number, value in _fields(data):
            if number == 1:
                spec = dict(_fields(_bytes(value)))
                (score,) = struct.unpack("<f", _bytes(spec.get(2, b"\0\0\0\0")))
                text, kind = _bytes(spec[1]).decode(), int(spec.get(3, NORMAL))
                pieces.append(SentencePieceEntry(text, score, kind))
            elif number == 2:
                model = int(dict(_fields(_bytes(value))).get(3, _UNIGRAM))
            elif number == 3:
                spec = dict(_fields(_bytes(value)))
                charsmap, dummy = _bytes(spec.get(2, b"")), bool(spec.get(3, True))
    except (ValueError, LookupError, struct.error) as error:
        raise FileError(f"{file} is not a SentencePiece file, or it is damaged.") from error
    if not pieces:
        raise FileError(f"{file} is not a SentencePiece file: it has no pieces.")
    return Vocabulary(tuple(pieces), model, charsmap, dummy)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number in place of bytes")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol-buffer message: their numbers with integers or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _varint(data, at)
        if size is None:
            raise ValueError(f"unknown wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field extends beyond the end")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def llama_tokenizer(
    pieces: Sequence[SentencePieceEntry], *, dummy_prefix: bool = True
) -> Tokenizer:
    """Build Llama's tokenizer: BPE with byte fallback, with merges ordered by score."""
    ids = {piece.text: id for id, piece in enumerate(pieces)}
    made: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece in pieces:
        if piece.kind not in (NORMAL, USER):
            continue
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in ids and right in ids:
                made.append((-piece.score, ids[left], ids[right], (left, right)))
    merges = [pair for *_, pair in sorted(made)]
    unknown = next((piece.text for piece in pieces if piece.kind == UNKNOWN), None)
    model = models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Backend(model)
    if dummy_prefix:  # Metaspace adds no space before a space
        backend.normalizer = normalizers.Replace(Regex(r"\A "), "  ")
    scheme = "first" if dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(
        [*parts, decoders.Strip(" ", 1, 0)] if dummy_prefix else parts
    )
    backend.add_special_tokens([AddedToken(p.text, special=True) for p in pieces if p.special])
    if "<s>" in ids:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", ids["<s>"])]
        )
    return Tokenizer(backend)


def marian_tokenizer(
    vocabulary: Vocabulary, ids: Mapping[str, int], *, start: str | None, end: str
) -> Tokenizer:
    """Build the tokenizer of one side of a Marian model, with the ids that both sides share.

    Args:
        ids: the id of every piece of both sides, from vocab.json.
        start: the token before a text, if there is one.
    """
    if vocabulary.model != _UNIGRAM:
        raise InputError("Marian needs a unigram vocabulary, and this one is of another type.")
    scores = {piece.text: piece.score for piece in vocabulary.pieces if not piece.special}
    by_id = {id: piece for piece, id in ids.items()}
    if sorted(by_id) != list(range(len(by_id))) or len(by_id) != len(ids):
        raise InputError("vocab.json has missing or repeated ids: download the checkpoint again.")
    # a piece of the other side is used only where no other matches
    table = [(by_id[id], scores.get(by_id[id], -1e6)) for id in range(len(by_id))]
    backend = Backend(models.Unigram(table, unk_id=ids.get("<unk>"), byte_fallback=False))
    rules: list[normalizers.Normalizer] = []
    if vocabulary.charsmap:
        rules.append(normalizers.Precompiled(vocabulary.charsmap))
    rules += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    backend.normalizer = normalizers.Sequence(rules)
    scheme = "always" if vocabulary.dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    languages = [piece for piece in ids if piece.startswith(">>") and piece.endswith("<<")]
    names = [name for name in ("<unk>", "<pad>", "<s>", "</s>", *languages) if name in ids]
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    front = [] if start is None else [start]
    backend.post_processor = processors.TemplateProcessing(
        single=[*front, "$A", end],
        pair=[*front, "$A", "$B", end],
        special_tokens=[(name, ids[name]) for name in {*front, end}],
    )
    roles = {"pad": "<pad>", "end": end} | ({} if start is None else {"start": start})
    return Tokenizer(backend, roles={r: token for r, token in roles.items() if token in ids})
