"""Cards: facts on top, text below, and nothing lost between writing and reading."""

from datetime import UTC, datetime

from regard.model_folder import Card, read_card


def test_a_card_is_written_as_facts_between_two_fences_and_text():
    card = Card(data="Tatoeba", license="CC-BY 2.0", score="30", size="9 MB", date="2025-01-02")
    lines = ["data: Tatoeba", "license: CC-BY 2.0", "score: 30", "size: 9 MB", "date: 2025-01-02"]
    assert str(card).splitlines() == ["---", *lines, "---"]


def test_what_is_written_is_read_again_with_lines_that_people_added():
    card = Card(data="a: b", text="# Title\n\nprose\n---\nmore", others={"author": "somebody"})
    assert read_card(str(card)) == card


def test_a_fact_on_several_lines_becomes_one_line():
    assert read_card(str(Card(data="one\n  two\n---"))).data == "one two ---"


def test_a_file_without_fences_is_all_text():
    assert read_card("# Mine\n\nwords") == Card(text="# Mine\n\nwords")
    assert read_card("---\nno second fence") == Card(text="---\nno second fence")
    assert read_card("") == Card()


def test_a_card_gets_a_size_and_todays_date_but_keeps_a_date_it_has():
    today = datetime.now(UTC).date().isoformat()
    assert Card().filled(size="1 kB").date == today
    assert Card(date="2020-01-01").filled(size="1 kB") == Card(date="2020-01-01", size="1 kB")
