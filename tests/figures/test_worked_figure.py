import re
from math import inf
from pathlib import Path

import pytest

from regard.analysis.worked_example import (
    DEFAULT,
    find_example,
    list_examples,
    read_example,
    work,
)
from regard.figures.worked_figure import (
    BLANK,
    EXTENSIONS,
    draw_worked,
    format_number,
    quiz,
    save_quiz,
    save_worked,
    to_html,
    to_latex,
    to_markdown,
)
from tests.figures.svg import texts


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (0.10041, "0.1004"),
        (-0.00001, "0"),
        (-2.5, "−2.5"),
        (-inf, "−∞"),
        (1e4, "10000"),
        (1 / 3, "1/3"),
        (-(2**-0.5), "−√2/2"),
        (3 * 2**0.5, "3√2"),
        (6 / 3**0.5, "2√3"),
    ],
)
def test_numbers_have_up_to_four_decimals(number, text):
    assert format_number(number) == text


@pytest.mark.long
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_every_format_is_written_with_every_weight(extension, tmp_path):
    path = tmp_path / f"worked{extension}"
    save_worked(work({**DEFAULT, "mask": "causal"}), path, language="ko")
    if extension in (".png", ".pdf"):
        assert path.stat().st_size > 5000
        return
    for number in ("0.9526", "0.0474", "0.1543", "0.6914"):
        assert number in path.read_text("utf-8")


def test_the_drawing_has_every_number_as_text():
    worked = work()
    shown = texts(draw_worked(worked, language="ko"))
    assert any("쿼리" in text for text in shown)
    for table in worked.tables:
        assert {format_number(x) for row in table.values for x in row} <= set(shown)
    assert shown.count("0.4498") == 2


def test_the_page_has_no_external_references_and_escapes_words():
    page = to_html(work({**DEFAULT, "words": ["<script>", "&", "c"]}))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=", page)


def test_latex_has_a_matrix_for_each_step_and_only_known_signs():
    worked = work({**DEFAULT, "mask": "causal"})
    written = to_latex(worked)
    assert written.count(r"\begin{bmatrix}") == len(worked.tables)
    assert written.startswith(r"\documentclass{article}")
    assert written.endswith("\\end{document}\n")
    assert written.count("{") == written.count("}")
    assert written.replace("−", "-").isascii()
    assert r"\usepackage{kotex}" in to_latex(worked, "ko")
    cosine = to_latex(work({"x": [[1, 0], [1, 1]], "similarity": "cosine"}))
    assert r"\frac{\sqrt{2}}{2}" in cosine
    assert r"-\infty" in written
    assert not set("ᵀ√−∞") & set(written)


def test_markdown_has_the_sum_of_each_row_of_weights():
    rows = [line for line in to_markdown(work()).splitlines() if "0.4498" in line]
    assert rows == ["| dogs | 0.1004 | 0.4498 | 0.4498 | 1 |"]


@pytest.mark.parametrize("name", list_examples())
def test_latex_of_every_shipped_example_is_ascii_and_balanced(name):
    written = to_latex(work(read_example(find_example(Path(name)))))
    assert written.isascii()
    assert written.count("{") == written.count("}")


@pytest.mark.parametrize("extension", [".md", ".html", ".tex", ".svg"])
def test_a_quiz_has_blanks_and_a_file_of_answers(extension, tmp_path):
    path = tmp_path / f"quiz{extension}"
    answers = save_quiz(work(), path)
    assert answers.name == f"quiz-answers{extension}"
    blank = r"\underline" if extension == ".tex" else BLANK
    assert path.read_text("utf-8").count(blank) > 20
    assert blank not in answers.read_text("utf-8")
    given = [table for table in quiz(work()).tables if not table.formula]
    assert given == [table for table in work().tables if not table.formula]
