import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.pieces import word_at, word_spans


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
def test_words_are_cut_as_a_reader_would(text, expected):
    assert words(text) == expected


def test_decomposed_hangul_stays_in_one_word():
    decomposed = unicodedata.normalize("NFD", "저는 학생")
    assert [unicodedata.normalize("NFC", word) for word in words(decomposed)] == ["저는", "학생"]


@given(st.text())
def test_every_visible_character_is_in_exactly_one_word(text):
    covered = [place for start, end in word_spans(text) for place in range(start, end)]
    assert covered == sorted(set(covered))
    assert all(text[place].isspace() for place in set(range(len(text))) - set(covered))


def test_characters_between_words_go_with_the_word_that_follows():
    spans = word_spans("ab  cd ")
    assert [word_at(spans, place) for place in range(7)] == [0, 0, 1, 1, 1, 1, 1]
    assert word_at([], 0) is None
