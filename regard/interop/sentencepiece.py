"""SentencePiece vocabularies (Kudo & Richardson 2018) as tokenizers of ours.

A .model or .spm file is a protocol-buffer message; the few fields of it that matter are read here.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Backend

from regard.errors import FileError, InputError
from regard.text.tokenizer import Tokenizer

SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_UNIGRAM, _BPE = 1, 2
_NEVER = -1e6
"""The score of a piece that is in the model's vocabulary but that this side's text is not cut into:
it is taken only where nothing else is left, as an unknown piece with its name would be."""


@dataclass(frozen=True)
class Piece:
    """One entry of a vocabulary."""

    text: str
    score: float
    kind: int = _NORMAL

    @property
    def special(self) -> bool:
        """Whether it stands for no characters."""
        return self.kind in (_UNKNOWN, _CONTROL)


@dataclass(frozen=True)
class Vocabulary:
    """What a SentencePiece file holds."""

    pieces: tuple[Piece, ...]
    model: int = _UNIGRAM
    charsmap: bytes = b""
    """Rules that normalize text, compiled."""
    dummy_prefix: bool = True
    """Whether a text gets a space in front."""


def read_vocabulary(file: Path) -> Vocabulary:
    """The vocabulary in a .model or .spm file."""
    try:
        data = file.read_bytes()
        pieces, model, charsmap, dummy = [], _UNIGRAM, b"", True
        for number, value in _fields(data):
            if number == 1:
                pieces.append(_piece(dict(_fields(_bytes(value)))))
            elif number == 2:
                model = int(dict(_fields(_bytes(value))).get(3, _UNIGRAM))
            elif number == 3:
                spec = dict(_fields(_bytes(value)))
                charsmap, dummy = _bytes(spec.get(2, b"")), bool(spec.get(3, True))
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, IndexError, struct.error) as error:
        raise FileError(
            f"{file} is no SentencePiece file, or a damaged one: fetch it again."
        ) from error
    if not pieces:
        raise FileError(f"{file} is no SentencePiece file: it holds no pieces.")
    return Vocabulary(tuple(pieces), model, charsmap, dummy)


def _piece(fields: Mapping[int, int | bytes]) -> Piece:
    (score,) = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))
    return Piece(_bytes(fields[1]).decode(), score, int(fields.get(3, _NORMAL)))


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where text should be")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol-buffer message: numbers with numbers or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"there is no wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field reaches beyond the end")
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


def llama_tokenizer(pieces: Sequence[Piece], *, dummy_prefix: bool = True) -> Tokenizer:
    """BPE by scores, with bytes for characters that are no pieces, as Llama cuts text.

    Pairs are joined in the order of the scores of what they make.
    """
    ids = {piece.text: id for id, piece in enumerate(pieces)}
    made: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece in pieces:
        if piece.kind not in (_NORMAL, _USER):
            continue
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in ids and right in ids:
                made.append((-piece.score, ids[left], ids[right], (left, right)))
    merges = [pair for *_, pair in sorted(made)]
    unknown = next((piece.text for piece in pieces if piece.kind == _UNKNOWN), None)
    model = models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Backend(model)
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
    """One side's cutting of text, with the ids that both sides share.

    Args:
        vocabulary: the pieces of this side, with their scores.
        ids: the id of every piece of both sides, as vocab.json has them.
        start: the token that stands in front of a text, if one does.
        end: the token that stands behind it.
    """
    if vocabulary.model != _UNIGRAM:
        raise InputError("Marian's vocabularies are of the unigram kind, and this one is not.")
    scores = {piece.text: piece.score for piece in vocabulary.pieces if not piece.special}
    by_id = {id: piece for piece, id in ids.items()}
    if sorted(by_id) != list(range(len(by_id))) or len(by_id) != len(ids):
        raise InputError(
            "vocab.json has gaps in its ids, or one twice: fetch the checkpoint again."
        )
    unknown = ids.get("<unk>")
    table = [(by_id[id], scores.get(by_id[id], _NEVER)) for id in range(len(by_id))]
    backend = Backend(models.Unigram(table, unk_id=unknown, byte_fallback=False))
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
