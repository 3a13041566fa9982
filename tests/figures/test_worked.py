import re
import xml.etree.ElementTree as ET
from math import inf

import pytest

from regard.analysis.worked_example import DEFAULT, work
from regard.errors import InputError
from regard.figures.captions import _WORDS, word
from regard.figures.worked_figure import WRITERS, as_html, as_latex, as_markdown, as_svg, digits


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.10041, "0.1004"),
        (-0.00001, "0"),
        (-2.5, "−2.5"),
        (-inf, "−∞"),
        (1e4, "10000"),
    ],
)
def test_numbers_are_written_short_and_exact_to_four_decimals(number, text):
    assert digits(number) == text


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("ending", sorted(WRITERS))
def test_every_form_holds_every_weight(ending, language):
    written = WRITERS[ending](work({**DEFAULT, "mask": "causal"}), language)
    for number in ("0.9526", "0.0474", "0.1543", "0.6914"):
        assert number in written


def test_the_picture_is_an_image_whose_text_stays_text():
    picture = ET.fromstring(as_svg(work(), "ko"))
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("쿼리" in text for text in texts)
    assert texts.count("0.4498") == 2


def test_the_page_asks_for_nothing_from_outside_and_escapes_words():
    page = as_html(work({**DEFAULT, "words": ["<script>", "&", "c"]}))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=", page)


def test_latex_has_a_matrix_for_each_step_and_no_sign_it_does_not_know():
    worked = work({**DEFAULT, "mask": "causal"})
    written = as_latex(worked)
    assert written.count(r"\begin{bmatrix}") == len(worked.tables)
    assert r"-\infty" in written
    assert not set("ᵀ√−∞") & set(written)


def test_markdown_has_the_sum_of_each_row():
    rows = [line for line in as_markdown(work()).splitlines() if "0.4498" in line]
    assert rows == ["| one | 0.1004 | 0.4498 | 0.4498 | 1 |"]


def test_both_languages_have_every_word():
    for key, (english, korean) in _WORDS.items():
        assert english
        assert re.search("[가-힣]", korean), key
    with pytest.raises(InputError, match="it can be en or ko"):
        word("mask", "de")
