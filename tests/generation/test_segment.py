import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.generation.sentences import Segment, clean, segments, sentences


def short(limit):
    return lambda text: len(text) <= limit


def rejoined(parts):
    return "".join(part.text + part.seam for part in parts)


def test_a_line_that_fits_stays_whole():
    assert segments("One. Two.", short(20)) == [Segment("One. Two.", "")]


def test_a_long_line_is_split_between_sentences_first():
    parts = segments('He said "no." Then he left.  Nobody knew why!', short(30))
    assert [part.text for part in parts] == ['He said "no." Then he left.', "Nobody knew why!"]
    assert parts[0].seam == "  "


def test_then_between_clauses_then_between_words_then_anywhere():
    assert [p.text for p in segments("first part, second part", short(12))] == [
        *("first part,", "second part")
    ]
    assert [p.text for p in segments("aaa bbb ccc", short(7))] == ["aaa bbb", "ccc"]
    assert [p.text for p in segments("一二三四五六七八", short(2))] == [
        "一二",
        "三四",
        "五六",
        "七八",
    ]
    assert [p.text for p in segments("一二。三四，五六。", short(5))] == [
        "一二。",
        "三四，",
        "五六。",
    ]


def test_a_word_longer_than_any_there_is_stays_whole_and_others_are_cut():
    parts = segments(f"see {'x' * 2000}, and go", short(10))
    assert [(p.text, p.strange) for p in parts] == [
        *(("see", False), ("x" * 2000 + ",", True), ("and go", False))
    ]
    assert [p.text for p in segments("abcdefgh", short(2))] == ["ab", "cd", "ef", "gh"]


@pytest.mark.parametrize(
    "line",
    [
        "I like tea.|I hate coffee!|Really? |“Yes.”|He left.",
        "Dr. Smith and J. R. Miller met at 5 p.m. on the 3. Oktober.|They spoke.",
        "See fig. 3 and no. 712.|No.|I was there in 1990.|So was I.|You, too.",
        '"Stop!" he said.|Nobody stopped …|2019. 3. 1.',
        "안녕하세요.|네.|만나서 반갑습니다.",
        "一二。|三四！|五。",
        "no mark at all",
    ],
)
def test_sentences_end_where_a_reader_ends_them(line):
    parts = [part.strip() for part in line.split("|")]
    glue = "" if "。" in line else " "
    assert [one.text for one in sentences(glue.join(parts))] == parts


def test_a_part_has_no_more_sentences_than_it_may():
    line = "One. Two. Three.  Four. Five."
    for most, expected in (
        (1, ["One.", "Two.", "Three.", "Four.", "Five."]),
        (2, ["One. Two.", "Three.  Four.", "Five."]),
        (5, [line]),
    ):
        parts = segments(line, short(100), most=most)
        assert [part.text for part in parts] == expected
        assert rejoined(parts) == line
    assert [p.text for p in segments(line, short(6), most=2)] == line.split()


@given(
    st.text(alphabet="aB .,!?가漢。\"'", min_size=1, max_size=200),
    st.integers(1, 30),
    st.one_of(st.none(), st.integers(1, 3)),
)
def test_nothing_is_lost_and_every_part_fits(line, limit, most):
    line = line.strip() or "a"
    parts = segments(line, short(limit), most=most)
    assert rejoined(parts) == line
    assert all(len(part.text) <= limit and part.text for part in parts)


def test_a_hundred_kilobytes_without_a_space_are_split_in_time():
    parts = segments("漢" * 100_000, short(200))
    assert rejoined(parts) == "漢" * 100_000
    assert max(len(part.text) for part in parts) <= 200


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [("  a\x00b\n", "a b"), ("\ufefftext", "text"), ("🍜 ok", "🍜 ok"), ("\x1b[31m", "[31m")],
)
def test_control_characters_become_spaces(line, cleaned):
    assert clean(line) == cleaned
