"""Trained tokenizers: merges by hand, lossless round trips, deterministic results."""

import gzip
import json
import random
import subprocess
import sys
import unicodedata
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError, UnknownNameError
from regard.text.tokenizer_training import KINDS, train_tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]
ALPHABET = (
    "abcdefghijklmnopqrstuvwxyzABC ÄÖÜäöüß0123456789.,;:!?'()#-\"§€가나다라마바사아자차카타파하각닭"
)
KNOWN = st.text(ALPHABET)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]))


def covering(kind, **options):
    """A tokenizer that has seen every character of ALPHABET, alone and in words."""
    dice = random.Random(7)
    texts = ["".join(dice.choices(ALPHABET, k=60)) for _ in range(60)] + [*ALPHABET]
    return train_tokenizer(texts, kind=kind, vocab_size=600, **options)


COVERING = {kind: covering(kind) for kind in KINDS}


def test_the_first_merge_is_the_most_frequent_pair_by_hand():
    # "ab" occurs 4 times, every other pair less often; with its space "▁ab" occurs 3 times
    tokenizer = train_tokenizer(["ab ab ab cab"], kind="bpe", vocab_size=11)
    learned = [tokenizer.token_of(id) for id in range(5, len(tokenizer))]
    assert learned == ["a", "b", "c", "▁", "ab", "▁ab"]
    assert [piece.text for piece in tokenizer.pieces("ab cab", specials=False)] == [
        "ab",
        " ",
        "c",
        "ab",
    ]


def test_wordpieces_inside_a_word_have_their_own_form():
    tokenizer = train_tokenizer(["hug hug hugs bugs"], kind="wordpiece", vocab_size=30)
    assert tokenizer.token_of(tokenizer.encode("hugs", specials=False)[-1]).startswith("##")
    assert all(tokenizer.id_of(f"##{character}") for character in "hugsb")


def test_characters_are_learned_by_frequency_and_the_rest_is_unknown():
    tokenizer = train_tokenizer(["aaabbc"], kind="characters", vocab_size=7)
    assert [tokenizer.token_of(id) for id in (5, 6)] == ["a", "b"]
    assert tokenizer.encode("abc", specials=False) == [5, 6, 1]


@given(ANYTHING)
def test_byte_bpe_decodes_any_text_unchanged(text):
    tokenizer = COVERING["byte-bpe"]
    ids = tokenizer.encode(text, literal=True)
    assert tokenizer.decode(ids) == tokenizer.normalize(text)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "characters"])
@given(text=KNOWN)
def test_text_of_known_characters_is_decoded_unchanged(kind, text):
    tokenizer = COVERING[kind]
    back = tokenizer.decode(tokenizer.encode(text, literal=True))
    assert back == tokenizer.normalize(text)
    expected = unicodedata.normalize("NFC", text)
    assert back == (expected if kind == "characters" else expected.removeprefix(" "))


@given(ANYTHING)
def test_without_normalization_bytes_keep_every_difference(text):
    assert RAW.decode(RAW.encode(text, literal=True)) == text


RAW = covering("byte-bpe", normalization=None)
LOWER = covering("bpe", normalization="nfkc", lowercase=True)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "characters"])
def test_spaces_tabs_and_newlines_come_back(kind):
    text = "a  b \n\n c\t(d)  "
    tokenizer = train_tokenizer([text, text], kind=kind, vocab_size=60)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_composed_and_decomposed_hangul_are_the_same_text():
    decomposed = unicodedata.normalize("NFD", "가각닭")
    for tokenizer in COVERING.values():
        assert tokenizer.encode(decomposed) == tokenizer.encode("가각닭")
    assert RAW.encode(decomposed) != RAW.encode("가각닭")


def test_nfkc_folds_widths_but_leaves_single_hangul_letters_alone():
    assert LOWER.normalize("ＡＢ① ㅋㅋㅋ ㅠㅏ ㄱㅏ ﬁ") == "ab1 ㅋㅋㅋ ㅠㅏ ㄱㅏ fi"
    assert unicodedata.normalize("NFKC", "ㄱㅏ") == "가"  # what it would have become


@given(st.text("aÄßＡ①½ﬁ각힣"))
def test_nfkc_is_the_standard_s_for_everything_else(text):
    seen = unicodedata.normalize("NFKC", text).lower()
    assert LOWER.normalize(text) == seen


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_vocabulary(kind):
    # many pairs that occur equally often, so that any random order would show
    fingerprints = {covering(kind).fingerprint for _ in range(2)}
    assert fingerprints == {COVERING[kind].fingerprint}


def test_another_process_trains_the_same_vocabulary(sentences):
    program = (
        "import sys, json; from regard.text.tokenizer_training import train_tokenizer; "
        "learned = train_tokenizer(json.load(sys.stdin), kind='wordpiece', vocab_size=400); "
        "print(learned.fingerprint)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(sentences),
            capture_output=True,
            text=True,
            check=True,
            cwd=REPOSITORY,
        ).stdout
        for _ in range(1)
    }
    here = train_tokenizer(sentences, kind="wordpiece", vocab_size=400)
    assert runs == {here.fingerprint + "\n"}


def test_rare_tokens_are_left_out():
    often = train_tokenizer(["abc abc xyz"], kind="bpe", vocab_size=99, min_frequency=2)
    assert often.id_of("▁abc") is not None
    assert often.id_of("yz") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "wordpieces"}, "kind is 'wordpieces'; .*the nearest is wordpiece"),
        ({"normalization": "nfd"}, "normalization is 'nfd'; choose one of nfc, nfkc, none"),
        ({"vocab_size": 5}, "vocab_size is 5; a bpe tokenizer needs 6"),
        (
            {"kind": "byte-bpe", "vocab_size": 260},
            "vocab_size is 260; a byte-bpe tokenizer needs 261",
        ),
        ({"vocab_size": 8}, "so many different characters that 10 tokens are needed"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        train_tokenizer(["abcd"], **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["  ", "\n"]])
def test_a_corpus_without_text_is_refused(kind, texts):
    with pytest.raises(InputError, match="no text to train a tokenizer on"):
        train_tokenizer(texts, kind=kind, vocab_size=300)


def test_one_string_or_bytes_in_place_of_texts_are_refused():
    with pytest.raises(InputError, match="several strings"):
        train_tokenizer("abc")
    with pytest.raises(InputError, match="one is bytes"):
        train_tokenizer(["a", b"b"])


@pytest.mark.data("tatoeba")
def test_a_vocabulary_of_real_text_decodes_every_sentence(data):
    with gzip.open(data / "tatoeba" / "en-de.tsv.gz", "rt", encoding="utf-8") as lines:
        texts = [
            text for line in islice(lines, 60_000) for text in line.rstrip("\n").split("\t")[:2]
        ]
    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=8_000)
    assert len(tokenizer) == 8_000
    some = texts[::50]
    expected = [tokenizer.normalize(text) for text in some]
    assert tokenizer.decode_batch(tokenizer.encode_batch(some)) == expected


@pytest.mark.data("tatoeba")
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_korean_is_decoded_unchanged_and_pieces_are_readable(data, kind):
    with gzip.open(data / "tatoeba" / "en-ko.tsv.gz", "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[1].strip() for line in islice(lines, 4000)]
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=4000)
    for text in texts[::40]:
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
        assert "�" not in "".join(piece.text for piece in tokenizer.pieces(text))


def test_byte_fallback_makes_no_text_unknown_and_tags_are_one_token():
    texts = ["a bad cab", "ein Bad", "dabei 가"] * 9
    tokenizer = train_tokenizer(
        texts, vocab_size=300, byte_fallback=True, tags=["<formal>"], min_frequency=1
    )
    for text in ("a 뷁 cab 💩", "漢字", "bad\u200bcab"):
        ids = tokenizer.encode(text, literal=True)
        assert tokenizer.unknown_id not in ids
        assert tokenizer.decode(ids) == text
    tag = tokenizer.id_of("<formal>")
    assert tokenizer.encode("<formal> a cab", literal=True, specials=False).count(tag) == 1
    assert tag not in tokenizer.special_ids
    assert len(tokenizer) <= 300
