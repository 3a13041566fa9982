"""Pieces and words: every character shown once, words as a reader sees them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.pieces import CONTINUED, Span, characters_of, pieces_of_spans, word_at, word_spans
from regard.text.tokenizer_training import train_tokenizer


def words(text):
    return [text[start:end] for start, end in word_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog, running.", ["A", "dog", ",", "running", "."]),
        ("don't e-mail me 3.5 times", ["don't", "e-mail", "me", "3.5", "times"]),
        ("저는 학생입니다.", ["저는", "학생입니다", "."]),
        ("“Wie geht’s?”", ["“", "Wie", "geht’s", "?", "”"]),
        ("dogs' - and...", ["dogs", "'", "-", "and", ".", ".", "."]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs belong to their consonants
        ("👩‍💻 writes ❤️", ["👩‍💻", "writes", "❤️"]),  # joined emoji, and one with a selector
        ("\ta\u3000b\n", ["a", "b"]),
        ("", []),
        ("  ", []),
    ],
)
def test_words_are_split_as_a_reader_would(text, expected):
    assert words(text) == expected


def test_decomposed_hangul_stays_in_one_word():
    decomposed = unicodedata.normalize("NFD", "저는 학생")
    assert [unicodedata.normalize("NFC", word) for word in words(decomposed)] == ["저는", "학생"]


@given(st.text())
def test_every_visible_character_is_in_exactly_one_word(text):
    covered = [place for start, end in word_spans(text) for place in range(start, end)]
    assert covered == sorted(set(covered))
    assert all(text[place].isspace() for place in set(range(len(text))) - set(covered))


def test_characters_between_words_belong_to_the_next_word():
    spans = word_spans("ab  cd ")
    assert [word_at(spans, place) for place in range(7)] == [0, 0, 1, 1, 1, 1, 1]
    assert word_at([], 0) is None


BYTES_ALONE = train_tokenizer(["x"], kind="byte-bpe", vocab_size=261)
PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def texts(pieces):
    return [piece.text for piece in pieces]


def test_a_character_is_shown_by_the_piece_that_holds_its_first_byte():
    pieces = BYTES_ALONE.pieces("안 a", specials=False)
    assert texts(pieces) == ["안", CONTINUED, CONTINUED, " ", "a"]
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 1)] * 3 + [(1, 2), (2, 3)]
    assert [piece.word for piece in pieces] == [0, 0, 0, 1, 1]


def test_a_piece_that_ends_one_character_and_holds_another_shows_mark_and_character():
    pieces = pieces_of_spans("안녕", [Span(1, 0, 1), Span(2, 0, 2)])
    assert texts(pieces) == ["안", CONTINUED + "녕"]


@given(PLAIN_TEXT)
def test_pieces_put_together_are_the_text(text):
    composed = unicodedata.normalize("NFC", text)
    pieces = BYTES_ALONE.pieces(composed, specials=False)
    assert (
        "".join(piece.text.removeprefix(CONTINUED) for piece in pieces)
        == composed.replace(CONTINUED, "")
        or CONTINUED in composed
    )
    assert "�" not in "".join(texts(pieces)) or "�" in text


def test_accents_and_hangul_letters_that_were_composed_show_with_their_syllable():
    decomposed = unicodedata.normalize("NFD", "가é학")
    assert len(decomposed) == 7
    pieces = BYTES_ALONE.pieces(decomposed, specials=False)
    shown = "".join(piece.text.removeprefix(CONTINUED) for piece in pieces)
    assert shown == decomposed
    assert {(piece.start, piece.end) for piece in pieces} == {(0, 2), (2, 4), (4, 7)}


@given(st.binary())
def test_characters_of_any_bytes_are_python_s_own_reading(data):
    found = list(characters_of(data))
    assert "".join(character for character, _ in found) == data.decode(errors="replace")
    assert sum(width for _, width in found) == len(data)


def test_ids_that_end_inside_a_character_are_shown_as_broken():
    half = BYTES_ALONE.encode("안", specials=False)[:2]
    (first, second) = BYTES_ALONE.pieces_of(half)
    assert (first.text, second.text) == ("�", CONTINUED)
    assert BYTES_ALONE.decode(half) == "�"


@given(st.lists(st.integers(0, 260)))
def test_pieces_of_any_ids_put_together_are_the_decoded_text(ids):
    pieces = [piece for piece in BYTES_ALONE.pieces_of(ids) if piece.word is not None]
    shown = "".join(piece.text.removeprefix(CONTINUED) for piece in pieces)
    decoded = BYTES_ALONE.decode(ids)
    spaces = all(character.isspace() for character in decoded)  # then there is no word at all
    assert shown == decoded or spaces or CONTINUED in decoded


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "characters"])
def test_pieces_of_the_ids_of_a_text_are_the_pieces_of_the_text(trained, sentences, kind):
    for sentence in sentences:
        tokenizer = trained[kind]
        assert tokenizer.pieces_of(tokenizer.encode(sentence)) == tokenizer.pieces(sentence)


def test_no_text_has_no_pieces_but_specials(trained):
    assert texts(trained["bpe"].pieces("")) == ["[CLS]", "[SEP]"]
    assert trained["bpe"].pieces("", specials=False) == trained["bpe"].pieces_of([]) == []


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece"])
def test_texts_of_tokens_have_spaces_whatever_the_vocabulary_writes_for_them(kind):
    tokenizer = train_tokenizer(["the dogs", "a dog"] * 4, kind=kind, vocab_size=280)
    parts = [tokenizer.text_of(id) for id in tokenizer.encode("a dog the dogs", specials=False)]
    assert "".join(parts).strip() == "a dog the dogs"


def test_labels_of_byte_level_tokens_show_spaces_as_signs():
    tokenizer = train_tokenizer(["the dog", "a dog\n"] * 4, kind="byte-bpe", vocab_size=270)
    labels = [tokenizer.label_of(id) for id in tokenizer.encode("a dog\n", specials=False)]
    assert "".join(labels) == "a␣dog⏎"
    assert any(label.startswith("␣d") for label in labels)  # Ġd… in the vocabulary
    special = next(iter(tokenizer.special_ids))
    assert tokenizer.label_of(special) == tokenizer.token_of(special)
