from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.dates import LOCALES, templates
from regard.files import chunks
from regard.generation.sentences import (
    Segment,
    batches_by_length,
    carve,
    clean,
    kept_spans,
    lost_spans,
    segments,
    sentences,
    share_copied,
)


def short(limit):
    return lambda text: len(text) <= limit


def rejoined(parts):
    return "".join(part.text + part.separator for part in parts)


def test_a_line_that_fits_is_one_part():
    assert segments("One. Two.", short(20)) == [Segment("One. Two.", "")]


def test_lines_are_split_between_sentences_first():
    parts = segments('He said "no." Then he left.  No one knew why!', short(30))
    assert [part.text for part in parts] == ['He said "no." Then he left.', "No one knew why!"]
    assert parts[0].separator == "  "


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


def test_oversized_words_stay_whole():
    parts = segments(f"see {'x' * 2000}, and go", short(10))
    assert [(p.text, p.oversized) for p in parts] == [
        *(("see", False), ("x" * 2000 + ",", True), ("and go", False))
    ]
    assert [p.text for p in segments("abcdefgh", short(2))] == ["ab", "cd", "ef", "gh"]


@pytest.mark.parametrize(
    "line",
    [
        "I like tea.|I hate coffee!|Really? |“Yes.”|He left.",
        "Dr. Smith and J. R. Miller met at 5 p.m. on the 3. Oktober.|They spoke.",
        "See fig. 3 and no. 712.|No.|I was there in 1990.|So was I.|You, too.",
        '"Stop!" he said.|No one stopped …|2019. 3. 1.',
        "안녕하세요.|네.|만나서 반갑습니다.",
        "一二。|三四！|五。",
        "no mark at all",
    ],
)
def test_sentence_boundaries(line):
    parts = [part.strip() for part in line.split("|")]
    glue = "" if "。" in line else " "
    assert [one.text for one in sentences(glue.join(parts))] == parts


def test_no_date_of_the_training_data_is_split():
    days = [date(2076, 1, 1) + timedelta(n) for n in range(0, 366, 29)]
    written = [template.write(day) for template in templates(LOCALES) for day in days]
    assert [line for line in written if len(sentences(line)) > 1] == []
    assert len(sentences("jeu. 27 févr. 2076")) == 1
    assert len(sentences("He bought a dog. 27 people saw it.")) == 2


def test_the_number_of_sentences_is_limited():
    line = "One. Two. Three.  Four. Five."
    for most, expected in (
        (1, ["One.", "Two.", "Three.", "Four.", "Five."]),
        (2, ["One. Two.", "Three.  Four.", "Five."]),
        (5, [line]),
    ):
        parts = segments(line, short(100), max_sentences=most)
        assert [part.text for part in parts] == expected
        assert rejoined(parts) == line
    assert [p.text for p in segments(line, short(6), max_sentences=2)] == line.split()


@given(
    st.text(alphabet="aB .,!?가漢。\"'", min_size=1, max_size=200),
    st.integers(1, 30),
    st.one_of(st.none(), st.integers(1, 3)),
)
def test_parts_fit_and_make_up_the_line(line, limit, most):
    line = line.strip() or "a"
    parts = segments(line, short(limit), max_sentences=most)
    assert rejoined(parts) == line
    assert all(len(part.text) <= limit and part.text for part in parts)


def test_splitting_long_text_is_fast():
    parts = segments("漢" * 100_000, short(200))
    assert rejoined(parts) == "漢" * 100_000
    assert max(len(part.text) for part in parts) <= 200


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [("  a\x00b\n", "a b"), ("\ufefftext", "text"), ("🍜 ok", "🍜 ok"), ("\x1b[31m", "[31m")],
)
def test_control_characters_become_spaces(line, cleaned):
    assert clean(line) == cleaned


def test_batches_by_hand():
    assert batches_by_length([3, 9, 2, 8], tokens=18, rows=10) == [[1, 3], [0, 2]]
    assert batches_by_length([3, 9, 2, 8], tokens=1000, rows=3) == [[1, 3, 0], [2]]
    assert batches_by_length([], tokens=10, rows=10) == []
    tens = batches_by_length([3, 9, 12, 8], tokens=99, rows=9, group=lambda length: length // 10)
    assert tens == [[2], [1, 3, 0]]


def test_few_sentences_occupy_all_workers():
    for n, largest in ((0, 0), (1, 1), (5, 3), (100, 50), (1000, 64)):
        batches = batches_by_length([1] * n, tokens=1000, rows=64, workers=2)
        assert max(map(len, batches), default=0) == largest


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200), st.integers(1, 20))
def test_batches_hold_every_sentence_once_within_the_budget(lengths, tokens, rows):
    batches = batches_by_length(lengths, tokens=tokens, rows=rows)
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) <= rows
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= tokens


def test_chunks_are_lazy():
    taken = []
    stream = chunks((taken.append(i) or i for i in range(10)), 4)
    assert next(stream) == [0, 1, 2, 3]
    assert taken == [0, 1, 2, 3]
    assert [len(chunk) for chunk in stream] == [4, 2]


def test_what_a_translation_must_carry_over_is_found():
    text = "See <b>https://a.org/x?y=1</b>, v2.3.1 or 1,299.50 for {name} \U0001f600 and 7 cats."
    found = [(span.text, span.kind) for span in kept_spans(text)]
    assert found == [
        ("<b>", "tag"),
        ("https://a.org/x?y=1", "address"),
        ("</b>", "tag"),
        ("v2.3.1", "name"),
        ("1,299.50", "number"),
        ("{name}", "slot"),
        ("\U0001f600", "emoji"),
    ]  # 7 is often written out
    lost = lost_spans("1,299.50 euros in 1990, or 27-2", "1.299,50 Euro 1990-02, 272")
    assert [span.text for span in lost] == ["1990", "27-2"]  # only separators may change
    assert share_copied([("in 1990", "1990"), ("in 1991", "2")]) == 0.5
    assert share_copied([("24 24", "x24y")]) == 0.0
    assert share_copied([("a", "b")]) == 0.0


@pytest.mark.parametrize(
    "text", ["<p>A dog runs.</p>", "x https://a.org. y", "\U0001f600", "1234 x 5678"]
)
def test_carved_pieces_make_up_the_text(text):
    for ends in (True, False):
        pieces = carve(text, ends=ends)
        assert "".join(one.text + one.separator for one, _ in pieces) == text
    copied = {one.text for one, is_copied in pieces if is_copied}
    assert copied >= {span.text for span in kept_spans(text)}


def test_an_address_that_does_not_fit_is_copied_whole():
    address = "https://example.org/" + "a" * 300
    parts = segments(f"See {address} today", lambda text: len(text) < 100)
    assert [part.text for part in parts if part.oversized] == [address]
