"""Token streams: the same ids as the whole text, for every tokenizer."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import token_stream
from regard.data.readers import parallel_text, plain_text
from regard.data.text_checks import Checks
from regard.data.token_stream import TokenStream, build_stream, encode_pieces, split_text
from regard.errors import FileError, InputError
from regard.text.tokenizer_training import KINDS, train_tokenizer

TEXT = "To be, or not to be:\n\n  that is the question —\nWhether 'tis nobler  in the mind\n"
TOKENIZERS = {kind: train_tokenizer([TEXT] * 3, kind=kind, vocab_size=320) for kind in KINDS}


@given(st.text("ab \n.字\u3000", max_size=200), st.integers(1, 20))
def test_joined_pieces_are_the_text(text, size):
    assert "".join(split_text(text, size=size)) == text


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text("to be,\n'nt 字。\u3000", max_size=120), size=st.integers(1, 20))
def test_pieces_give_the_same_tokens_as_the_whole_text(kind, text, size):
    tokenizer = TOKENIZERS[kind]
    pieces = encode_pieces(split_text(text, size=size), tokenizer)
    assert [id for piece in pieces for id in piece] == tokenizer.encode(text, specials=False)


@pytest.mark.parametrize(
    "line", ["春眠不覺曉\n", "　　處處聞啼鳥。\n", "夜來風雨聲\n\n", "word\n", "end \n"]
)
def test_text_without_single_spaces_is_split_too(line):
    pieces = split_text(line * 200, size=50)
    assert max(map(len, pieces)) <= 50 + 2 * len(line)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_chinese_text_gives_the_tokens_of_the_whole(write, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(token_stream, "_BUFFER", 9000)
    text = "春眠不覺曉，處處聞啼鳥。\n　　夜來風雨聲，花落知多少？\n\n" * 600
    tokenizer = train_tokenizer([text], kind=kind, vocab_size=320)
    stream = build_stream(plain_text(write("a.txt", text)), tokenizer, cache=tmp_path / "cache")
    assert stream.ids.tolist() == tokenizer.encode(text, specials=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_of_a_file_is_the_encoding_of_its_text(write, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(token_stream, "_BUFFER", 500)
    tokenizer = TOKENIZERS[kind]
    path = write("a.txt.gz", gzip.compress(TEXT.encode() * 40))
    seen = []
    stream = build_stream(
        plain_text(path), tokenizer, cache=tmp_path / "cache", progress=seen.append
    )
    assert stream.ids.tolist() == tokenizer.encode(TEXT * 40, specials=False)
    assert tokenizer.decode(stream.ids) == TEXT * 40
    assert seen == [160]
    again = build_stream(
        plain_text(path), tokenizer, cache=tmp_path / "cache", progress=seen.append
    )
    assert (again.ledger, seen) == (stream.ledger, [160])


def test_files_are_separated_by_the_end_token(write, tmp_path):
    tokenizer = TOKENIZERS["characters"]
    rows = plain_text(write("a", "to be\n"), write("b", "not\n"))
    stream = build_stream(rows, tokenizer, cache=tmp_path / "cache")
    first, second = tokenizer.encode_batch(["to be\n", "not\n"], specials=False)
    assert stream.ids.tolist() == [*first, tokenizer.end_id, *second]


def test_problems_are_reported_in_running_text_too(write, tmp_path):
    rows = plain_text(write("a", b"to be\n\nto be\nn\xfft\n"))
    tokenizer = TOKENIZERS["characters"]
    with pytest.raises(InputError, match=r"not valid UTF-8 \(.* line 4\)"):
        build_stream(rows, tokenizer, cache=tmp_path / "cache")
    checks = Checks(empty="keep", encoding="drop")
    stream = build_stream(rows, tokenizer, cache=tmp_path / "cache", checks=checks)
    assert tokenizer.decode(stream.ids) == "to be\n\nto be\n"
    assert "line 4): 1 dropped" in " ".join(stream.report.lines())
    assert len(stream.ledger.read_text().splitlines()) == 2


def test_other_input_is_refused(write, tmp_path):
    tokenizer = TOKENIZERS["characters"]
    with pytest.raises(InputError, match="needs plain text, not source and target"):
        build_stream(parallel_text(write("a.tsv", "a\tb\n")), tokenizer, cache=tmp_path / "c")
    with pytest.raises(InputError, match="There is no text to train on"):
        build_stream(plain_text(write("empty", "")), tokenizer, cache=tmp_path / "c")
    with pytest.raises(FileError, match=r"stream\.json cannot be read"):
        TokenStream(tmp_path)
    (tmp_path / "stream.json").write_text("[")
    with pytest.raises(FileError, match="is damaged: delete its folder"):
        TokenStream(tmp_path)


@pytest.mark.data("shakespeare")
def test_shakespeare_in_characters_is_every_character_once(data, tmp_path):
    whole = gzip.decompress((data / "shakespeare" / "input.txt.gz").read_bytes()).decode()
    text = whole[: whole.index("\n", 200_000) + 1]
    path = tmp_path / "input.txt"
    path.write_text(text)
    tokenizer = train_tokenizer([text], kind="characters")
    stream = build_stream(plain_text(path), tokenizer, cache=tmp_path)
    assert len(stream) == len(text)
    assert stream.ids.dtype == np.uint16
    assert tokenizer.decode(stream.ids[-500:]) == text[-500:]
