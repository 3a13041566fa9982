"""SentencePiece files: read as protobuf writes them, tokenized by the definition of the scores."""

from itertools import combinations, pairwise
from pathlib import Path

import pytest

from regard.errors import FileError, InputError
from regard.interop.sentencepiece import (
    SentencePieceEntry,
    Vocabulary,
    llama_tokenizer,
    marian_tokenizer,
    read_vocabulary,
)

UNKNOWN, CONTROL, BYTE, BPE = 2, 3, 6, 2


def message(pieces, *, model=1, **normalizer):
    from transformers.utils import sentencepiece_model_pb2_new as messages

    made = messages.ModelProto()
    made.trainer_spec.model_type = model
    made.trainer_spec.vocab_size = len(pieces)
    made.trainer_spec.input.append("an unused field")
    for text, score, kind in pieces:
        made.pieces.add(piece=text, score=score, type=kind)
    for name, value in normalizer.items():
        setattr(made.normalizer_spec, name, value)
    return made.SerializeToString()


def test_files_of_the_library_are_read(tmp_path):
    pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("▁läuft", -1.5, 1), ("<0x0A>", 0, 6)]
    (tmp_path / "a.model").write_bytes(
        message(pieces, model=BPE, add_dummy_prefix=False, precompiled_charsmap=b"\1\2\0")
    )
    assert read_vocabulary(tmp_path / "a.model") == Vocabulary(
        tuple(SentencePieceEntry(*piece) for piece in pieces), BPE, b"\1\2\0", dummy_prefix=False
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no such file at all, but text",
        b"\xff" * 40,
        message([("a", 0.0, 1)])[:-3],
        b"\x0a\x7f",
    ],
)
def test_other_and_truncated_files_are_refused(tmp_path, data):
    (tmp_path / "a.spm").write_bytes(data)
    with pytest.raises(FileError, match=r"a\.spm is not a SentencePiece file"):
        read_vocabulary(tmp_path / "a.spm")
    with pytest.raises(FileError, match=r"b\.spm cannot be read"):
        read_vocabulary(Path(tmp_path / "b.spm"))


SCORES = {"▁": -3.0, "a": -4.0, "b": -4.5, "ab": -5.0, "▁a": -4.2, "ba": -6.0, "▁ab": -9.5}


def best_cut(text):
    """The pieces with the largest sum of scores, by trying all ways to cut."""
    text = "▁" + text.replace(" ", "▁")
    ways = []
    for n in range(len(text)):
        for cuts in combinations(range(1, len(text)), n):
            ends = [0, *cuts, len(text)]
            pieces = [text[i:j] for i, j in pairwise(ends)]
            if all(piece in SCORES for piece in pieces):
                ways.append((sum(SCORES[piece] for piece in pieces), pieces))
    return max(ways)[1]


@pytest.mark.parametrize("text", ["ab", "aba", "abba a", "b ab ba", "aaaa", "bb"])
def test_marians_pieces_are_those_with_the_best_sum_of_scores(text):
    vocabulary = Vocabulary(
        tuple(SentencePieceEntry(text, score) for text, score in SCORES.items())
    )
    names = ["</s>", "<unk>", *SCORES, "foreign", "<pad>"]
    ids = {name: id for id, name in enumerate(names)}
    tokenizer = marian_tokenizer(vocabulary, ids, start=None, end="</s>")
    tokens = [tokenizer.token_of(id) for id in tokenizer.encode(text)]
    assert tokens == [*best_cut(text), "</s>"]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unknown_characters_and_roles():
    vocabulary = Vocabulary(
        tuple(SentencePieceEntry(text, score) for text, score in SCORES.items())
    )
    ids = {name: id for id, name in enumerate(["</s>", "<unk>", *SCORES, "<pad>"])}
    tokenizer = marian_tokenizer(vocabulary, ids, start="<pad>", end="</s>")
    assert tokenizer.encode("aé") == [ids["<pad>"], ids["▁a"], ids["<unk>"], ids["</s>"]]
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id) == (9, 0, 9)


def test_marian_refuses_other_vocabulary_types():
    with pytest.raises(InputError, match="needs a unigram vocabulary"):
        marian_tokenizer(
            Vocabulary((SentencePieceEntry("a", 0.0),), BPE), {"a": 0}, start=None, end="a"
        )


PIECES = [
    SentencePieceEntry("<unk>", 0.0, UNKNOWN),
    SentencePieceEntry("<s>", 0.0, CONTROL),
    SentencePieceEntry("</s>", 0.0, CONTROL),
]
PIECES += [SentencePieceEntry(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
PIECES += [
    SentencePieceEntry(text, -float(rank))
    for rank, text in enumerate(["ab", "abc", "bc", "▁a", "▁", *"abc"])
]


def joined_by_scores(text):
    """The definition: again and again, join the two neighbors whose union scores best."""
    scores = {piece.text: piece.score for piece in PIECES[259:]}
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [(scores.get(a + b), -i) for i, (a, b) in enumerate(pairwise(parts))]
        known = [pair for pair in pairs if pair[0] is not None]
        if not known:
            return parts
        at = -max(known)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]


@pytest.mark.parametrize("text", ["abc", "bc", "a", "aabc bca", "cab  abcabc"])
def test_llamas_pieces_are_joined_in_the_order_of_scores(text):
    tokenizer = llama_tokenizer(PIECES)
    tokens = [tokenizer.token_of(id) for id in tokenizer.encode(text)]
    assert tokens == ["<s>", *joined_by_scores(text)]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_llama_writes_unknown_characters_in_bytes():
    tokenizer = llama_tokenizer(PIECES)
    ids = tokenizer.encode("aé", specials=False)
    assert [tokenizer.token_of(id) for id in ids] == ["▁a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "aé"
    assert tokenizer.start_id == 1
